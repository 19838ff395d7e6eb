//! Tells others what happens: webhooks, signed, and mail through a relay. Each target has a bounded queue and a task of its own
//! that tries again after failures, so that neither a dead receiver nor a slow one is ever waited for by the event loop.

mod message;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon_backends::trust;
use antiphon_kernel::State;
use hmac::{Hmac, KeyInit as _, Mac as _};
pub use lettre::message::Mailbox;
use lettre::{Message as Letter, SmtpTransport, Transport as _};
use sha2::Sha256;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use self::message::Message;
pub use self::message::Occasion;
use crate::facts::Fact;

/// Messages that may wait for one target; what comes when it is full is dropped, and the next message says how many were.
const QUEUE: usize = 1_024;
/// Longest wait for a receiver's answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Who is told.
#[derive(Debug, Clone, Default)]
pub struct NotifyConfig {
    /// Receivers of JSON.
    pub webhooks: Vec<Webhook>,
    /// Receivers of mail.
    pub mails: Vec<Mail>,
}

/// A receiver of JSON.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Where it listens.
    pub url: String,
    /// What messages are signed with, if they are.
    pub secret: Option<String>,
    /// What it is told.
    pub on: Vec<Occasion>,
}

/// Receivers of mail.
#[derive(Debug, Clone)]
pub struct Mail {
    /// Host of the relay.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The sender.
    pub from: Mailbox,
    /// The receivers.
    pub to: Vec<Mailbox>,
    /// What they are told.
    pub on: Vec<Occasion>,
}

/// When a delivery that failed is tried again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    /// The first wait, doubled after each failure.
    first: Duration,
    /// The longest.
    max: Duration,
    /// Tries, the first included.
    tries: u32,
}

impl Retry {
    /// Some forty minutes in all: as long as a receiver takes to be started anew.
    const USUAL: Self = Self {
        first: Duration::from_secs(2),
        max: Duration::from_secs(300),
        tries: 15,
    };
}

/// The way to all targets. Never waits.
pub(crate) struct Notifier {
    targets: Vec<Queue>,
}

struct Queue {
    on: Vec<Occasion>,
    messages: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Notifier {
    /// Tells everybody who wants to know.
    pub(crate) fn tell(&self, state: &State, fact: &Fact) {
        let Some(message) = Message::of(state, fact) else {
            return;
        };
        for target in &self.targets {
            if target.on.contains(&message.event)
                && target.messages.try_send(message.clone()).is_err()
            {
                target.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Begins to deliver; the handle ends all of it. Nothing where nobody is to be told.
pub(crate) fn begin(config: NotifyConfig) -> (Option<Notifier>, JoinHandle<()>) {
    begin_with(config, Retry::USUAL)
}

fn begin_with(config: NotifyConfig, retry: Retry) -> (Option<Notifier>, JoinHandle<()>) {
    let mut targets = Vec::new();
    let mut tasks = JoinSet::new();
    let webhooks = config.webhooks.into_iter().map(|hook| {
        let on = hook.on.clone();
        (on, Target::Webhook(hook))
    });
    let mails = config.mails.into_iter().map(|mail| {
        let on = mail.on.clone();
        (on, Target::Mail(Box::new(mail)))
    });
    for (on, target) in webhooks.chain(mails) {
        let (messages, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        tasks.spawn(deliver_all(
            Arc::new(target),
            waiting,
            dropped.clone(),
            retry,
        ));
        targets.push(Queue {
            on,
            messages,
            dropped,
        });
    }
    let notifier = (!targets.is_empty()).then_some(Notifier { targets });
    let running = tokio::spawn(async move { while tasks.join_next().await.is_some() {} });
    (notifier, running)
}

enum Target {
    Webhook(Webhook),
    Mail(Box<Mail>),
}

/// Why a delivery failed, and whether it may do better later.
struct Failed {
    why: String,
    again: bool,
}

async fn deliver_all(
    target: Arc<Target>,
    mut waiting: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
    retry: Retry,
) {
    while let Some(mut message) = waiting.recv().await {
        message.dropped = dropped.swap(0, Ordering::Relaxed);
        deliver(&target, message, retry).await;
    }
}

/// Delivers a message, as often as it takes.
async fn deliver(target: &Arc<Target>, message: Message, retry: Retry) {
    let mut wait = retry.first;
    let message = Arc::new(message);
    for tries in 1..=retry.tries {
        let (to, what) = (target.clone(), message.clone());
        let sent = tokio::task::spawn_blocking(move || to.send(&what));
        let failed = match sent.await {
            Ok(Ok(())) => return,
            Ok(Err(failed)) => failed,
            Err(error) => Failed {
                why: error.to_string(),
                again: false,
            },
        };
        if !failed.again || tries == retry.tries {
            let (to, why) = (target.name(), failed.why);
            tracing::warn!(to, why, tries, "a notification is given up");
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(retry.max);
    }
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Webhook(hook) => &hook.url,
            Self::Mail(mail) => &mail.host,
        }
    }

    fn send(&self, message: &Message) -> Result<(), Failed> {
        match self {
            Self::Webhook(hook) => post(hook, message),
            Self::Mail(mail) => send_mail(mail, message),
        }
    }
}

fn post(hook: &Webhook, message: &Message) -> Result<(), Failed> {
    let body = message.json();
    let tls = trust::of_client(None).expect("no file is read");
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent
        .post(&hook.url)
        .header("content-type", "application/json")
        .header(
            "user-agent",
            concat!("antiphon/", env!("CARGO_PKG_VERSION")),
        );
    if let Some(secret) = &hook.secret {
        request = request.header(
            "antiphon-signature",
            signature(secret, message.at_ms, &body),
        );
    }
    let answer = request.send(body.as_str()).map_err(|error| Failed {
        why: error.to_string(),
        again: true,
    })?;
    let status = answer.status().as_u16();
    match status {
        200..300 => Ok(()),
        // Whoever says that a request is wrong says so of the same one later.
        400..500 if status != 408 && status != 429 => Err(Failed {
            why: format!("it answered {status}"),
            again: false,
        }),
        _ => Err(Failed {
            why: format!("it answered {status}"),
            again: true,
        }),
    }
}

/// `t=AT,v1=HEX`: HMAC-SHA256 over `AT.BODY`, so that an old message cannot be sent again as a new one.
fn signature(secret: &str, at_ms: u64, body: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes());
    let mut mac = mac.expect("a key of any length will do");
    mac.update(format!("{at_ms}.{body}").as_bytes());
    let digest = mac.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at_ms},v1={hex}")
}

fn send_mail(mail: &Mail, message: &Message) -> Result<(), Failed> {
    let letter = mail.to.iter().cloned();
    let letter = letter.fold(Letter::builder().from(mail.from.clone()), |letter, to| {
        letter.to(to)
    });
    let letter = letter
        .subject(format!("[antiphon] {}", message.subject()))
        .body(message.paragraph())
        .map_err(|error| Failed {
            why: error.to_string(),
            again: false,
        })?;
    // On its way to the relay it is plain text: a relay of this machine, or of a network that is trusted.
    let relay = SmtpTransport::builder_dangerous(&mail.host)
        .port(mail.port)
        .timeout(Some(TIMEOUT))
        .build();
    relay.send(&letter).map(drop).map_err(|error| Failed {
        again: !error.is_permanent(),
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
