//! The service for enrolled minions. A minion's id is the one in its certificate, whatever its
//! messages say.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use halite_core::ca::{HALITE, Profile};
use halite_core::connections::ConnectionGuard;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::TurnAnswer;
use halite_fleet::keys;
use halite_fleet::keys::host_root;
use halite_proto::ids::MinionId;
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::Peer;
use halite_proto::v1::minion_server::Minion;
use halite_proto::v1::turn_reply::State;
use halite_proto::v1::{
    FetchReply, FetchRequest, MasterHello, MasterMessage, MinionHello, MinionMessage, RenewReply,
    RenewRequest, SignReply, SignRequest, TurnReply, TurnRequest, master_message, minion_message,
};
use halite_store::{Certificate, Facts};
use tokio::sync::{mpsc, oneshot};

use super::enrolment::protocol_refusal;
use super::shares::Work;
use super::{Call, Services, caller_minion, status};
use crate::other_masters;

/// The time within which a minion that connects must send its hello.
const HELLO: Duration = Duration::from_secs(15);
/// Largest grains that are stored.
const GRAINS_MAX: usize = 1024 * 1024;

/// The master's side of a minion's stream. Either side may end the stream; dropping this also ends
/// the task that listens to the minion.
struct MasterStream {
    hello: Option<MasterHello>,
    messages: mpsc::Receiver<MasterMessage>,
    _listener: oneshot::Sender<()>,
}

impl Stream for MasterStream {
    type Item = Result<MasterMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Ok(MasterMessage {
                body: Some(master_message::Body::Hello(hello)),
            })));
        }
        self.messages
            .poll_recv(context)
            .map(|message| message.map(Ok))
    }
}

#[tonic::async_trait]
impl Minion for Services {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<MasterMessage, Status>> + Send>>;

    async fn connect(
        &self,
        request: Request<Streaming<MinionMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(HELLO, inbound.message()).await;
        let first =
            first.map_err(|_| Status::deadline_exceeded("the minion sent no hello in time"))??;
        let Some(minion_message::Body::Hello(hello)) = first.and_then(|message| message.body)
        else {
            return Err(Status::invalid_argument(
                "the first message must be the hello",
            ));
        };
        let mut answer = halite_core::hello::hello(&self.app, self.masters().await);
        if let Some(reason) = protocol_refusal(hello.protocol) {
            tracing::warn!(%minion, reason, "minion refused");
            answer.refused = reason;
            let only = MasterMessage {
                body: Some(master_message::Body::Hello(answer)),
            };
            return Ok(Response::new(Box::pin(futures_util::stream::iter([Ok(
                only,
            )]))));
        }
        let (number, evidence) = (hello.epoch.unwrap_or_default(), hello.obeyed.as_ref());
        let heard = self
            .app
            .succession
            .hear_claim(number, evidence, &peer.name());
        if let Err(refused) = heard {
            tracing::warn!(%minion, reason = %refused, "minion refused");
            return Err(Status::failed_precondition(refused.to_string()));
        }
        self.store_facts(&minion, &hello.grains_json, &hello.version)
            .await
            .map_err(status)?;
        let (address, protocol) = (peer.address.ip(), hello.protocol);
        let connections = &self.app.connections;
        let (connection, messages) = connections.join_speaking(&minion, address, protocol);
        let named = answer.masters.clone();
        connections.knows(&minion, named);
        connections.shows(&minion, hello.trust.clone());
        let (ended, listener) = oneshot::channel();
        tokio::spawn(
            self.clone()
                .listen(minion, hello, inbound, connection, listener),
        );
        Ok(Response::new(Box::pin(MasterStream {
            hello: Some(answer),
            messages,
            _listener: ended,
        })))
    }

    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let request = request.into_inner();
        let what = format!("job {} {}", brief(&request.job), brief(&request.tag));
        let call = Call::new(&peer, "Minion/Sign", what);
        self.share(&minion, Work::Sign).await?;
        let Self { app, backend, .. } = self.clone();
        self.audited(call, async move {
            let job = request.job.parse()?;
            let chunk = backend.sign_allowed(&minion, &job, &request.tag).await?;
            let now = app.clock.now();
            let (ca, issued) = if host_root::is_asked_for(&chunk) {
                let issued = host_root::sign(&app, &minion, &chunk, &request.csr_pem).await?;
                (HALITE.to_owned(), issued)
            } else {
                let (ca, profile) = Profile::of_chunk(&chunk)
                    .map_err(|error| Refusal::denied(error.to_string()))?;
                let issued = app.cas.sign(&ca, &request.csr_pem, &profile, now);
                (ca, issued.map_err(|error| Refusal::invalid(chain(&error)))?)
            };
            app.store
                .put_certificate(&Certificate {
                    serial: issued.serial,
                    ca,
                    subject: issued.subject,
                    owner: minion.to_string(),
                    job: Some(job),
                    tag: request.tag,
                    created: now,
                    not_after: issued.not_after.saturating_mul(1000),
                    pem: issued.certificate_pem.clone(),
                })
                .await?;
            app.metrics.signed.inc();
            Ok(SignReply {
                certificate_pem: issued.certificate_pem,
                ca_pem: issued.ca_pem,
            })
        })
        .await
    }

    type FetchStream = Pin<Box<dyn Stream<Item = Result<FetchReply, Status>> + Send>>;

    async fn fetch(
        &self,
        request: Request<FetchRequest>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let request = request.into_inner();
        let what = format!(
            "job {} file {}",
            brief(&request.job),
            brief(&request.sha256)
        );
        let call = Call::new(&peer, "Minion/Fetch", what);
        self.share(&minion, Work::Fetch).await?;
        self.counted(call, async {
            let pieces = self
                .backend
                .fetch(&minion, &request.job.parse()?, &request.sha256)
                .await?;
            let replies = pieces.map(|piece| piece.map(|data| FetchReply { data }).map_err(status));
            Ok(Box::pin(replies) as Self::FetchStream)
        })
        .await
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let request = request.into_inner();
        let call = Call::new(&peer, "Minion/Renew", String::new());
        self.share(&minion, Work::Renew).await?;
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            let certificate_pem = keys::renew(&app, &minion, &request.csr_pem).await?;
            Ok(RenewReply { certificate_pem })
        })
        .await
    }

    async fn take_turn(
        &self,
        request: Request<TurnRequest>,
    ) -> Result<Response<TurnReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let request = request.into_inner();
        let unit = brief(&request.unit);
        let what = format!("job {} unit {unit}", brief(&request.job));
        let call = Call::new(&peer, "Minion/TakeTurn", what);
        self.share(&minion, Work::Turn).await?;
        self.counted(call, async {
            let job = request.job.parse()?;
            let (state, because) = match self.backend.take_turn(&minion, &job, &unit).await? {
                TurnAnswer::Taken => (State::Taken, String::new()),
                TurnAnswer::Waits(because) => (State::Waits, because),
                TurnAnswer::Refused(because) => (State::Refused, because),
            };
            Ok(TurnReply {
                state: state.into(),
                because,
            })
        })
        .await
    }
}

impl Services {
    /// The addresses of this master and of the other declared ones.
    async fn masters(&self) -> Vec<String> {
        match other_masters::all(&self.app, self.backend.as_ref()).await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "cannot read the declared masters");
                self.app.config.endpoints()
            }
        }
    }

    async fn share(&self, minion: &MinionId, work: Work) -> Result<(), Status> {
        self.shares.wait(minion, work).await.map_err(status)
    }

    async fn store_facts(
        &self,
        minion: &MinionId,
        grains_json: &str,
        version: &str,
    ) -> Result<(), Refusal> {
        if grains_json.len() > GRAINS_MAX {
            return Err(Refusal::invalid(format!(
                "cannot store the grains: they have more than {GRAINS_MAX} bytes"
            )));
        }
        keys::parse_grains(grains_json)?;
        self.shares.wait(minion, Work::Grains).await?;
        let facts = Facts {
            minion: minion.clone(),
            grains_json: grains_json.to_owned(),
            version: brief(version),
            last_seen: self.app.clock.now(),
        };
        Ok(self.app.store.put_facts(&facts).await?)
    }

    /// Listens to a minion until either side ends the stream.
    async fn listen(
        self,
        minion: MinionId,
        hello: MinionHello,
        mut inbound: Streaming<MinionMessage>,
        connection: ConnectionGuard,
        mut ended: oneshot::Receiver<()>,
    ) {
        let version = hello.version.clone();
        tracing::info!(%minion, version, "minion connected");
        self.app.metrics.connected.inc();
        let connected = Box::pin(self.backend.on_connected(&minion, &hello)).await;
        if let Err(error) = connected {
            tracing::error!(%minion, %error, "cannot send the minion its pending messages");
        }
        loop {
            let message = tokio::select! {
                _ = &mut ended => break,
                message = inbound.message() => message,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%minion, %error, "the minion's stream broke");
                    break;
                }
            };
            if let Err(error) = self.on_message(&minion, &version, message).await {
                // The minion keeps returns that are not stored and resends them after the next
                // hello.
                tracing::error!(%minion, %error, "cannot process a message of the minion; its stream ends");
                self.app.connections.leave(&connection);
                break;
            }
        }
        let last = self.app.store.touch(&minion, self.app.clock.now()).await;
        if let Err(error) = last {
            tracing::error!(
                %minion,
                error = chain(&error),
                "cannot record when the minion was last seen"
            );
        }
        drop(connection);
        self.app.metrics.connected.dec();
        tracing::info!(%minion, "minion disconnected");
        self.backend.on_disconnected(&minion).await;
    }

    async fn on_message(
        &self,
        minion: &MinionId,
        version: &str,
        message: MinionMessage,
    ) -> Result<(), Refusal> {
        match &message.body {
            Some(minion_message::Body::Grains(grains)) => {
                self.store_facts(minion, &grains.grains_json, version)
                    .await?;
            }
            // The return contains the same later.
            Some(minion_message::Body::Progress(_))
                if !self.shares.try_take(minion, Work::Progress) =>
            {
                return Ok(());
            }
            _ => {}
        }
        // Boxed: otherwise each connected minion's task would have room for the largest answer.
        Box::pin(self.backend.on_message(minion, message)).await
    }
}

/// A caller's text, shortened and without control characters, for a log line.
fn brief(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}
