//! The server's certificate: read, looked at as a client would, and changed while the server runs. A new one that clients
//! would refuse is refused here first, and the old one is kept.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use antiphon_backends::trust::{self, TrustError};
use rustls::RootCertStore;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::executor::chain;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where a certificate and what belongs to it lie, each in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that clients of this server believe, where that is none of the system's. Handed to tasks.
    pub ca: Option<PathBuf>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file with certificates cannot be read.
    #[error(transparent)]
    Certificates(#[from] TrustError),
    /// The key cannot be read.
    #[error("the private key in `{}` cannot be used: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key do not belong together, or one of them is of a kind that is not spoken.
    #[error("the certificate in `{}` and the key in `{}` cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// A client would not believe it.
    #[error("clients that connect to `{host}` would refuse the certificate in `{}`", certificate.display())]
    NotBelieved {
        /// The name by which clients know the server.
        host: String,
        /// The certificate's file.
        certificate: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// The certificate that is shown to those who connect.
#[derive(Debug)]
pub(crate) struct Shown {
    files: TlsFiles,
    host: ServerName<'static>,
    current: RwLock<Arc<CertifiedKey>>,
    /// What the files looked like when they were last read, whatever came of it.
    read: Mutex<Stamp>,
}

/// What a file looks like from outside.
type Stamp = Vec<Option<(i64, i64, u64, u64)>>;

impl Shown {
    /// Reads the files. `host` is the name by which clients know the server.
    pub(crate) fn open(files: TlsFiles, host: ServerName<'static>) -> Result<Self, TlsError> {
        let stamp = stamp(&files);
        let first = load(&files, &host)?;
        Ok(Self {
            files,
            host,
            current: RwLock::new(Arc::new(first)),
            read: Mutex::new(stamp),
        })
    }

    /// How it is offered to those who connect.
    pub(crate) fn config(self: &Arc<Self>) -> rustls::ServerConfig {
        let builder = rustls::ServerConfig::builder_with_provider(trust::provider());
        let mut config = builder
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }

    /// Reads the files again for as long as it is polled: when they have changed and are still again, and on SIGHUP.
    pub(crate) async fn watch(self: Arc<Self>, mut hangup: Option<Signal>) {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = stamp(&self.files);
        loop {
            tokio::select! {
                _ = interval.tick() => {
                    // Certificate and key are replaced one after the other: between the two they do not fit.
                    let now = stamp(&self.files);
                    let still = now == seen;
                    seen = now;
                    if !still || seen == *self.read.lock().unwrap_or_else(PoisonError::into_inner) {
                        continue;
                    }
                }
                () = next(&mut hangup) => (),
            }
            let again = self.clone();
            let _ = tokio::task::spawn_blocking(move || again.reload()).await;
        }
    }

    /// Reads the files again, and says in the server's output what came of it.
    fn reload(&self) {
        let certificate = self.files.certificate.display();
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = stamp(&self.files);
        match load(&self.files, &self.host) {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                tracing::info!(%certificate, "the certificate was read again");
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(%certificate, error, "the new certificate is refused; the old one is kept");
            }
        }
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Some(current.clone())
    }
}

/// Listens to SIGHUP, which ends a process that does not: to be called before anybody can know the server's process.
pub(crate) fn hangups() -> Option<Signal> {
    signal(SignalKind::hangup()).ok()
}

/// The next SIGHUP, where they can be listened to.
async fn next(hangup: &mut Option<Signal>) {
    let heard = match hangup {
        Some(hangup) => hangup.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending().await
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    let paths = [
        Some(&files.certificate),
        Some(&files.key),
        files.ca.as_ref(),
    ];
    let stamp = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.mtime(), meta.mtime_nsec(), meta.ino(), meta.len()))
    };
    let paths = paths.into_iter().flatten();
    paths.map(|path| stamp(path)).collect()
}

fn load(files: &TlsFiles, host: &ServerName<'static>) -> Result<CertifiedKey, TlsError> {
    let chain = trust::certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::Key {
        path: files.key.clone(),
        why: trust::told(&error),
    })?;
    let pair = CertifiedKey::from_der(chain, key, &trust::provider());
    let pair = pair.map_err(|source| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    })?;
    let ca = files.ca.as_deref().map(trust::certificates).transpose()?;
    believed(&pair, ca.as_deref(), host).map_err(|source| TlsError::NotBelieved {
        host: host.to_str().into_owned(),
        certificate: files.certificate.clone(),
        source,
    })?;
    Ok(pair)
}

/// Whether a client believes that this is the host. Without the authority's certificate only the name is looked at: the
/// system's authorities are those of the clients, who may sit elsewhere.
fn believed(
    pair: &CertifiedKey,
    ca: Option<&[rustls::pki_types::CertificateDer<'static>]>,
    host: &ServerName<'static>,
) -> Result<(), rustls::Error> {
    let own = pair.end_entity_cert()?;
    let Some(ca) = ca else {
        return verify_server_name(&ParsedCertificate::try_from(own)?, host);
    };
    let mut roots = RootCertStore::empty();
    for authority in ca {
        roots.add(authority.clone())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), trust::provider());
    let verifier = verifier
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let between = pair.cert.get(1..).unwrap_or_default();
    verifier
        .verify_server_cert(own, between, host, &[], UnixTime::now())
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            Self(CertifiedIssuer::self_signed(params, key).unwrap())
        }

        /// Writes a certificate for a host beside its key, and the authority's own.
        fn write(&self, dir: &Path, host: &str, year_end: i32) -> TlsFiles {
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(year_end, 1, 1);
            let key = KeyPair::generate().unwrap();
            let signed = params.signed_by(&key, &self.0).unwrap();
            let files = TlsFiles {
                certificate: dir.join("server.pem"),
                key: dir.join("server.key"),
                ca: Some(dir.join("ca.pem")),
            };
            fs::write(&files.certificate, signed.pem()).unwrap();
            fs::write(&files.key, key.serialize_pem()).unwrap();
            fs::write(dir.join("ca.pem"), self.0.pem()).unwrap();
            files
        }
    }

    fn host(name: &str) -> ServerName<'static> {
        ServerName::try_from(name.to_owned()).unwrap()
    }

    fn refused(files: &TlsFiles, name: &str) -> String {
        chain(&Shown::open(files.clone(), host(name)).unwrap_err())
    }

    #[test]
    fn a_certificate_is_refused_where_its_clients_would_refuse_it() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.write(dir.path(), "sched.example", 4000);
        assert!(Shown::open(files.clone(), host("sched.example")).is_ok());
        let other = refused(&files, "other.example");
        assert!(other.contains("`other.example` would refuse"), "{other}");
        let nameless = TlsFiles {
            ca: None,
            ..files.clone()
        };
        assert!(Shown::open(nameless.clone(), host("sched.example")).is_ok());
        assert!(refused(&nameless, "other.example").contains("would refuse"));

        let files = authority.write(dir.path(), "sched.example", 2021);
        let expired = refused(&files, "sched.example");
        assert!(expired.contains("expired"), "{expired}");
        // Signed by another authority than the one that clients are given.
        let files = authority.write(dir.path(), "sched.example", 4000);
        fs::write(dir.path().join("ca.pem"), Authority::new().0.pem()).unwrap();
        let foreign = refused(&files, "sched.example");
        assert!(foreign.contains("would refuse"), "{foreign}");
    }

    #[test]
    fn files_that_do_not_fit_say_which_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.write(dir.path(), "sched.example", 4000);
        let name = "sched.example";
        fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(refused(&files, name).contains("cannot be used together"));
        fs::write(&files.key, "no key").unwrap();
        assert!(refused(&files, name).contains("server.key` cannot be used: there is none in it"));
        fs::remove_file(&files.key).unwrap();
        assert!(refused(&files, name).contains("there is no such file"));
        fs::write(&files.certificate, "").unwrap();
        assert!(refused(&files, name).contains("server.pem` cannot be used: there is none in it"));
    }

    #[test]
    fn a_broken_new_certificate_leaves_the_old_one_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.write(dir.path(), "sched.example", 4000);
        let shown = Shown::open(files.clone(), host("sched.example")).unwrap();
        let current = || shown.current.read().unwrap().cert.clone();
        let first = current();
        authority.write(dir.path(), "other.example", 4000);
        shown.reload();
        assert_eq!(current(), first);
        authority.write(dir.path(), "sched.example", 4001);
        shown.reload();
        assert_ne!(current(), first);
    }
}
