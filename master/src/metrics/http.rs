//! The HTTP server of the metrics: `/metrics` and `/healthz`.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Exposition;

/// Connections at a time; further ones are closed at once. A Prometheus server needs one.
pub(super) const CONNECTIONS: usize = 32;
/// The pause after an accept that failed for want of descriptors.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for a request. It must be longer than usual scrape intervals, so that
/// Prometheus can use its connection again.
const IDLE: Duration = Duration::from_secs(150);
/// The longest time of a connection, and the time for its last answer.
const LIFETIME: Duration = Duration::from_secs(3600);
const LAST: Duration = Duration::from_secs(10);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn answer(request: &Request<Incoming>, exposition: &Exposition) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, OPEN_METRICS, exposition.text())
        }
        (&Method::GET | &Method::HEAD, "/healthz") => {
            (StatusCode::OK, "text/plain", "ok\n".to_owned())
        }
        (_, "/metrics" | "/healthz") => {
            let text = "only GET and HEAD are allowed\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text)
        }
        _ => {
            let text = "the paths are /metrics and /healthz\n".to_owned();
            (StatusCode::NOT_FOUND, "text/plain", text)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Serves one connection until it ends or has lasted too long.
pub(super) async fn connection<S>(stream: S, exposition: Arc<Exposition>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        ready(Ok::<_, Infallible>(answer(&request, &exposition)))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = sleep(LIFETIME) => {
            served.as_mut().graceful_shutdown();
            timeout(LAST, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = chain(&error), "a connection to the metrics ended");
    }
}

/// Serves the metrics in plain HTTP on an open port; never returns.
pub async fn serve(listener: TcpListener, exposition: Arc<Exposition>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    continue;
                };
                let served = connection(stream, Arc::clone(&exposition));
                tokio::spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection to the metrics");
                sleep(PAUSE).await;
            }
        }
    }
}
