//! The service for standbys and for masters of other hosts. The caller is the minion of a host, by
//! its certificate; only declared standbys receive records.

use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::Stream as Streams;
use halite_core::app::App;
use halite_core::roster::FollowState;
use halite_core::roster::budget::Budget;
use halite_errors::chain;
use halite_proto::PROTOCOL;
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::Peer;
use halite_proto::v1::standby_server::Standby;
use halite_proto::v1::{
    CompareReply, CompareRequest, StandbyHello, StandbyMessage, StandbyRecord, standby_message,
};
use halite_standby::feed::{Feed, Line, Times};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::enrolment::protocol_refusal;
use super::{Services, caller_minion, status};

/// The time within which a standby must send its hello.
const HELLO: Duration = Duration::from_secs(15);
/// Records that may wait for a slow standby.
const QUEUE: usize = 4;

/// The records for a standby.
pub(super) type Records = Pin<Box<dyn Streams<Item = Result<StandbyRecord, Status>> + Send>>;

#[tonic::async_trait]
impl Standby for Services {
    type FollowStream = Records;

    async fn follow(
        &self,
        request: Request<Streaming<StandbyMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let inbound = request.into_inner();
        let declared = self.backend.standbys().await.map_err(status)?;
        if !declared.iter().any(|name| name == minion.as_str()) {
            let refusal = Status::permission_denied(format!(
                "{minion} is not a standby of this master; its standbys are: {}",
                if declared.is_empty() {
                    "none".to_owned()
                } else {
                    declared.join(", ")
                }
            ));
            self.check(&peer, "Standby/Follow", Err(refusal))?;
        }
        let budget = self.app.standbys.budget(minion.as_str());
        check_budget(&budget)?;
        let (mut stream, records) = accept(&self.app, &peer, minion.as_str(), inbound).await?;
        stream.feed = stream.feed.with_budget(budget);
        // Before it gets any file: each copy that it can be promoted with is one that it can
        // decrypt.
        let secrets = stream.hello.secrets.as_str();
        if !secrets.is_empty()
            && let Err(refusal) = self
                .backend
                .add_secret_recipient(&stream.name, secrets)
                .await
        {
            let reason = refusal.message;
            tracing::error!(
                standby = stream.name,
                reason,
                "it cannot decrypt the secrets"
            );
        }
        let app = Arc::clone(&self.app);
        Ok(fed(&self.app, stream, records, |stream| async move {
            let following = || {
                tracing::info!(standby = stream.name, "the standby has all records");
                let now = app.clock.now();
                app.standbys
                    .set(&stream.name, stream.number, FollowState::Following, "", now);
            };
            let (epoch, hello) = (app.succession.evidence(), &stream.hello);
            let Err(reason) = stream.feed.run(&epoch, hello, following).await;
            let reason = chain(&reason);
            tracing::warn!(
                standby = stream.name,
                reason,
                "the master continues without this standby"
            );
            let now = app.clock.now();
            app.standbys
                .set(&stream.name, stream.number, FollowState::Gone, &reason, now);
        }))
    }

    async fn compare(
        &self,
        request: Request<CompareRequest>,
    ) -> Result<Response<CompareReply>, Status> {
        compare(&self.app, &request)
    }
}

/// Refuses a standby that has recently delayed the master for too long.
fn check_budget(budget: &Mutex<Budget>) -> Result<(), Status> {
    let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
    let checked = budget.check(Instant::now());
    checked.map_err(|over| Status::resource_exhausted(format!("{over}")))
}

/// The reason why the standby with this name and hello, which runs another program, cannot take the
/// master; `None` if it runs the same one.
pub(super) fn program_refusal(name: &str, hello: &StandbyHello) -> Option<String> {
    let own = (env!("CARGO_PKG_VERSION"), PROTOCOL);
    let theirs = (hello.version.as_str(), hello.protocol);
    (theirs != own).then(|| {
        format!(
            "halite-master on {name} runs version {} (protocol {}), but this master runs {} (protocol {}): `ctl highstate \
             {name}` updates it",
            theirs.0, theirs.1, own.0, own.1
        )
    })
}

/// Receives the epoch of a master on another host, and returns this one's.
pub(super) fn compare(
    app: &App,
    request: &Request<CompareRequest>,
) -> Result<Response<CompareReply>, Status> {
    let peer = Peer::of(request)?;
    caller_minion(peer)?;
    let asked = request.get_ref();
    let (number, evidence) = (asked.epoch, asked.evidence.as_ref());
    let heard = app.succession.hear_claim(number, evidence, &peer.name());
    if let Err(reason) = heard {
        tracing::warn!(%reason, "another master has called");
    }
    // The caller needs it in either case.
    let own = app.succession.evidence();
    Ok(Response::new(CompareReply {
        epoch: own.number,
        evidence: Some(own),
        standing: None,
    }))
}

/// Feeds a standby in a task that ends when a newer stream of the standby enters; returns the
/// records for it.
pub(super) fn fed<F: Future<Output = ()> + Send + 'static>(
    app: &App,
    stream: Stream,
    records: Records,
    feed: impl FnOnce(Stream) -> F,
) -> Response<Records> {
    let (name, number) = (stream.name.clone(), stream.number);
    let feeding = tokio::spawn(feed(stream));
    let task = feeding.abort_handle();
    app.standbys.set_task(&name, number, task);
    Response::new(records)
}

/// A stream of a standby whose hello has come.
pub(super) struct Stream {
    /// The name of its host.
    pub name: String,
    /// Its number in the roster.
    pub number: u64,
    /// Its first message.
    pub hello: StandbyHello,
    /// The source of its records.
    pub feed: Feed,
}

/// Receives the hello of a standby, and enters it in the roster; also returns its records.
pub(super) async fn accept(
    app: &Arc<App>,
    peer: &Peer,
    name: &str,
    mut inbound: Streaming<StandbyMessage>,
) -> Result<(Stream, Records), Status> {
    let first = tokio::time::timeout(HELLO, inbound.message()).await;
    let first =
        first.map_err(|_| Status::deadline_exceeded("the standby sent no hello in time"))??;
    let Some(standby_message::Body::Hello(hello)) = first.and_then(|message| message.body) else {
        return Err(Status::invalid_argument(
            "the first message must be the hello",
        ));
    };
    if let Some(reason) = protocol_refusal(hello.protocol) {
        return Err(Status::failed_precondition(reason));
    }
    let (number, evidence) = (hello.epoch, hello.heard.as_ref());
    let heard = app.succession.hear_claim(number, evidence, &peer.name());
    heard.map_err(|refused| Status::failed_precondition(refused.to_string()))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (stored, stored_receiver) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok(Some(message)) = inbound.message().await {
            if let Some(standby_message::Body::Stored(number)) = message.body {
                stored.send_replace(number);
            }
        }
    });
    let lag = Arc::new(AtomicU64::new(0));
    let number = app.standbys.enter(name, Arc::clone(&lag), app.clock.now());
    let obstacle = program_refusal(name, &hello);
    app.standbys.set_obstacle(name, number, obstacle);
    let line = Line {
        records: sender,
        stored: stored_receiver,
    };
    let (log, config) = (app.store.log(), app.config.clone());
    let stream = Stream {
        name: name.to_owned(),
        number,
        hello,
        feed: Feed::new(log, config, line, Times::default(), lag),
    };
    let records = Box::pin(ReceiverStream::new(receiver).map(Ok));
    Ok((stream, records))
}
