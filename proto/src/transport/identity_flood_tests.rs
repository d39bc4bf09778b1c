//! Callers with a certificate that send more than they may: an accepted minion, or a viewer, whose
//! host was taken over.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use super::flood_tests::{Half, half_a_message};
use super::test_support::{Running, start};
use super::{Channel, ClientIdentity, connect};

/// The services of this name; each of their methods reads its request to the end.
#[derive(Clone, Copy)]
pub(super) struct Reads<const IS_MINION: bool>;

impl NamedService for Reads<true> {
    const NAME: &'static str = "halite.v1.Minion";
}

impl NamedService for Reads<false> {
    const NAME: &'static str = "halite.v1.Operator";
}

impl<const IS_MINION: bool> Service<Request<Body>> for Reads<IS_MINION> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                if let Err(status) = frame {
                    return Ok(status.into_http());
                }
            }
            Ok(Status::ok("").into_http())
        })
    }
}

/// The status of a call.
type Call = tokio::task::JoinHandle<Status>;

/// A body that has these bytes and does not end.
fn half(message: &Bytes) -> Body {
    Body::new(Half(Some(message.clone())))
}

/// Calls a method.
fn begin(mut channel: Channel, path: &'static str, body: Body) -> Call {
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    tokio::spawn(async move {
        let answer = channel.call(request).await.unwrap();
        Status::from_header_map(answer.headers()).unwrap()
    })
}

/// Starts as many messages as four connections have streams, and ends none.
async fn flood(
    running: &Running,
    identity: &ClientIdentity,
    streams: usize,
    path: &'static str,
    message: &Bytes,
) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..4 {
        let channel = connect(&running.endpoint, &running.ca.pem, Some(identity));
        let channel = channel.await.unwrap();
        for _ in 0..streams {
            calls.push(begin(channel.clone(), path, half(message)));
        }
    }
    calls
}

/// Waits until each call is refused or holds this many bytes; returns how many are refused.
async fn settled(running: &Running, calls: &[Call], each: usize) -> usize {
    let bytes = || running.server.limits.in_flight.bytes();
    let all = async {
        loop {
            let refused = calls.iter().filter(|call| call.is_finished()).count();
            if bytes() == (calls.len() - refused) * each {
                return refused;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(120), all).await;
    settled.unwrap_or_else(|_| panic!("{} bytes are held", bytes()))
}

/// A small first message, like a minion's hello, and the start of a large one.
fn hello_and_half_a_message(size: usize) -> Bytes {
    [&[0; 5][..], &half_a_message(size)].concat().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_messages_of_an_identity_hold_a_bounded_amount_of_memory() {
    let running = start().await;
    for (uri, path, streams, message, size, most) in [
        (
            "halite://prod/minion/worker-1",
            "/halite.v1.Minion/Connect",
            4,
            hello_and_half_a_message(8 << 20),
            8 << 20,
            64 << 20,
        ),
        (
            "halite://prod/operator/viewer",
            "/halite.v1.Operator/Status",
            8,
            half_a_message(1 << 20),
            1 << 20,
            8 << 20,
        ),
    ] {
        let identity = running.ca.identity(uri);
        let calls = flood(&running, &identity, streams, path, &message).await;
        let refused = settled(&running, &calls, size - 1).await;
        let held = running.server.limits.in_flight.bytes();
        assert!(held > 0 && held <= most, "{uri}: {held} bytes");
        assert!(refused >= calls.len() - most / (size - 1), "{uri}");
        for call in calls {
            if !call.is_finished() {
                call.abort();
                continue;
            }
            let status = call.await.unwrap();
            assert!(status.message().contains("under way"), "{status}");
        }
        // A finished request frees its share.
        let calls: [Call; 0] = [];
        settled(&running, &calls, 0).await;
    }
}

#[tokio::test]
async fn before_its_hello_a_minion_sends_little_and_after_it_a_long_return() {
    let running = start().await;
    let minion = running.ca.identity("halite://prod/minion/worker-1");
    let connect = connect(&running.endpoint, &running.ca.pem, Some(&minion));
    let channel = connect.await.unwrap();
    let path = "/halite.v1.Minion/Connect";
    let early = begin(channel.clone(), path, half(&half_a_message(2 << 20)));
    let status = early.await.unwrap();
    assert!(
        status
            .message()
            .starts_with("cannot accept the first message"),
        "{status}"
    );
    let size = 64 << 20;
    let mut whole = hello_and_half_a_message(size).to_vec();
    whole.push(0);
    let whole = Body::new(Full::new(Bytes::from(whole)));
    let status = begin(channel, path, whole).await.unwrap();
    assert_eq!(status.code(), Code::Ok, "{status}");
}
