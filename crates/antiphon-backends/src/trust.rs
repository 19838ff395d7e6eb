//! Whom a client of the server believes: the authorities that the system knows, or those in a file. Also the one place that
//! chooses who does the cryptography of TLS, for clients and server alike.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Names a file with the certificates of authorities, for clients of the server.
pub const CA_VARIABLE: &str = "ANTIPHON_CA";

/// A file with certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the certificates in `{}` cannot be used: {why}", path.display())]
pub struct TrustError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// Who does the cryptography of TLS: *ring*, which builds wherever there is a C compiler. It is always named and never the
/// process's default, so that no crate brings in another in silence.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a client believes: the authorities in a file, else those of the system. Nothing is read of the latter before the
/// first connection that needs it.
///
/// # Errors
/// Where the file cannot be read or holds no certificate.
pub fn of_client(ca: Option<&Path>) -> Result<TlsConfig, TrustError> {
    let roots = match ca {
        Some(path) => {
            let certificates = certificates(path)?;
            let certificates = certificates.iter();
            let certificates: Vec<Certificate<'static>> = certificates
                .map(|certificate| Certificate::from_der(certificate).to_owned())
                .collect();
            RootCerts::new_with_certs(&certificates)
        }
        None => RootCerts::PlatformVerifier,
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(provider())
        .build())
}

/// The certificates in a file in PEM, at least one.
///
/// # Errors
/// Where the file cannot be read or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let failed = |why: String| TrustError {
        path: path.to_owned(),
        why,
    };
    let told = |error: pem::Error| failed(told(&error));
    let certificates = CertificateDer::pem_file_iter(path).map_err(told)?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(told)?;
    if certificates.is_empty() {
        return Err(failed("there is none in it; it has to be in PEM".into()));
    }
    Ok(certificates)
}

/// Why a file in PEM cannot be read, in words that a person can act on.
#[must_use]
pub fn told(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            "there is no such file".into()
        }
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "there is none in it; it has to be in PEM".into(),
        other => other.to_string(),
    }
}
