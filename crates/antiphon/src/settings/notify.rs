//! `[[webhook]]` and `[[mail]]` of the configuration: who is told what happens.

use std::path::{Path, PathBuf};

use antiphon_server::{Mail, Mailbox, Occasion, Webhook};
use serde::Deserialize;

/// One `[[webhook]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookFile {
    url: String,
    /// A file, so that the configuration can be shown to everybody.
    secret_file: Option<PathBuf>,
    on: Option<Vec<Occasion>>,
}

/// One `[[mail]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MailFile {
    relay: Option<String>,
    from: String,
    to: Vec<String>,
    on: Option<Vec<Occasion>>,
}

fn occasions(on: Option<&Vec<Occasion>>) -> Vec<Occasion> {
    on.cloned().unwrap_or_else(|| Occasion::ALL.to_vec())
}

impl WebhookFile {
    /// Reads it. Paths count from `beside`.
    pub(super) fn read(&self, beside: &Path) -> Result<Webhook, String> {
        let url = &self.url;
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(format!(
                "`url` of a `[[webhook]]` is `{url}`: give one that begins with https:// or http://"
            ));
        }
        let secret = self.secret_file.as_ref().map(|file| {
            let path = beside.join(file);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("`secret_file` `{}`: {error}", path.display()))?;
            let secret = text.trim();
            if secret.is_empty() {
                return Err(format!("`secret_file` `{}` is empty", path.display()));
            }
            Ok(secret.to_owned())
        });
        Ok(Webhook {
            url: url.clone(),
            secret: secret.transpose()?,
            on: occasions(self.on.as_ref()),
        })
    }
}

impl MailFile {
    /// Reads it.
    pub(super) fn read(&self) -> Result<Mail, String> {
        let relay = self.relay.as_deref().unwrap_or("localhost:25");
        let (host, port) = relay.rsplit_once(':').unwrap_or((relay, "25"));
        let port = port.parse();
        let port = port.map_err(|_| {
            format!("`relay` of a `[[mail]]` is `{relay}`: give `HOST:PORT`, like `localhost:25`")
        })?;
        let address = |text: &String| {
            text.parse::<Mailbox>()
                .map_err(|error| format!("`{text}` is no mail address: {error}"))
        };
        if self.to.is_empty() {
            return Err("`to` of a `[[mail]]` names nobody".into());
        }
        Ok(Mail {
            host: host.to_owned(),
            port,
            from: address(&self.from)?,
            to: self.to.iter().map(address).collect::<Result<_, _>>()?,
            on: occasions(self.on.as_ref()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(text: &str) -> Result<Webhook, String> {
        let file: WebhookFile = toml::from_str(text).unwrap();
        file.read(Path::new("/nonexistent"))
    }

    #[test]
    fn a_webhook_is_told_everything_unless_it_says_what() {
        let all = hook("url = 'https://chat.example/hook'").unwrap();
        assert_eq!(all.on, Occasion::ALL);
        assert_eq!(all.secret, None);
        let some = hook("url = 'http://localhost:9/'\non = ['failure', 'redline']").unwrap();
        assert_eq!(some.on, [Occasion::Failure, Occasion::Redline]);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_could() {
        let why = hook("url = 'chat.example'").unwrap_err();
        assert!(why.contains("begins with https:// or http://"), "{why}");
        let why = hook("url = 'http://a'\nsecret_file = 'key'").unwrap_err();
        assert!(why.contains("/nonexistent/key"), "{why}");
        let mail = |text: &str| {
            let file: MailFile = toml::from_str(text).unwrap();
            file.read()
        };
        let good = mail("from = 'antiphon@example.org'\nto = ['Ops <ops@example.org>']").unwrap();
        assert_eq!((good.host.as_str(), good.port), ("localhost", 25));
        let why = mail("relay = 'mx:smtp'\nfrom = 'a@b.org'\nto = ['a@b.org']").unwrap_err();
        assert!(why.contains("HOST:PORT"), "{why}");
        let why = mail("from = 'nobody'\nto = ['a@b.org']").unwrap_err();
        assert!(why.contains("`nobody` is no mail address"), "{why}");
    }
}
