//! The master's side of one standby: a base if its copy cannot be continued, then the log of each
//! commit and the files that change.
//!
//! It works in rounds: it sends the news, and waits until the standby has them on disk. Commits
//! that wait at the same time share a round. A round that takes too long ends the stream, and the
//! master continues without this standby.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use halite_core::config::Config;
use halite_core::roster::budget::{Budget, Overspent};
use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{
    Epoch, FollowStart, LogPiece, LogPosition, StandbyFile, StandbyHello, StandbyRecord, TakeOver,
};
use halite_store::log::{Follower, Log};
use halite_store::wal::{End, Position, WalError};
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::beside::{Beside, BesideError};
use super::disk::CopyError;

/// The size of a piece of the log or the base, well below the limit of a message.
const PIECE: usize = 1 << 20;
/// The size that the log may reach while a base is copied.
const LARGEST_LOG: u64 = 1 << 30;
/// The feeds' threads that wait for a file system: each stream that ends because the file system
/// hangs leaves a thread behind, so their number is limited.
static READERS: Semaphore = Semaphore::const_new(8);

/// The timeouts and intervals of a feed.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The timeout of a round's acknowledgement, of space in the stream, and of the master's own
    /// files.
    pub round: Duration,
    /// The timeout of a base's acknowledgement.
    pub base: Duration,
    /// The interval between two inspections of all files beside the store.
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
    /// The store's log cannot be read.
    #[error(transparent)]
    Log(#[from] WalError),
    /// A file beside the store cannot be sent.
    #[error(transparent)]
    File(#[from] BesideError),
    /// The store's file cannot be read.
    #[error("cannot read {}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The stream has ended.
    #[error("the standby ended the stream")]
    Gone,
    /// The standby exceeded a timeout.
    #[error("the standby did not store the changes within {} s", .0.as_secs())]
    Slow(Duration),
    /// The standby is repeatedly slow.
    #[error(transparent)]
    Overspent(#[from] Overspent),
    /// The files of the master cannot be read in time.
    #[error(
        "cannot read the store and the documents on the master's host within {} s: their file system does not answer; see the \
         mounts below /etc/halite and /var/lib/halite there", .0.as_secs()
    )]
    Hung(Duration),
    /// The decision of the hand-over failed.
    #[error("cannot hand the master over")]
    HandOver(#[source] CopyError),
    /// The log started again without this standby.
    #[error("the standby missed a part of the log and needs a new base")]
    Missed,
}

/// Both directions of a stream.
pub struct Line {
    /// Records for the standby.
    pub records: mpsc::Sender<StandbyRecord>,
    /// The number of the last record that the standby has on disk. It ends with the stream.
    pub stored: watch::Receiver<u64>,
}

/// Converts a copy's position in the log from the wire format.
#[must_use]
pub fn position(wire: &LogPosition) -> Option<Position> {
    Some(Position {
        salt: wire.salt.as_slice().try_into().ok()?,
        frames: u32::try_from(wire.frames).ok()?,
        checksum: wire.checksum.as_slice().try_into().ok()?,
    })
}

/// Converts a copy's position in the log to the wire format.
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
    /// Locked by the thread that reads the files, which may hang with their file system.
    beside: Arc<Mutex<Beside>>,
    /// The time for which the standby may delay commits.
    budget: Arc<Mutex<Budget>>,
    line: Line,
    times: Times,
    /// The number of the last record that was sent.
    number: u64,
    /// The end of the standby's copy; `None` before its first frame.
    at: Option<Position>,
    /// The number of bytes that were sent but are not known to be stored.
    lag: Arc<AtomicU64>,
    /// The time of the last inspection of all files.
    inspected: Instant,
}

impl Feed {
    /// Creates a feed of a master's data.
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
            beside: Arc::new(Mutex::new(Beside::new(config))),
            budget: Arc::default(),
            line,
            times,
            number: 0,
            at: None,
            lag,
            inspected: Instant::now(),
        }
    }

    /// Uses the existing budget of the standby, from which its previous streams have also spent.
    #[must_use]
    pub fn with_budget(self, budget: Arc<Mutex<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// The files, which a test can lock to simulate a hanging file system.
    #[cfg(test)]
    pub(super) fn beside(&self) -> Arc<Mutex<Beside>> {
        Arc::clone(&self.beside)
    }

    /// Feeds the standby until it is gone or too slow; returns the reason. Calls `following` once
    /// each commit waits for this standby.
    ///
    /// # Errors
    /// Always, because it has no other end.
    pub async fn run(
        mut self,
        epoch: &Epoch,
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
                    self.spending_round(false).await?;
                    follower.done(round);
                }
                () = sleep_until(due) => self.spending_round(true).await?,
                ended = self.line.stored.changed() => ended.map_err(|_| FeedError::Gone)?,
            }
        }
    }

    /// Feeds the standby until it has everything, then hands the master over to it. `decide`
    /// durably records that this host does not serve again.
    ///
    /// # Errors
    /// The standby is gone or too slow, or the decision cannot be recorded: then nothing is handed
    /// over.
    pub async fn hand_over(
        mut self,
        epoch: &Epoch,
        hello: &StandbyHello,
        decide: impl FnOnce() -> Result<TakeOver, CopyError>,
    ) -> Result<(), FeedError> {
        let (follower, _still) = self.catch_up(epoch, hello).await?;
        // No commit waits for the standby: nothing that this host writes now answers a caller.
        drop(follower);
        let order = decide().map_err(FeedError::HandOver)?;
        self.send(false, Some(Body::TakeOver(order))).await?;
        self.end_round(self.times.base).await
    }

    /// Sends everything, and waits until the standby has it. From then on each commit waits for the
    /// standby; while the guard is held, the store's file does not change.
    async fn catch_up(
        &mut self,
        epoch: &Epoch,
        hello: &StandbyHello,
    ) -> Result<(Follower, OwnedMutexGuard<()>), FeedError> {
        // The store's file does not change until the standby follows.
        let held = self.log.hold().await;
        let own = hello.position.as_ref().and_then(position);
        let log = Arc::clone(&self.log);
        let known = self.blocking(move || {
            Ok(match (own, log.end()?) {
                (Some(own), Some(end)) => log.known(&own, &end)?.map(|_| own),
                _ => None,
            })
        });
        let known = known.await?;
        self.at = known;
        let start = FollowStart {
            protocol: halite_proto::PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: epoch.number,
            base: known.is_none(),
            refused: String::new(),
            evidence: Some(epoch.clone()),
        };
        self.send(false, Some(Body::Start(start))).await?;
        if known.is_none() {
            self.send_base().await?;
        }
        // Even without news: the standby learns which files are gone, and that it has everything.
        self.send_news(true).await?;
        self.end_round(self.times.base).await?;
        let follower = self.log.join();
        // Commits in between did not ask for a round.
        self.round(false, self.times.round).await?;
        Ok((follower, held))
    }

    /// Sends the store's file.
    async fn send_base(&mut self) -> Result<(), FeedError> {
        let mut offset = 0;
        let slow = self.times.base;
        loop {
            let log = Arc::clone(&self.log);
            let piece = self.blocking(move || {
                if let Some(end) = log.end()? {
                    let size = u64::from(end.position.frames) * end.page as u64;
                    if size > LARGEST_LOG {
                        return Err(FeedError::Slow(slow));
                    }
                }
                read_piece(log.store(), offset)
            });
            let piece = piece.await?;
            if piece.is_empty() {
                return Ok(());
            }
            offset += piece.len() as u64;
            self.send(false, Some(Body::Base(piece))).await?;
        }
    }

    /// Sends the news, and waits until the standby has them.
    async fn round(&mut self, all_files: bool, limit: Duration) -> Result<(), FeedError> {
        let before = self.number;
        self.send_news(all_files).await?;
        if self.number == before {
            return Ok(());
        }
        self.end_round(limit).await
    }

    /// Runs a round for which commits wait, at the cost of the standby's budget.
    async fn spending_round(&mut self, all_files: bool) -> Result<(), FeedError> {
        let began = Instant::now();
        let done = self.round(all_files, self.times.round).await;
        // A hang of the master's own file system does not cost the standby.
        if !matches!(done, Err(FeedError::Hung(_))) {
            let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            budget.spend(began, now);
            done.and_then(|()| Ok(budget.check(now)?))
        } else {
            done
        }
    }

    async fn send_news(&mut self, all_files: bool) -> Result<(), FeedError> {
        // Files first: a revocation must be in its file before it is in the store, and a document
        // before the commit that depends on it.
        let news = self.news(all_files).await?;
        for file in news.files {
            self.send(false, Some(Body::File(file))).await?;
        }
        if let Some(end) = news.end {
            let mut behind = news.known.ok_or(FeedError::Missed)?;
            loop {
                let log = Arc::clone(&self.log);
                let piece = self.blocking(move || Ok(log.piece(behind, &end, PIECE)?));
                let piece = piece.await?;
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

    /// The end of the log and the changed files. Inspects all files when it is time for that:
    /// commits may leave no pause for a separate round.
    async fn news(&mut self, all_files: bool) -> Result<News, FeedError> {
        let all = all_files || self.inspected.elapsed() >= self.times.files;
        if all {
            self.inspected = Instant::now();
        }
        let (log, beside, at) = (Arc::clone(&self.log), Arc::clone(&self.beside), self.at);
        let news = self.blocking(move || {
            // Read the end of the log before the files, so that the files of each commit in it are
            // included.
            let end = log.end()?;
            let mut beside = beside.lock().unwrap_or_else(PoisonError::into_inner);
            let files = if all {
                beside.changes()?
            } else {
                beside.before_commit()?
            };
            let known = match (&at, &end) {
                (Some(at), Some(end)) => log.known(at, end)?,
                _ => Some(0),
            };
            Ok(News { end, files, known })
        });
        news.await
    }

    /// Runs work on files where it delays no stream, with the timeout of a round.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, FeedError> + Send + 'static,
    ) -> Result<T, FeedError> {
        let limit = self.times.round;
        let done = async {
            let reader = READERS.acquire().await.map_err(|_| FeedError::Gone)?;
            let work = move || {
                // The thread may hang for longer than this feed waits.
                let _reader = reader;
                work()
            };
            // The task was cancelled: the master is stopping.
            let done = tokio::task::spawn_blocking(work).await;
            done.unwrap_or(Err(FeedError::Gone))
        };
        timeout(limit, done)
            .await
            .unwrap_or(Err(FeedError::Hung(limit)))
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

/// The changes of the master that are sent next.
struct News {
    end: Option<End>,
    files: Vec<StandbyFile>,
    /// The number of the log's frames that the standby has; `None` if its copy cannot be continued.
    known: Option<u32>,
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
