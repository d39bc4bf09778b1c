//! A trial of a backup: starts a separate etcd with its snapshot, and counts the keys.
//!
//! The etcd listens on sockets in a directory for root only, joins no cluster, and ends with this
//! process, however that ends. The next run removes the leftovers of a killed one.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use halite_backup::{CountedKeys, Header};
use halite_durable::disk_space::Room;
use halite_durable::{ScratchDir, files};
use halite_errors::chain;
use halite_etcd::{Client, EtcdError, Keys, Members as _};
use halite_manifest::bundles::DIRECTORY as BUNDLES;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::etcd_image;
use crate::etcd_image::Etcdutl;
use crate::output::megabytes;

/// The directory of Halite's own files, which holds the trial on hosts of a cluster: the directory
/// for temporary files may be in memory.
const STATE: &str = "/var/lib/halite";
/// The prefix of the directories of trials. The unit of the weekly run removes them, too.
const KIND: &str = "backup-trial-";
/// Time for etcd to answer; it reads its whole database first.
pub const ANSWER: Duration = Duration::from_secs(300);
/// Time for etcd to end.
const END: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that must stay free beside the snapshot and the database made from it.
const RESERVE: u64 = 512 << 20;
/// Runs a program until it ends or standard input is closed, which also happens when this process
/// is killed.
const UNTIL_CLOSED: &str =
    "exec 3<&0; \"$@\" </dev/null & p=$!; (read -r _ <&3; kill -9 $p) 2>/dev/null & wait $p";
/// The nominal address of the member. It does not listen there.
const PEER: &str = "http://localhost:2380";
const CLIENT: &str = "http://localhost:2379";
const NAME: &str = "trial";
/// Lines of etcd's log in an error.
const LINES: usize = 5;

/// A directory for a trial; dropping it removes the directory.
pub struct TrialDirectory {
    scratch: ScratchDir,
}

/// etcd's programs.
pub struct Programs {
    etcd: PathBuf,
    etcdutl: Etcdutl,
}

impl Programs {
    /// Unpacks the programs from the image in a bundle.
    fn unpack(bundle: &Path, to: &Path) -> anyhow::Result<Self> {
        let manifest = halite_manifest::manifest::load(bundle)?;
        let reference = manifest.images.get("etcd");
        let reference = reference.context("the bundle has no image of etcd")?;
        let (layout, etcd, etcdutl) = (bundle.join("images"), to.join("etcd"), to.join("etcdutl"));
        etcd_image::unpack(&layout, reference, "etcd", &etcd)?;
        etcd_image::unpack(&layout, reference, "etcdutl", &etcdutl)?;
        Ok(Self::new(etcd, &etcdutl))
    }

    fn new(etcd: PathBuf, etcdutl: &Path) -> Self {
        Self {
            etcd,
            etcdutl: Etcdutl::new(etcdutl),
        }
    }
}

/// The directory of the bundle whose etcd is started: the given one, or the backup's bundle on this
/// host.
fn bundle(given: Option<&Path>, header: &Header) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let version = header.bundle.as_deref();
    let own = version.map(|version| Path::new(BUNDLES).join(version));
    own.filter(|own| own.is_dir()).with_context(|| {
        format!(
            "cannot start an etcd with the snapshot: the backup's bundle {}, which has etcd's program, is not on this \
            host; name the directory of a bundle with --bundle",
            version.unwrap_or("(none)")
        )
    })
}

impl TrialDirectory {
    /// Creates a directory for a trial.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new() -> anyhow::Result<Self> {
        let state = Path::new(STATE);
        let parent = if state.is_dir() {
            state.to_owned()
        } else {
            std::env::temp_dir()
        };
        Ok(Self {
            scratch: ScratchDir::within(&parent, KIND)?,
        })
    }

    /// The path for the snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.scratch.path().join("snapshot.db")
    }

    /// A new file for the snapshot.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(&self) -> anyhow::Result<fs::File> {
        Ok(files::create(&self.snapshot(), 0o600)?)
    }

    /// Starts the etcd of a bundle with the snapshot, and counts its keys.
    ///
    /// # Errors
    /// The etcd does not start, or its number of keys differs from the member's.
    pub async fn run(&self, given: Option<&Path>, header: &Header) -> anyhow::Result<Keys> {
        let bundle = bundle(given, header)?;
        let programs = Programs::unpack(&bundle, self.scratch.path());
        let programs =
            programs.with_context(|| format!("cannot use the bundle {}", bundle.display()))?;
        self.run_with(&programs, header.etcd.keys).await
    }

    async fn run_with(
        &self,
        programs: &Programs,
        recorded: Option<CountedKeys>,
    ) -> anyhow::Result<Keys> {
        self.refuse_full()?;
        let data = self.scratch.path().join("data");
        let cluster = format!("{NAME}={PEER}");
        let member = [
            ["--name", NAME],
            ["--initial-cluster", &cluster],
            ["--initial-advertise-peer-urls", PEER],
        ];
        programs
            .etcdutl
            .restore(&self.snapshot(), &data, &member.concat())?;
        // The database has been made from it.
        files::remove_any(&self.snapshot())?;
        let mut running = Running::start(programs, self.scratch.path(), &data, &cluster)?;
        let counted = running
            .count(recorded.map_or(0, |keys| keys.revision))
            .await;
        let found = outcome(counted, running.end().await)?;
        match recorded {
            Some(recorded) if recorded.count != found.count => bail!(
                "the etcd that was started with the snapshot has {} keys at revision {}, and the original member had {}: \
                do not rely on this backup, and see `ctl etcd status`",
                found.count,
                found.revision,
                recorded.count
            ),
            _ => Ok(found),
        }
    }

    /// Refuses a file system on which the trial would leave too little space.
    fn refuse_full(&self) -> anyhow::Result<()> {
        let size = fs::metadata(self.snapshot())
            .context("there is no snapshot to start an etcd with")?
            .len();
        let free = Room::at(self.scratch.path())?.bytes;
        if free >= size.saturating_add(RESERVE) {
            return Ok(());
        }
        bail!(
            "cannot start an etcd with the snapshot in {}: its database needs {}, {} are free, and {} must stay free; \
            make room",
            self.scratch.path().display(),
            megabytes(size),
            megabytes(free),
            megabytes(RESERVE)
        )
    }
}

/// The keys if both succeeded; otherwise the error of the count, followed by that of the end.
fn outcome(counted: anyhow::Result<Keys>, ended: anyhow::Result<()>) -> anyhow::Result<Keys> {
    match (counted, ended) {
        (Ok(found), Ok(())) => Ok(found),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(error), Err(then)) => bail!("{error:#}; {then:#}"),
    }
}

/// A running etcd.
struct Running {
    child: Child,
    client: Client,
    log: PathBuf,
}

impl Running {
    fn start(
        programs: &Programs,
        scratch: &Path,
        data: &Path,
        cluster: &str,
    ) -> anyhow::Result<Self> {
        let sockets = scratch.join("s");
        let made = fs::DirBuilder::new().mode(0o700).create(&sockets);
        made.with_context(|| format!("cannot make {}", sockets.display()))?;
        let (client, log) = (sockets.join("client"), scratch.join("etcd.log"));
        let output = files::create(&log, 0o600)?;
        let child = Command::new("/bin/sh")
            .args(["-c", UNTIL_CLOSED, "sh"])
            .arg(&programs.etcd)
            .args(["--name", NAME])
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                &format!("unix://{}", client.display()),
            ])
            // etcd takes the socket's name from the host part of the URL: a file in its working
            // directory. A path would make an abstract socket, which any user could open.
            .args(["--listen-peer-urls", "unix://peer"])
            .current_dir(&sockets)
            .args(["--advertise-client-urls", CLIENT])
            .args(["--initial-advertise-peer-urls", PEER])
            .args(["--initial-cluster", cluster])
            // The data is discarded: do not slow the disk down to which the cluster's etcd writes.
            .arg("--unsafe-no-fsync")
            // Leave memory and processors to the cluster.
            .env("GOMEMLIMIT", "512MiB")
            .env("GOMAXPROCS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .context("cannot run /bin/sh")?;
        Ok(Self {
            child,
            client: Client::of_socket(&client),
            log,
        })
    }

    /// Counts the keys at a revision as soon as etcd answers.
    async fn count(&mut self, revision: i64) -> anyhow::Result<Keys> {
        let member = self.client.member();
        let limit = Instant::now() + ANSWER;
        loop {
            let answer = self.client.keys(&member, revision).await;
            let error = match answer {
                Ok(keys) => return Ok(keys),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the etcd that was started with the snapshot has ended with {status}: {}",
                    self.last_lines()
                );
            }
            let refused = matches!(error, EtcdError::Refused { .. });
            if refused || Instant::now() > limit {
                bail!(
                    "the etcd that was started with the snapshot does not serve: {}; it says: {}",
                    chain(&error),
                    self.last_lines()
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn last_lines(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.len().saturating_sub(LINES);
        lines[last..].join(" | ")
    }

    /// Ends etcd, and waits until it has ended.
    async fn end(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(END, self.child.wait()).await;
        ended.context("the etcd that was started with the snapshot does not end")??;
        Ok(())
    }
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
