//! Trials with the real etcd: `HALITE_ETCD` and `HALITE_ETCDUTL` name its programs.

use std::io::Write as _;

use halite_host_reports::etcd::LOG;
use halite_host_reports::etcd_log::{self, Ids};

use super::*;

fn programs() -> Programs {
    let named = |name: &str| {
        let program = std::env::var_os(name).map(PathBuf::from);
        program.unwrap_or_else(|| {
            panic!("{name} has to name the program; `cargo lab test source:` builds it")
        })
    };
    Programs::new(named("HALITE_ETCD"), &named("HALITE_ETCDUTL"))
}

/// A snapshot of a member, and the keys that it had.
struct Source {
    snapshot: Vec<u8>,
    keys: CountedKeys,
}

impl Source {
    async fn new(programs: &Programs, dir: &Path) -> Self {
        let cluster = format!("{NAME}={PEER}");
        let data = dir.join("source");
        let mut running = Running::start(programs, dir, &data, &cluster).unwrap();
        running.count(0).await.unwrap();
        // Only root can open both sockets.
        for name in ["s/client", "s/peer"] {
            assert!(dir.join(name).exists(), "{name}");
        }
        let (client, member) = (&running.client, running.client.member());
        for number in 0..20 {
            let key = format!("/registry/pods/{number}");
            client.put(key.as_bytes(), b"a pod").await.unwrap();
        }
        let counted = client.keys(&member, 0).await.unwrap();
        // A later write is in the snapshot, but not at the counted revision.
        client.put(b"/registry/pods/later", b"a pod").await.unwrap();
        let mut parts = client.snapshot(&member).await.unwrap();
        let mut snapshot = Vec::new();
        while let Some(part) = parts.next().await.unwrap() {
            snapshot.extend(part);
        }
        running.end().await.unwrap();
        let keys = CountedKeys {
            revision: counted.revision,
            count: counted.count,
        };
        Self { snapshot, keys }
    }

    fn trial(parent: &Path, snapshot: &[u8]) -> TrialDirectory {
        let scratch = ScratchDir::within(parent, KIND).unwrap();
        let trial = TrialDirectory { scratch };
        trial.begin().unwrap().write_all(snapshot).unwrap();
        trial
    }
}

/// The command lines that contain this text, of all processes.
fn processes(text: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.contains(text)).collect()
}

#[tokio::test]
async fn the_keys_of_a_snapshot_are_counted_by_an_etcd_that_leaves_nothing() {
    let (programs, dir) = (programs(), tempfile::tempdir().unwrap());
    let source = Source::new(&programs, dir.path()).await;
    assert_eq!(source.keys.count, 20);
    let trials = dir.path().join("trials");
    fs::create_dir(&trials).unwrap();
    let trial = Source::trial(&trials, &source.snapshot);
    let path = trial.scratch.path().display().to_string();
    let found = trial.run_with(&programs, Some(source.keys)).await.unwrap();
    assert_eq!((found.count, found.revision), (20, source.keys.revision));
    let left = processes(&path);
    let shell = "/bin/sh\0-c\0";
    assert!(left.iter().all(|line| line.starts_with(shell)), "{left:?}");
    // The part of the shell that kills etcd may still end after that.
    let end = Instant::now() + END;
    while !processes(&path).is_empty() {
        assert!(Instant::now() < end, "{:?} does not end", processes(&path));
        tokio::time::sleep(PAUSE).await;
    }
    drop(trial);
    assert_eq!(fs::read_dir(&trials).unwrap().count(), 0);

    // Without a record the newest revision is counted.
    let trial = Source::trial(&trials, &source.snapshot);
    assert_eq!(trial.run_with(&programs, None).await.unwrap().count, 21);
}

#[tokio::test]
async fn a_snapshot_with_other_keys_or_a_changed_byte_is_refused() {
    let (programs, dir) = (programs(), tempfile::tempdir().unwrap());
    let source = Source::new(&programs, dir.path()).await;
    let trial = Source::trial(dir.path(), &source.snapshot);
    let more = CountedKeys {
        count: 21,
        ..source.keys
    };
    let error = trial.run_with(&programs, Some(more)).await.unwrap_err();
    let wanted = format!("has 20 keys at revision {}", more.revision);
    assert!(error.to_string().contains(&wanted), "{error:#}");

    let mut changed = source.snapshot.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let trial = Source::trial(dir.path(), &changed);
    let error = trial.run_with(&programs, Some(source.keys)).await;
    let error = format!("{:#}", error.unwrap_err());
    assert!(
        error.starts_with("cannot restore etcd's snapshot"),
        "{error}"
    );
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_reported_with_what_it_said() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, text: &str| {
        let path = dir.path().join(name);
        halite_testkit::process::make_program(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    };
    let etcd = program("etcd", "echo 'panic: page 7 is not a leaf' >&2; exit 2");
    let programs = Programs::new(etcd, &program("etcdutl", "true"));
    let trial = Source::trial(dir.path(), b"snapshot");
    let error = trial
        .run_with(&programs, None)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("has ended with exit status: 2"), "{error}");
    assert!(error.contains("page 7 is not a leaf"), "{error}");
}

#[test]
fn an_etcd_that_does_not_end_hides_no_other_failure() {
    let keys = || {
        Ok(Keys {
            revision: 7,
            count: 3,
        })
    };
    let failed = |text: &'static str| anyhow::anyhow!(text);
    let text = |found: anyhow::Result<Keys>| format!("{:#}", found.unwrap_err());
    assert_eq!(outcome(keys(), Ok(())).unwrap().count, 3);
    let stuck = || Err(failed("it does not end"));
    assert_eq!(text(outcome(keys(), stuck())), "it does not end");
    let page = || Err(failed("page 7 is not a leaf"));
    assert_eq!(text(outcome(page(), Ok(()))), "page 7 is not a leaf");
    assert_eq!(
        text(outcome(page(), stuck())),
        "page 7 is not a leaf; it does not end"
    );
}

/// A process that is killed closes its pipes, and can do nothing else.
#[tokio::test]
async fn the_etcd_of_a_killed_process_ends() {
    let mut shell = Command::new("/bin/sh")
        .args(["-c", UNTIL_CLOSED, "sh", "sleep", "3601"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(shell.try_wait().unwrap().is_none());
    drop(shell.stdin.take());
    let ended = tokio::time::timeout(END, shell.wait()).await;
    assert!(!ended.unwrap().unwrap().success());
}

/// A restored host's record has the ids of its new cluster: another token makes another cluster.
#[tokio::test]
async fn the_log_of_a_restored_snapshot_has_the_ids_of_its_cluster() {
    let (programs, dir) = (programs(), tempfile::tempdir().unwrap());
    let source = Source::new(&programs, dir.path()).await;
    let ids = |data: &Path| -> Ids {
        let log = data.join(LOG).join("0000000000000000-0000000000000000.wal");
        etcd_log::ids(&fs::read(log).unwrap()).unwrap()
    };
    let snapshot = dir.path().join("db");
    fs::write(&snapshot, &source.snapshot).unwrap();
    let cluster = format!("{NAME}={PEER}");
    let restored = |data: &str, token: &[&str]| {
        let data = dir.path().join(data);
        let member = [
            ["--name", NAME],
            ["--initial-cluster", &cluster],
            ["--initial-advertise-peer-urls", PEER],
        ];
        let arguments = [member.concat(), token.to_vec()].concat();
        let done = programs.etcdutl.restore(&snapshot, &data, &arguments);
        done.unwrap();
        ids(&data)
    };
    let founded = ids(&dir.path().join("source"));
    assert_eq!(restored("same", &[]), founded);
    let other = restored("other", &["--initial-cluster-token", "another"]);
    assert!(other.cluster != founded.cluster && other.member != founded.member);
}
