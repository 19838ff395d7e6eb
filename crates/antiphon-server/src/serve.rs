//! Connections: how many there may be, how long somebody may take, and TLS. A slow or hostile sender costs one place among
//! many and nobody else's time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// How long the handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a request's head may take, and how long a connection may stand idle between two requests.
const HEAD: Duration = Duration::from_secs(30);
/// How long a request's body may take in all: the largest, 4 MiB, over 1 Mbit/s.
const BODY: Duration = Duration::from_secs(40);
/// How long the other side may take nothing of an answer that is ready.
const UNREAD: Duration = Duration::from_secs(60);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 32 << 10;
/// Between two complaints about too many connections.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What others may take of the server. The numbers are far above what people, trainers and dashboards of a large cluster use
/// together: they are there for those who mean harm or have a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once from one address that is not this machine's.
    pub connections_per_address: usize,
    /// Requests a second of one person's token; 0 for no bound. Signals of attempts are not counted.
    pub requests_per_second: u32,
    /// Requests at once of one person's token, after a rest.
    pub requests_burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32_768,
            connections_per_address: 4_096,
            requests_per_second: 500,
            requests_burst: 5_000,
        }
    }
}

/// Answers whoever connects, for as long as it is polled.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    tls: Option<Arc<rustls::ServerConfig>>,
    limits: Limits,
) -> io::Result<()> {
    let places = Places::new(limits);
    let tls = tls.map(TlsAcceptor::from);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_theirs(&error) => continue,
            Err(error) => {
                // No files are left, most likely. They come back as connections end.
                tracing::error!(%error, "no connection can be taken; again in 1 s");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        // Closed at once: to answer would be to spend on it what it may not have.
        let Some(place) = places.take(peer.ip()) else {
            continue;
        };
        // Answers are small, and the next request waits for them.
        let _ = stream.set_nodelay(true);
        let (app, tls) = (app.clone(), tls.clone());
        tokio::spawn(async move {
            connection(stream, app, tls).await;
            drop(place);
        });
    }
}

/// Whether what went wrong is the other side's alone.
fn is_theirs(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

async fn connection(stream: TcpStream, app: Router, tls: Option<TlsAcceptor>) {
    let stream = Impatient::new(stream);
    let Some(tls) = tls else {
        return requests(stream, app).await;
    };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, app).await,
        Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
}

async fn requests<S>(stream: S, app: Router)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| Body::new(Awaited::new(body)));
        let app = app.clone();
        async move {
            let answer = app.oneshot(request).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Who is connected, by address.
struct Places {
    limits: Limits,
    taken: Mutex<Taken>,
    began: Instant,
    /// Milliseconds after `began`.
    complained_ms: AtomicU64,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; free again when dropped.
struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            taken: Mutex::default(),
            began: Instant::now(),
            complained_ms: AtomicU64::new(0),
        })
    }

    fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        // All tasks of a local backend come from one address.
        let of_one = if address.is_loopback() {
            self.limits.connections
        } else {
            self.limits.connections_per_address
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (
            taken.all,
            taken.by_address.get(&address).copied().unwrap_or(0),
        );
        if all >= self.limits.connections || own >= of_one {
            drop(taken);
            self.complain(address, all, own);
            return None;
        }
        taken.all += 1;
        *taken.by_address.entry(address).or_default() += 1;
        let places = self.clone();
        Some(Place { places, address })
    }

    /// Once a minute: who knocks a thousand times a second shall not fill the disk.
    fn complain(&self, address: IpAddr, all: usize, own: usize) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let every = u64::try_from(COMPLAIN_EVERY.as_millis()).unwrap_or(u64::MAX);
        let last = self.complained_ms.load(Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) >= every {
            self.complained_ms.store(now.max(1), Ordering::Relaxed);
            tracing::warn!(%address, own, all, "too many connections: one is closed unheard; see `[limits]`");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = self.places.taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(own) = taken.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// A body that did not come within [`BODY`].
#[derive(Debug, thiserror::Error)]
#[error("the body did not come within {} s", BODY.as_secs())]
pub(crate) struct LateBody;

/// A request's body that has to come within [`BODY`]. The clock is started only where the body is not there yet.
struct Awaited {
    body: Incoming,
    late: Option<Pin<Box<Sleep>>>,
}

impl Awaited {
    const fn new(body: Incoming) -> Self {
        Self { body, late: None }
    }
}

impl hyper::body::Body for Awaited {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(BODY)));
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Some(Err(Box::new(LateBody))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that ends where the other side takes nothing for [`UNREAD`] of what it asked for. The clock is started only
/// where something is left untaken.
struct Impatient {
    stream: TcpStream,
    unread: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unread: None,
        }
    }

    fn patiently<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.unread = None;
            return polled;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        ready!(unread.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.patiently(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.patiently(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn limits(connections: usize, per_address: usize) -> Limits {
        Limits {
            connections,
            connections_per_address: per_address,
            ..Limits::default()
        }
    }

    #[test]
    fn one_address_takes_its_own_places_and_leaves_the_rest() {
        let places = Places::new(limits(4, 2));
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let held: Vec<_> = (0..2).map(|_| places.take(a).unwrap()).collect();
        assert!(places.take(a).is_none());
        // The same address in the other protocol's clothes.
        assert!(places.take("::ffff:10.0.0.1".parse().unwrap()).is_none());
        let other = places.take(b).unwrap();
        let local = places.take("127.0.0.1".parse().unwrap()).unwrap();
        assert!(places.take(b).is_none(), "all four are taken");
        drop((held, other, local));
        assert!(places.taken.lock().unwrap().by_address.is_empty());
        assert!(places.take(a).is_some());
    }

    /// A server in paused time: what waits for minutes takes none.
    async fn server() -> (TcpStream, tokio::task::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = axum::routing::post(|body: Bytes| async move { body.len().to_string() });
        let app = Router::new().route("/", echo);
        let serving = tokio::spawn(serve(listener, app, None, Limits::default()));
        (TcpStream::connect(address).await.unwrap(), serving)
    }

    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_never_ends_is_given_up() {
        let (mut stream, serving) = server().await;
        stream
            .write_all(b"POST / HTTP/1.1\r\nhost: x\r\nx: ")
            .await
            .unwrap();
        let text = rest(&mut stream).await;
        assert!(!text.contains("200 OK"), "{text}");
        serving.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_refused_and_the_connection_closed() {
        let (mut stream, serving) = server().await;
        let head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
        stream.write_all(head).await.unwrap();
        let text = rest(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{text}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_whole_request_is_answered_and_the_connection_kept() {
        let (mut stream, serving) = server().await;
        for _ in 0..2 {
            let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
            stream.write_all(request).await.unwrap();
            let mut answer = [0; 512];
            let n = stream.read(&mut answer).await.unwrap();
            let text = String::from_utf8_lossy(&answer[..n]);
            assert!(
                text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\n3"),
                "{text}"
            );
        }
        serving.abort();
    }
}
