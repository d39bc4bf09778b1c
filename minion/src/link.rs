//! The link: one stream to one master at a time, dialled by us, dialled again for ever.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::transport::{Channel, connect};
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::minion_message::Body;
use halite_proto::v1::{MinionHello, MinionMessage, RenewRequest, master_message};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::config::Config;
use crate::host::linux::files;
use crate::identity::{Identity, IdentityError};
use crate::jobs::Jobs;

/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// A session that held for so long was a good one: the next attempt comes at once.
const GOOD: Duration = Duration::from_secs(30);
/// The master says hello within this time.
const HELLO: Duration = Duration::from_secs(15);
/// Time between two looks at the age of our certificate.
const RENEWAL: Duration = Duration::from_secs(6 * 3600);
/// Time between two looks at what scheduled work has left for `ctl status`.
const LOOK: Duration = Duration::from_secs(30);
/// Messages that may wait for the network; more of them wait inside.
const QUEUE: usize = 64;
/// Largest message: a low state holds file contents.
const LARGEST: usize = 64 << 20;

/// Keeps the link until `going` becomes true. `channel` holds the connection while there is one.
pub async fn keep(
    config: Config,
    jobs: Arc<Jobs>,
    mut inbox: mpsc::UnboundedReceiver<Body>,
    channel: watch::Sender<Option<Channel>>,
    mut going: watch::Receiver<bool>,
) {
    let mut masters = config.masters.clone();
    let mut pause = PAUSE.0;
    let mut next = 0;
    let mut told = String::new();
    loop {
        let Some(master) = masters.get(next % masters.len().max(1)).cloned() else {
            return;
        };
        let began = tokio::time::Instant::now();
        let mut session = Session {
            config: &config,
            jobs: &jobs,
            inbox: &mut inbox,
            channel: &channel,
        };
        let end = tokio::select! {
            end = session.run(&master, &mut masters) => end,
            _ = going.wait_for(|g| *g) => break,
        };
        channel.send_replace(None);
        // The same reason again and again is one line in the log.
        let reason = end.to_string();
        if reason == told {
            tracing::debug!(master, reason, "no link");
        } else {
            tracing::warn!(master, reason, "no link; trying again");
            told = reason;
        }
        pause = if began.elapsed() > GOOD {
            PAUSE.0
        } else {
            (pause * 2).min(PAUSE.1)
        };
        next += 1;
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => {}
            _ = going.wait_for(|g| *g) => break,
        }
    }
    channel.send_replace(None);
}

/// Between a half and the whole of `pause`, so that many minions do not come back in one moment.
fn jittered(pause: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    #[allow(clippy::cast_precision_loss, reason = "a share of a pause")]
    let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(0.5 + share / 2.0)
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0}")]
    Connect(#[from] halite_proto::transport::ConnectError),
    #[error("{0}")]
    Call(String),
    #[error("the master refused: {0}")]
    Refused(String),
    #[error("the master ended the stream")]
    Closed,
}

impl From<halite_proto::tonic::Status> for End {
    fn from(status: halite_proto::tonic::Status) -> Self {
        Self::Call(status.message().to_owned())
    }
}

struct Session<'a> {
    config: &'a Config,
    jobs: &'a Arc<Jobs>,
    inbox: &'a mut mpsc::UnboundedReceiver<Body>,
    channel: &'a watch::Sender<Option<Channel>>,
}

impl Session<'_> {
    async fn run(&mut self, master: &str, masters: &mut Vec<String>) -> End {
        match self.talk(master, masters).await {
            Ok(()) => End::Closed,
            Err(end) => end,
        }
    }

    async fn talk(&mut self, master: &str, masters: &mut Vec<String>) -> Result<(), End> {
        let identity = Identity::load(self.config)?;
        let channel = connect(master, &identity.ca_pem, Some(&identity.client)).await?;
        let mut client = MinionClient::new(channel.clone()).max_decoding_message_size(LARGEST);
        let (sender, receiver) = mpsc::channel(QUEUE);
        let grains_json = self.jobs.grains().await.to_string();
        // What was said while there was no link is either journaled or not worth saying now.
        while self.inbox.try_recv().is_ok() {}
        let hello = MinionHello {
            protocol: halite_proto::PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            grains_json,
            running_jobs: self.jobs.running(),
        };
        let say = async |body: Body| {
            let message = MinionMessage { body: Some(body) };
            sender.send(message).await.map_err(|_| End::Closed)
        };
        say(Body::Hello(hello)).await?;
        let stream =
            tokio::time::timeout(HELLO, client.connect(ReceiverStream::new(receiver))).await;
        let mut stream = stream
            .map_err(|_| End::Call("no hello in time".to_owned()))??
            .into_inner();
        let first = tokio::time::timeout(HELLO, stream.message()).await;
        let first = first.map_err(|_| End::Call("no hello in time".to_owned()))??;
        let Some(master_message::Body::Hello(hello)) = first.and_then(|m| m.body) else {
            return Err(End::Call(
                "the master's first message is no hello".to_owned(),
            ));
        };
        if !hello.refused.is_empty() {
            return Err(End::Refused(hello.refused));
        }
        learn(masters, self.config, hello.masters);
        tracing::info!(
            master,
            version = hello.version,
            cluster = identity.cluster,
            "linked"
        );
        self.channel.send_replace(Some(channel.clone()));
        self.jobs.hand_in();
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                message = stream.message() => match message? {
                    Some(message) => self.hear(message.body),
                    None => return Ok(()),
                },
                Some(body) = self.inbox.recv() => say(body).await?,
                _ = renewal.tick() => renew(self.config, &channel).await,
                _ = look.tick() => {
                    // Messages do not wait for the tools that grains come from.
                    let jobs = Arc::clone(self.jobs);
                    tokio::spawn(async move { jobs.look().await });
                }
            }
        }
    }

    fn hear(&self, body: Option<master_message::Body>) {
        match body {
            Some(master_message::Body::Job(job)) => self.jobs.accept(job),
            Some(master_message::Body::Stored(stored)) => self.jobs.stored(&stored.job),
            Some(master_message::Body::Cancel(cancel)) => self.jobs.cancel(&cancel.job),
            Some(master_message::Body::Hello(_)) | None => {}
        }
    }
}

/// The configured masters, and after them those that the master named.
fn learn(masters: &mut Vec<String>, config: &Config, named: Vec<String>) {
    masters.clone_from(&config.masters);
    for master in named {
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
}

/// Has our certificate renewed when it is old. A failure is told and tried again at the next look.
async fn renew(config: &Config, channel: &Channel) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    match Identity::load(config) {
        Ok(identity) if identity.is_old(i64::try_from(now).unwrap_or(i64::MAX)) => {
            if let Err(error) = renewed(config, &identity, channel).await {
                tracing::warn!(
                    error,
                    "our certificate could not be renewed; trying again later"
                );
            } else {
                tracing::info!("our certificate was renewed");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "identity"),
    }
}

async fn renewed(config: &Config, identity: &Identity, channel: &Channel) -> Result<(), String> {
    let key = PrivateKey::from_pem(&identity.client.key_pem).map_err(|e| e.to_string())?;
    let csr_pem = key.request(&identity.id).map_err(|e| e.to_string())?;
    let reply = MinionClient::new(channel.clone())
        .renew(RenewRequest { csr_pem })
        .await;
    let pem = reply
        .map_err(|status| status.message().to_owned())?
        .into_inner()
        .certificate_pem;
    let found = Inspected::from_pem(&pem).map_err(|e| e.to_string())?;
    if found.fingerprint != key.fingerprint() {
        return Err("the new certificate is not for our key".to_owned());
    }
    files::write(
        &config.certificate(),
        pem.as_bytes(),
        files::Owner::default(),
    )
    .map_err(|e| e.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_stay_in_bounds() {
        let pauses: Vec<Duration> = (0..32).map(|_| jittered(Duration::from_secs(8))).collect();
        assert!(
            pauses
                .iter()
                .all(|p| (4.0..=8.0).contains(&p.as_secs_f64()))
        );
        assert!(pauses.iter().any(|p| p != &pauses[0]));
    }

    #[test]
    fn configured_masters_go_first() {
        let config = Config {
            masters: vec!["a:1".into()],
            ..Config::default()
        };
        let mut masters = vec!["old:1".into()];
        learn(&mut masters, &config, vec!["b:1".into(), "a:1".into()]);
        assert_eq!(masters, ["a:1", "b:1"]);
    }
}
