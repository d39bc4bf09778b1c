//! The master's side of one standby: a base if its copy cannot be continued, then the log of each
//! commit and the files that change.
//!
//! It goes in rounds: send what is new, and wait until the standby has it on its disk. Commits that
//! wait together share a round. A round that takes too long ends the stream, and the master goes on
//! without this standby.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{
    FollowStart, LogPiece, LogPosition, StandbyFile, StandbyHello, StandbyRecord, TakeOver,
};
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::beside::{Beside, BesideError};
use super::disk::CopyError;
use crate::config::Config;
use crate::store::log::{Follower, Log};
use crate::store::wal::{Position, WalError};

/// Bytes of one piece of the log or the base, well below the limit of a message.
const PIECE: usize = 1 << 20;
/// The size that the log may reach while a base is copied.
const LARGEST_LOG: u64 = 1 << 30;

/// The times that a feed waits.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For the acknowledgement of a round, and for room in the stream.
    pub round: Duration,
    /// For that of a base.
    pub base: Duration,
    /// Between two inspections of all files beside the store.
    pub files: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            round: Duration::from_secs(5),
            base: Duration::from_secs(120),
            files: Duration::from_secs(2),
        }
    }
}

/// The reason why a feed has ended.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The store's log.
    #[error(transparent)]
    Log(#[from] WalError),
    /// A file beside the store.
    #[error(transparent)]
    File(#[from] BesideError),
    /// The store's file.
    #[error("cannot read {}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The stream has ended.
    #[error("the standby has ended the stream")]
    Gone,
    /// The standby takes too long.
    #[error("the standby did not store it within {} s", .0.as_secs())]
    Slow(Duration),
    /// The hand-over cannot be decided.
    #[error("cannot hand the master over")]
    HandOver(#[source] CopyError),
    /// The log has begun again without this standby.
    #[error("the standby has missed a part of the log and takes a base")]
    Missed,
}

/// Both directions of a stream.
pub struct Line {
    /// Records for the standby.
    pub records: mpsc::Sender<StandbyRecord>,
    /// The last record that the standby has on its disk. It ends with the stream.
    pub stored: watch::Receiver<u64>,
}

/// The place of a copy in the log, from the wire.
#[must_use]
pub fn position(wire: &LogPosition) -> Option<Position> {
    Some(Position {
        salt: wire.salt.as_slice().try_into().ok()?,
        frames: u32::try_from(wire.frames).ok()?,
        checksum: wire.checksum.as_slice().try_into().ok()?,
    })
}

/// The place of a copy in the log, for the wire.
#[must_use]
pub fn wire(position: &Position) -> LogPosition {
    LogPosition {
        salt: position.salt.to_vec(),
        frames: position.frames.into(),
        checksum: position.checksum.to_vec(),
    }
}

/// The feed of one standby.
pub struct Feed {
    log: Arc<Log>,
    beside: Beside,
    line: Line,
    times: Times,
    /// The last record that was sent.
    number: u64,
    /// The end of the standby's copy; none before its first frame.
    at: Option<Position>,
    /// Bytes that were sent and are not known to be stored.
    lag: Arc<AtomicU64>,
    /// The time of the last inspection of all files.
    inspected: Instant,
}

impl Feed {
    /// A feed of what a master has.
    #[must_use]
    pub fn new(
        log: Arc<Log>,
        config: Config,
        line: Line,
        times: Times,
        lag: Arc<AtomicU64>,
    ) -> Self {
        Self {
            log,
            beside: Beside::new(config),
            line,
            times,
            number: 0,
            at: None,
            lag,
            inspected: Instant::now(),
        }
    }

    /// Feeds the standby until it is gone or too slow; answers with the reason. It calls `following`
    /// when each commit waits for this standby.
    ///
    /// # Errors
    /// Always: it has no other end.
    pub async fn run(
        mut self,
        epoch: u64,
        hello: &StandbyHello,
        following: impl FnOnce(),
    ) -> Result<Infallible, FeedError> {
        let (mut follower, held) = self.catch_up(epoch, hello).await?;
        drop(held);
        following();
        loop {
            let due = self.inspected + self.times.files;
            tokio::select! {
                biased;
                round = follower.asked() => {
                    self.round(false, self.times.round).await?;
                    follower.done(round);
                }
                () = sleep_until(due) => self.round(true, self.times.round).await?,
                ended = self.line.stored.changed() => ended.map_err(|_| FeedError::Gone)?,
            }
        }
    }

    /// Feeds the standby until it has everything, then gives it the master. `decide` notes durably that
    /// this host does not serve again.
    ///
    /// # Errors
    /// The standby is gone or too slow, or the decision cannot be noted: then the standby is given
    /// nothing.
    pub async fn hand_over(
        mut self,
        epoch: u64,
        hello: &StandbyHello,
        decide: impl FnOnce() -> Result<TakeOver, CopyError>,
    ) -> Result<(), FeedError> {
        let (follower, _still) = self.catch_up(epoch, hello).await?;
        // No commit waits for it: nothing that this host writes now is an answer to a caller.
        drop(follower);
        let order = decide().map_err(FeedError::HandOver)?;
        self.send(false, Some(Body::TakeOver(order))).await?;
        self.end_round(self.times.base).await
    }

    /// Sends everything, and waits until the standby has it. From then on each commit waits for it;
    /// while the guard is held the store's file stays as it is.
    async fn catch_up(
        &mut self,
        epoch: u64,
        hello: &StandbyHello,
    ) -> Result<(Follower, OwnedMutexGuard<()>), FeedError> {
        // The file of the store stays as it is until the standby follows.
        let held = self.log.hold().await;
        let own = hello.position.as_ref().and_then(position);
        let known = match (own, self.log.end()?) {
            (Some(own), Some(end)) => self.log.known(&own, &end)?.map(|_| own),
            _ => None,
        };
        self.at = known;
        let start = FollowStart {
            protocol: halite_proto::PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch,
            base: known.is_none(),
            refused: String::new(),
        };
        self.send(false, Some(Body::Start(start))).await?;
        if known.is_none() {
            self.send_base().await?;
        }
        // Also without news: the standby learns which files are gone, and that it has all.
        self.send_news(true).await?;
        self.end_round(self.times.base).await?;
        let follower = self.log.join();
        // What was committed in between asked no one.
        self.round(false, self.times.round).await?;
        Ok((follower, held))
    }

    /// Sends the store's file.
    async fn send_base(&mut self) -> Result<(), FeedError> {
        let path = self.log.store().to_owned();
        let mut offset = 0;
        loop {
            if let Some(end) = self.log.end()? {
                let size = u64::from(end.position.frames) * end.page as u64;
                if size > LARGEST_LOG {
                    return Err(FeedError::Slow(self.times.base));
                }
            }
            let from = path.clone();
            let piece = blocking(move || read_piece(&from, offset)).await?;
            if piece.is_empty() {
                return Ok(());
            }
            offset += piece.len() as u64;
            self.send(false, Some(Body::Base(piece))).await?;
        }
    }

    /// Sends what is new, and waits until the standby has it.
    async fn round(&mut self, all_files: bool, limit: Duration) -> Result<(), FeedError> {
        let before = self.number;
        self.send_news(all_files).await?;
        if self.number == before {
            return Ok(());
        }
        self.end_round(limit).await
    }

    async fn send_news(&mut self, all_files: bool) -> Result<(), FeedError> {
        // Files first: a revocation is in its file before it is in the store, and a document before the
        // commit that answers for it. The end of the log is read before them, so that each commit in it
        // has its files.
        let end = self.log.end()?;
        for file in self.changed_files(all_files).await? {
            self.send(false, Some(Body::File(file))).await?;
        }
        if let Some(end) = end {
            let mut behind = match &self.at {
                None => 0,
                Some(at) => self.log.known(at, &end)?.ok_or(FeedError::Missed)?,
            };
            loop {
                let log = Arc::clone(&self.log);
                let piece = blocking(move || Ok(log.piece(behind, &end, PIECE)?)).await?;
                let Some(piece) = piece else { break };
                behind = piece.frames;
                let piece = LogPiece {
                    salt: end.position.salt.to_vec(),
                    offset: piece.offset,
                    data: piece.data,
                };
                self.send(false, Some(Body::Log(piece))).await?;
            }
            self.at = Some(end.position);
        }
        Ok(())
    }

    async fn end_round(&mut self, limit: Duration) -> Result<(), FeedError> {
        self.send(true, None).await?;
        let number = self.number;
        let stored = timeout(limit, self.line.stored.wait_for(|stored| *stored >= number)).await;
        stored
            .map_err(|_| FeedError::Slow(limit))?
            .map_err(|_| FeedError::Gone)?;
        self.lag.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The files that have changed; of all of them also when it is time for that: commits may leave no
    /// pause for a round of their own.
    async fn changed_files(&mut self, all: bool) -> Result<Vec<StandbyFile>, FeedError> {
        if all || self.inspected.elapsed() >= self.times.files {
            self.inspected = Instant::now();
            Ok(self.beside.changes()?)
        } else {
            Ok(self.beside.before_commit()?)
        }
    }

    async fn send(&mut self, sync: bool, body: Option<Body>) -> Result<(), FeedError> {
        self.number += 1;
        let bytes = match &body {
            Some(Body::Base(data)) => data.len() as u64,
            Some(Body::Log(piece)) => piece.data.len() as u64,
            Some(Body::File(file)) => file.data.len() as u64,
            _ => 0,
        };
        self.lag.fetch_add(bytes, Ordering::Relaxed);
        let record = StandbyRecord {
            number: self.number,
            sync,
            body,
        };
        let sent = timeout(self.times.round, self.line.records.send(record)).await;
        sent.map_err(|_| FeedError::Slow(self.times.round))?
            .map_err(|_| FeedError::Gone)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FeedError> + Send + 'static,
) -> Result<T, FeedError> {
    // A task that was cancelled: the master is stopping.
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(FeedError::Gone))
}

fn read_piece(path: &Path, offset: u64) -> Result<Vec<u8>, FeedError> {
    let cannot = |source: io::Error| FeedError::Store {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(cannot)?;
    let left = file
        .metadata()
        .map_err(cannot)?
        .len()
        .saturating_sub(offset);
    let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
    file.read_exact_at(&mut piece, offset).map_err(cannot)?;
    Ok(piece)
}
