//! Many connections at once: callers without identity do not keep minions out, and hold little
//! memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;
use tonic::Code;
use tonic::body::Body;
use tower::Service as _;

use super::limits::STRANGER_MESSAGE;
use super::test_support::{Running, start, start_with};
use super::{ClientIdentity, connect, connect_over};
use crate::v1;
use crate::v1::enrolment_client::EnrolmentClient;

/// A host that reconnects without an answer retries after this pause.
const AGAIN: Duration = Duration::from_millis(200);

/// Raises the soft limit of descriptors: both ends of each connection are in this process.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
}

async fn idle(running: &Running, number: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..number {
        streams.push(TcpStream::connect(&running.endpoint).await.unwrap());
    }
    streams
}

/// The number of connections that the server has closed.
async fn closed(streams: &mut [TcpStream]) -> usize {
    let mut closed = 0;
    for stream in streams {
        let read = tokio::time::timeout(Duration::from_millis(1), stream.read_u8()).await;
        closed += usize::from(read.is_ok());
    }
    closed
}

/// A minion's call that reaches the table, which refuses it.
async fn reaches_the_table(running: &Running, minion: &ClientIdentity) {
    let call = tokio::time::timeout(Duration::from_secs(60), running.call(Some(minion)));
    let refused = call.await.expect("no answer in time").unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test]
async fn a_minion_connects_while_1060_idle_connections_of_its_address_are_open() {
    raise_descriptors();
    let running = start().await;
    let minion = running.ca.identity("halite://prod/minion/worker-1");
    let mut strangers = idle(&running, 1060).await;
    reaches_the_table(&running, &minion).await;
    let (handshakes, _) = running.server.limits.without_identity();
    assert!(handshakes <= 256, "{handshakes} handshakes are open");
    assert!(closed(&mut strangers).await >= 1060 - 256);
}

#[tokio::test]
async fn at_the_limit_of_connections_the_oldest_stranger_gives_its_place() {
    raise_descriptors();
    let running = start_with("halite://prod/master/m1", |server| {
        server.with_connections(20)
    })
    .await;
    let minion = running.ca.identity("halite://prod/minion/worker-1");
    let mut strangers = idle(&running, 100).await;
    reaches_the_table(&running, &minion).await;
    let closed = closed(&mut strangers).await;
    assert!(closed >= 80, "only {closed} of 100 were closed");
    // An identity keeps its place: 19 connections of minions, then one without identity as well.
    let mut minions = Vec::new();
    for number in 0..19 {
        let minion = running
            .ca
            .identity(&format!("halite://prod/minion/worker-{number}"));
        let channel = connect(&running.endpoint, &running.ca.pem, Some(&minion))
            .await
            .unwrap();
        let refused = EnrolmentClient::new(channel.clone())
            .enrol(v1::EnrolRequest::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        minions.push(channel);
    }
    assert!(running.call(None).await.is_ok());
    for channel in minions {
        let still = EnrolmentClient::new(channel)
            .enrol(v1::EnrolRequest::default())
            .await
            .unwrap_err();
        assert_eq!(still.code(), Code::PermissionDenied, "{still}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_minions_reconnect_at_once() {
    raise_descriptors();
    let running = start_with("halite://prod/master/m1", |server| {
        server.with_connections(4096)
    })
    .await;
    let begin = Instant::now();
    let mut minions = tokio::task::JoinSet::new();
    for number in 0..1000u16 {
        let identity = running
            .ca
            .identity(&format!("halite://prod/minion/worker-{number}"));
        let endpoint = running.endpoint.clone();
        let ca = running.ca.pem.clone();
        let [high, low] = number.to_be_bytes();
        let own = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0));
        minions.spawn(async move {
            loop {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(own).unwrap();
                let stream = socket.connect(endpoint.parse().unwrap()).await.unwrap();
                let Ok(channel) = connect_over(stream, &endpoint, &ca, Some(&identity)).await
                else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let refused = EnrolmentClient::new(channel.clone())
                    .enrol(v1::EnrolRequest::default())
                    .await
                    .unwrap_err();
                if refused.code() == Code::PermissionDenied {
                    return channel;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    // It ends a test that would hang: a thousand handshakes are a lot of work for the processor.
    let all = tokio::time::timeout(Duration::from_secs(600), minions.join_all());
    let mut channels = all.await.expect("not all minions are connected again");
    assert_eq!(channels.len(), 1000);
    println!("1,000 minions connected in {:?}", begin.elapsed());
    // All of them stay: the newest do not take the places of the oldest.
    for channel in &mut channels {
        let open = tokio::time::timeout(Duration::ZERO, channel.closed()).await;
        assert!(open.is_err(), "{open:?}");
    }
}

/// A body that starts and does not end.
pub(super) struct Half(pub(super) Option<Bytes>);

impl hyper::body::Body for Half {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// The first bytes of a gRPC message of `size` bytes.
pub(super) fn half_a_message(size: usize) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(size).unwrap().to_be_bytes());
    bytes.resize(5 + size - 1, 0);
    bytes.into()
}

#[tokio::test]
async fn half_sent_messages_hold_a_bounded_amount_of_memory() {
    raise_descriptors();
    let running = start().await;
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut channel = connect(&running.endpoint, &running.ca.pem, None)
            .await
            .unwrap();
        let request = http::Request::post("/halite.v1.Enrolment/Enrol")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(Half(Some(half_a_message(STRANGER_MESSAGE - 5)))))
            .unwrap();
        open.push(tokio::spawn(channel.call(request)));
    }
    // A caller that does send its message is answered at the same time.
    assert_eq!(running.call(None).await.unwrap(), "127.0.0.1");
    let (_, strangers) = running.server.limits.without_identity();
    assert!(strangers <= 16, "{strangers} strangers hold memory");
    for call in open {
        call.abort();
    }
}

#[tokio::test]
async fn a_request_of_a_stranger_that_is_too_large_is_refused() {
    let running = start().await;
    let channel = connect(&running.endpoint, &running.ca.pem, None)
        .await
        .unwrap();
    let request = v1::EnrolRequest {
        grains_json: "x".repeat(STRANGER_MESSAGE),
        ..Default::default()
    };
    let error = EnrolmentClient::new(channel)
        .enrol(request)
        .await
        .unwrap_err();
    assert!(error.message().contains("length limit"), "{error}");
}
