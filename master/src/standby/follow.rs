//! The daemon of a standby: it follows the first master that answers, for as long as the host is a
//! standby.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_errors::chain;
use halite_proto::tonic::Status;
use halite_proto::transport::{Channel, ClientIdentity, ConnectError, connect};
use halite_proto::v1::standby_client::StandbyClient;
use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{StandbyMessage, standby_message};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::disk::CopyError;
use super::receiver::Receiver;
use super::report::Diary;
use super::{directory, mark, masters};
use crate::clock::Clock;
use crate::config::Config;
use crate::store::{StoreError, noted_epoch};

/// The pause after all masters were asked.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest record: a file beside the store.
const LARGEST: usize = 40 << 20;

/// A standby that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// The copy.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The record of the epoch beside an older store of this host.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file with the addresses of the masters.
    #[error("cannot read {}", path.display())]
    Masters {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The reason why a stream has ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The identity of this host's minion.
    #[error("cannot read {}: has the minion of this host enrolled?", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The master ended the stream.
    #[error("the master ended the stream: {}", .0.message())]
    Call(Box<Status>),
    /// The master refuses this host.
    #[error("the master refuses this standby: {0}")]
    Refused(String),
    /// What came cannot be kept.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl From<Status> for SessionError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// The identity of this host's minion, and the CA of masters.
///
/// # Errors
/// A file cannot be read.
pub fn identity(minion: &Path) -> Result<(ClientIdentity, String), SessionError> {
    let read = |name: &str| {
        let path = minion.join(name);
        std::fs::read_to_string(&path).map_err(|source| SessionError::Identity { path, source })
    };
    let identity = ClientIdentity {
        certificate_pem: read("identity.crt")?,
        key_pem: read("identity.key")?,
    };
    Ok((identity, read("ca.crt")?))
}

/// Follows masters until the file that makes this host a standby is gone, or a master has handed over
/// to this host, which takes over with its next start. `minion` is the directory
/// of the identity of this host's minion.
///
/// # Errors
/// The copy on this host cannot be used.
pub async fn run(config: &Config, minion: &Path, clock: &dyn Clock) -> Result<(), StandbyError> {
    let heard = noted_epoch(&config.state_dir.join("store.db"))?;
    let mut receiver = Receiver::open(&directory(config), heard)?;
    let diary = Diary::open(config, clock)?;
    tracing::info!(cluster = config.cluster, "this host is a standby");
    tokio::select! {
        ended = follow_all(config, &mut receiver, minion, &diary) => ended,
        () = diary.mark() => Ok(()),
    }
}

async fn follow_all(
    config: &Config,
    receiver: &mut Receiver,
    minion: &Path,
    diary: &Diary<'_>,
) -> Result<(), StandbyError> {
    loop {
        let mark = mark(config);
        let found = masters(&mark);
        let found = found.map_err(|source| StandbyError::Masters { path: mark, source })?;
        let Some(addresses) = found else {
            return Ok(());
        };
        for address in &addresses {
            let ended = follow(receiver, address, minion, diary).await;
            if receiver.is_ordered() {
                tracing::info!(master = address, "the master is handed over to this host");
                return Ok(());
            }
            let Err(reason) = ended else { continue };
            tracing::warn!(master = address, reason = chain(&reason), "not following");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows one master until the stream ends.
async fn follow(
    receiver: &mut Receiver,
    address: &str,
    minion: &Path,
    diary: &Diary<'_>,
) -> Result<(), SessionError> {
    let (own, ca) = identity(minion)?;
    let channel = connect(address, &ca, Some(&own)).await?;
    diary.answered()?;
    let mut began = false;
    let ended = session(receiver, channel, &ca, || {
        began = true;
        tracing::info!(master = address, "following");
        diary.following(address)
    })
    .await;
    if began {
        diary.ended()?;
    }
    ended
}

/// Takes what a master sends until the stream ends. Calls `following` when all of it is here for the
/// first time. `ca_pem` is the CA of masters.
///
/// # Errors
/// The reason of the end, unless the master ended the stream without one.
pub async fn session(
    receiver: &mut Receiver,
    channel: Channel,
    ca_pem: &str,
    following: impl FnOnce() -> Result<(), CopyError>,
) -> Result<(), SessionError> {
    receiver.begin(ca_pem)?;
    let (sender, messages) = mpsc::channel(8);
    let say = async |body: standby_message::Body| {
        let message = StandbyMessage { body: Some(body) };
        // When the stream is gone, its other direction says why.
        let _ = sender.send(message).await;
    };
    say(standby_message::Body::Hello(receiver.hello())).await;
    let mut client = StandbyClient::new(channel).max_decoding_message_size(LARGEST);
    let stream = client.follow(ReceiverStream::new(messages)).await?;
    let mut records = stream.into_inner();
    let mut following = Some(following);
    while let Some(record) = records.message().await? {
        if let Some(Body::Start(start)) = &record.body
            && !start.refused.is_empty()
        {
            return Err(SessionError::Refused(start.refused.clone()));
        }
        if let Some(number) = receiver.take(record).await? {
            say(standby_message::Body::Stored(number)).await;
            if let Some(following) = following.take() {
                following()?;
            }
            if receiver.is_ordered() {
                return Ok(());
            }
        }
    }
    Ok(())
}
