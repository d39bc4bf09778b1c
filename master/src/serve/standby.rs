//! The service for standbys and for masters of other hosts. The caller is the minion of a host, by its
//! certificate; only those of declared standbys are fed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::Stream;
use halite_errors::chain;
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::Peer;
use halite_proto::v1::standby_server::Standby;
use halite_proto::v1::{
    CompareReply, CompareRequest, StandbyMessage, StandbyRecord, standby_message,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::enrolment::protocol_refusal;
use super::{Services, caller_minion, status};
use crate::standby::feed::{Feed, Line, Times};
use crate::standby::roster::State;

/// The time within which a standby must send its hello.
const HELLO: Duration = Duration::from_secs(15);
/// Records that may wait for a slow standby.
const QUEUE: usize = 4;

type Records = Pin<Box<dyn Stream<Item = Result<StandbyRecord, Status>> + Send>>;

#[tonic::async_trait]
impl Standby for Services {
    type FollowStream = Records;

    async fn follow(
        &self,
        request: Request<Streaming<StandbyMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let mut inbound = request.into_inner();
        let declared = self.backend.standbys().await.map_err(status)?;
        if !declared.iter().any(|name| name == minion.as_str()) {
            let refusal = Status::permission_denied(format!(
                "{minion} is no standby of this master; its standbys are: {}",
                if declared.is_empty() {
                    "none".to_owned()
                } else {
                    declared.join(", ")
                }
            ));
            self.check(&peer, "Standby/Follow", Err(refusal))?;
        }
        let first = tokio::time::timeout(HELLO, inbound.message()).await;
        let first =
            first.map_err(|_| Status::deadline_exceeded("the standby sent no hello in time"))??;
        let Some(standby_message::Body::Hello(hello)) = first.and_then(|message| message.body)
        else {
            return Err(Status::invalid_argument(
                "the first message must be the hello",
            ));
        };
        if let Some(reason) = protocol_refusal(hello.protocol) {
            return Err(Status::failed_precondition(reason));
        }
        let heard = self.app.succession.hear(hello.epoch, &peer.name());
        heard.map_err(|replaced| Status::failed_precondition(replaced.to_string()))?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (stored, stored_receiver) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                if let Some(standby_message::Body::Stored(number)) = message.body {
                    stored.send_replace(number);
                }
            }
        });
        let (app, name) = (Arc::clone(&self.app), minion.to_string());
        let lag = Arc::new(AtomicU64::new(0));
        let number = app.standbys.enter(&name, Arc::clone(&lag), app.clock.now());
        let line = Line {
            records: sender,
            stored: stored_receiver,
        };
        let feed = Feed::new(
            app.store.log(),
            app.config.clone(),
            line,
            Times::default(),
            lag,
        );
        let feeding = tokio::spawn({
            let (app, name) = (Arc::clone(&app), name.clone());
            async move {
                let following = || {
                    tracing::info!(standby = name, "has all of it");
                    let now = app.clock.now();
                    app.standbys.set(&name, number, State::Following, "", now);
                };
                let Err(reason) = feed.run(app.store.epoch(), &hello, following).await;
                let reason = chain(&reason);
                tracing::warn!(standby = name, reason, "goes on without this standby");
                let now = app.clock.now();
                app.standbys.set(&name, number, State::Gone, &reason, now);
            }
        });
        app.standbys.set_task(&name, number, feeding.abort_handle());
        Ok(Response::new(Box::pin(
            ReceiverStream::new(receiver).map(Ok),
        )))
    }

    async fn compare(
        &self,
        request: Request<CompareRequest>,
    ) -> Result<Response<CompareReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        caller_minion(&peer)?;
        let epoch = request.into_inner().epoch;
        if let Err(replaced) = self.app.succession.hear(epoch, &peer.name()) {
            tracing::warn!(reason = %replaced, "another master has called");
        }
        // The caller needs it in each case.
        let epoch = self.app.store.epoch();
        Ok(Response::new(CompareReply { epoch }))
    }
}
