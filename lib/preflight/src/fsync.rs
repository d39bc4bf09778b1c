//! The latency of etcd's disk: the time until a small write is on disk, for which etcd waits in
//! each transaction (etcd's documentation, "hardware": the 99th percentile should be below 10 ms).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// The directory of etcd's data.
const DATA: &str = "/var/lib/etcd";
/// The number of writes of a round. The 99th percentile is the slowest but one.
const WRITES: usize = 100;
/// The size of a write, about that of a record in etcd's log.
const SIZE: usize = 2300;
/// The time after which no further write is started: such a disk is certainly slow.
const LIMIT: Duration = Duration::from_secs(10);
/// Another program may write a lot for a moment, so a slow round is repeated; the best one counts.
const ROUNDS: usize = 3;
/// The latency from which a round is slow.
const SLOW: Duration = Duration::from_millis(10);

/// The 99th percentile in microseconds; `None` if nothing can be written there, which other checks
/// report. Leaves nothing on the disk.
pub async fn p99() -> Option<u64> {
    let measured = tokio::task::spawn_blocking(|| best(Path::new(DATA))).await;
    let latency = measured.ok()?.ok()?;
    u64::try_from(latency.as_micros()).ok()
}

fn best(data: &Path) -> io::Result<Duration> {
    let mut existing = data.ancestors().filter(|path| path.is_dir());
    let directory = existing.next().unwrap_or(Path::new("/"));
    let start = Instant::now();
    let mut best = round(&nameless(directory)?, start)?;
    for _ in 1..ROUNDS {
        if best < SLOW || start.elapsed() > LIMIT {
            break;
        }
        best = best.min(round(&nameless(directory)?, start)?);
    }
    Ok(best)
}

/// An open file without a name.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".halite-preflight-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    // A leftover of an interrupted check.
    let _ = std::fs::remove_file(&path);
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn round(file: &File, start: Instant) -> io::Result<Duration> {
    let mut taken = Vec::with_capacity(WRITES);
    for offset in (0..).step_by(SIZE).take(WRITES) {
        let begun = Instant::now();
        file.write_all_at(&[b'h'; SIZE], offset)?;
        file.sync_data()?;
        taken.push(begun.elapsed());
        if start.elapsed() > LIMIT {
            break;
        }
    }
    Ok(percentile(taken))
}

/// The 99th percentile; the slowest one if there are few.
fn percentile(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    let index = (taken.len() * 99).div_ceil(100).saturating_sub(1);
    taken.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_write_of_a_hundred_does_not_count() {
        let ms = Duration::from_millis;
        let mut taken = vec![ms(1); 99];
        taken.push(ms(500));
        assert_eq!(percentile(taken.clone()), ms(1));
        taken[0] = ms(300);
        assert_eq!(percentile(taken), ms(300));
        assert_eq!(percentile(vec![ms(1), ms(7)]), ms(7));
        assert_eq!(percentile(Vec::new()), Duration::ZERO);
    }

    #[test]
    fn the_disk_of_a_directory_is_measured_and_left_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let latency = best(&root.path().join("not/there")).unwrap();
        assert!(latency > Duration::ZERO);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
