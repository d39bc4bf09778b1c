//! The daemon of a standby, which follows the first master that answers for as long as the host is
//! a standby.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use halite_core::config::Config;
use halite_errors::chain;
use halite_proto::backoff::Backoff;
use halite_proto::transport::{Channel, connect};
use halite_proto::v1::standby_client::StandbyClient;
use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{Epoch, StandbyMessage, standby_message};
use halite_secret_file::SecretFile;
use halite_store::{StoreError, noted_epoch};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::disk::CopyError;
use super::knowledge::Knowledge;
use super::receiver::Receiver;
use super::report::Diary;
use super::session::{SessionError, identity};
use super::{directory, mark, masters};

/// The duration after which a stream counts as having worked.
const STABLE: Duration = Duration::from_secs(5);
/// The pauses after a round through all masters.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));
/// Size limit of a record, that is, of a file beside the store.
const LARGEST: usize = 40 << 20;

/// An error that stops a standby.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// The copy cannot be used.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The record of the epoch beside an older store of this host cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file with the addresses of the masters cannot be read.
    #[error("cannot read {}", path.display())]
    Masters {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Opens the data of this host as a standby.
///
/// # Errors
/// The data cannot be used.
pub fn open(config: &Config) -> Result<Receiver, StandbyError> {
    let heard = noted_epoch(&config.state_dir.join("store.db"))?;
    let receiver = Receiver::open(&directory(config), heard)?;
    Ok(receiver.with_secrets(own_recipient(config)))
}

/// The recipient of this host, whose identity is made at the first start as a standby. Without one,
/// the standby still has everything else.
fn own_recipient(config: &Config) -> String {
    let file = SecretFile::new(&config.config_dir, &config.state_dir);
    match file.own_recipient() {
        Ok(recipient) => recipient.to_string(),
        Err(error) => {
            let error = chain(&error);
            tracing::error!(error, "this standby cannot decrypt secrets");
            String::new()
        }
    }
}

/// Follows masters until the file that makes this host a standby is removed, or a master has handed
/// over to this host, which takes over with its next start.
///
/// # Errors
/// The copy on this host cannot be used.
pub async fn run(mut receiver: Receiver, knowledge: &Knowledge) -> Result<(), StandbyError> {
    let config = knowledge.config();
    let diary = Diary::open(config, knowledge.clock())?;
    tracing::info!(cluster = config.cluster, "this host is a standby");
    tokio::select! {
        ended = follow_all(&mut receiver, knowledge, &diary) => ended,
        () = diary.mark() => Ok(()),
    }
}

async fn follow_all(
    receiver: &mut Receiver,
    knowledge: &Knowledge,
    diary: &Diary<'_>,
) -> Result<(), StandbyError> {
    let config = knowledge.config();
    // Each master is tried every second: log an unchanged reason only once.
    let mut logged: BTreeMap<String, String> = BTreeMap::new();
    let mut pauses = PAUSES;
    loop {
        let mark = mark(config);
        let found = masters(&mark);
        let found = found.map_err(|source| StandbyError::Masters { path: mark, source })?;
        let Some(addresses) = found else {
            return Ok(());
        };
        for address in &addresses {
            receiver.hear(knowledge.epoch());
            let began = Instant::now();
            let ended = follow(receiver, address, knowledge, diary).await;
            if began.elapsed() >= STABLE {
                pauses.reset();
            }
            if receiver.is_ordered() {
                tracing::info!(master = address, "the master is handed over to this host");
                return Ok(());
            }
            let Err(error) = ended else {
                logged.remove(address);
                continue;
            };
            let reason = chain(&error);
            if logged.get(address) != Some(&reason) {
                tracing::warn!(master = address, reason, "not following");
                logged.insert(address.clone(), reason);
            }
        }
        pauses.wait().await;
    }
}

/// Follows one master until the stream ends.
async fn follow(
    receiver: &mut Receiver,
    address: &str,
    knowledge: &Knowledge,
    diary: &Diary<'_>,
) -> Result<(), SessionError> {
    let (own, ca) = identity(knowledge.minion())?;
    let channel = connect(address, &ca, Some(&own)).await?;
    diary.answered()?;
    let mut began = false;
    let following = |epoch: &Epoch| {
        began = true;
        knowledge.follows(epoch);
        tracing::info!(master = address, "following");
        diary.following(address)
    };
    let replaced = |epoch: Epoch| knowledge.is_above(epoch);
    let ended = session_until(receiver, channel, &ca, following, replaced).await;
    if began {
        diary.ended()?;
    }
    ended
}

/// Receives a master's records until the stream ends. Calls `following` when all of its data have
/// arrived for the first time. `ca_pem` is the CA of masters.
///
/// # Errors
/// The reason of the end, unless the master ended the stream without one.
pub async fn session(
    receiver: &mut Receiver,
    channel: Channel,
    ca_pem: &str,
    following: impl FnOnce() -> Result<(), CopyError>,
) -> Result<(), SessionError> {
    let replaced = |_: Epoch| std::future::pending();
    session_until(receiver, channel, ca_pem, |_| following(), replaced).await
}

/// Like [`session`], but also ends when `replaced` reports that another master has a higher epoch
/// than the followed one. It is polled between two records, never while one is written.
async fn session_until<F: Future<Output = ()>>(
    receiver: &mut Receiver,
    channel: Channel,
    ca_pem: &str,
    following: impl FnOnce(&Epoch) -> Result<(), CopyError>,
    replaced: impl Fn(Epoch) -> F,
) -> Result<(), SessionError> {
    receiver.begin(ca_pem)?;
    let (sender, messages) = mpsc::channel(8);
    let say = async |body: standby_message::Body| {
        let message = StandbyMessage { body: Some(body) };
        // If the stream is gone, its other direction has the reason.
        let _ = sender.send(message).await;
    };
    say(standby_message::Body::Hello(receiver.hello())).await;
    let mut client = StandbyClient::new(channel).max_decoding_message_size(LARGEST);
    let stream = client.follow(ReceiverStream::new(messages)).await?;
    let mut records = stream.into_inner();
    let mut following = Some(following);
    loop {
        let record = tokio::select! {
            record = records.message() => record?,
            () = replaced(receiver.epoch().clone()) => return Err(SessionError::Replaced),
        };
        let Some(record) = record else { return Ok(()) };
        if let Some(Body::Start(start)) = &record.body
            && !start.refused.is_empty()
        {
            return Err(SessionError::Refused(start.refused.clone()));
        }
        if let Some(number) = receiver.take(record).await? {
            say(standby_message::Body::Stored(number)).await;
            if let Some(following) = following.take() {
                following(receiver.epoch())?;
            }
            if receiver.is_ordered() {
                return Ok(());
            }
        }
    }
}
