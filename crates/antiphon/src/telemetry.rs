//! What the server tells its operator: lines on stderr, and spans for OpenTelemetry where a collector is named. Of a
//! collector that is away or slow the server notices nothing: spans wait in a bounded queue and are dropped beyond it.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon_backends::trust;
use antiphon_server::SPANS;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::cli::Exit;
use crate::failure::Failure;

/// A collector that takes longer is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a stop waits for the last spans.
const FAREWELL: Duration = Duration::from_secs(2);

/// Sends what is left when it is dropped.
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown_with_timeout(FAREWELL)
        {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Begins to tell. `collector` is where spans are posted; without one none is made.
pub(crate) fn start(collector: Option<String>) -> Result<Telemetry, Failure> {
    let lines = EnvFilter::try_from_env("ANTIPHON_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,antiphon_server=info"));
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(color)
        .with_filter(lines);
    let provider = collector.map(provider).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        let tracer = provider.tracer("antiphon");
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_filter(Targets::new().with_target(SPANS, tracing::Level::INFO))
    });
    registry().with(lines).with(spans).init();
    Ok(Telemetry(provider))
}

/// Who makes spans and posts them, on a thread of its own. Name, sampling, queue and headers follow the standard variables
/// (`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_EXPORTER_OTLP_HEADERS`).
fn provider(collector: String) -> Result<SdkTracerProvider, Failure> {
    let failed = |why: String| {
        let what = format!("traces cannot be sent to `{collector}`");
        let help = "correct `otlp` in `[telemetry]` or `OTEL_EXPORTER_OTLP_ENDPOINT`, or take it away: without it no trace is made";
        Failure::new(Exit::Usage, "AP0875", what)
            .why(why)
            .help(help)
    };
    if !(collector.starts_with("http://") || collector.starts_with("https://")) {
        return Err(failed(
            "the address of a collector begins with https:// or http://".into(),
        ));
    }
    let ca = std::env::var_os("OTEL_EXPORTER_OTLP_CERTIFICATE");
    let ca = ca.filter(|path| !path.is_empty());
    let tls = trust::of_client(ca.as_deref().map(std::path::Path::new))
        .map_err(|error| failed(error.to_string()))?;
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .tls_config(tls)
        .build();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Post {
            agent: agent.into(),
            failing: AtomicBool::new(false),
        })
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&collector)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let mut resource = Resource::builder();
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("antiphon");
    }
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.with_attribute(version).build());
    Ok(provider.build())
}

/// Posts with the client that all of antiphon uses, so that TLS has one implementation and one list of authorities.
#[derive(Debug)]
struct Post {
    agent: ureq::Agent,
    /// Whether it was told already that the collector is away.
    failing: AtomicBool,
}

impl Post {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter has a thread of its own, which may wait.
        let answer = self.send(request);
        let why = match &answer {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let failed_before = self.failing.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) if !failed_before => {
                tracing::warn!(
                    why,
                    "traces do not reach their collector; they are dropped until they do"
                );
            }
            None if failed_before => tracing::warn!("traces reach their collector again"),
            Some(_) | None => (),
        }
        Ok(answer?)
    }
}
