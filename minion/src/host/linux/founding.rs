//! The first start of an etcd member, by containerd: of a cluster's first one, or of a joining one.

use std::time::Duration;

use super::command::{failure, run_until};
use crate::host::effect::{Command, Output};
use crate::host::founding::{FirstStart, JOINING_MARK};
use crate::host::{HostResult, Stop};

const FOUNDING: &str = concat!(include_str!("clean.sh"), include_str!("founding.sh"));
const JOINING: &str = concat!(include_str!("clean.sh"), include_str!("joining.sh"));
/// The time for everything except the wait.
const REST: Duration = Duration::from_secs(60);
/// Time for a snapshot of any size.
const SNAPSHOT: Duration = Duration::from_secs(1800);

/// Makes the data of the member, completely or not at all.
///
/// # Errors
/// containerd does not answer, or etcd does not serve in time; includes etcd's last output.
pub async fn found(first: &FirstStart, stop: &Stop) -> HostResult<Output> {
    let script = Script {
        text: FOUNDING,
        name: "founding.sh",
        container: "halite-etcd-founding",
    };
    let data = format!("{}/data", first.scratch());
    let argv = script.argv(first, [first.scratch(), first.member()], &data);
    let limit = Duration::from_secs(first.seconds) + REST;
    script.run(argv, limit, stop).await
}

/// Lets a learner receive the other members' data. An etcd that does not receive them is not a
/// failure.
///
/// # Errors
/// It takes longer than a snapshot of any size.
pub async fn join(first: &FirstStart, stop: &Stop) -> HostResult<Output> {
    let script = Script {
        text: JOINING,
        name: "joining.sh",
        container: "halite-etcd-joining",
    };
    let places = [JOINING_MARK.to_owned(), first.member()];
    let argv = script.argv(first, places, &first.data);
    script.run(argv, SNAPSHOT, stop).await
}

/// A script that starts etcd once.
struct Script {
    text: &'static str,
    name: &'static str,
    container: &'static str,
}

impl Script {
    /// The arguments of the script: its paths, its seconds, and the arguments of `ctr run`; `data`
    /// is the host directory that etcd uses as its data directory.
    fn argv(&self, first: &FirstStart, places: [String; 2], data: &str) -> Vec<String> {
        let bind = |source: &str, target: &str, access: &str| {
            format!("--mount=type=bind,src={source},dst={target},options=rbind:{access}")
        };
        let mut argv = ["/bin/sh", "-c", self.text, self.name]
            .map(str::to_owned)
            .to_vec();
        argv.extend(places);
        argv.extend([
            first.seconds.to_string(),
            bind(data, &first.data, "rw"),
            bind(&first.reads, &first.reads, "ro"),
            first.image.clone(),
            self.container.to_owned(),
        ]);
        argv.extend(first.command.iter().cloned());
        argv
    }

    async fn run(&self, argv: Vec<String>, limit: Duration, stop: &Stop) -> HostResult<Output> {
        let command = Command {
            argv,
            ..Command::default()
        };
        let output = run_until(&command, Some(limit), stop).await?;
        if output.code == 0 {
            Ok(Output::default())
        } else {
            Err(failure(&["etcd"], &output))
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "a test runs the script with a function in the place of containerd"
)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::{Command, Output};
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::JOINING;

    /// A `ctr` whose container is a process of this host. `ETCD` is the body of its etcd, which has
    /// the member's directory in `$place`. The script counts its pauses: the first one lasts until
    /// etcd has begun or ended, however slow the machine is, and `AFTER_PAUSE` follows each.
    const CTR: &str = r#"
ctr() {
  echo "$*" >>"$home/calls"
  case "$3 $4" in
  "run --rm")
    sh -c "$ETCD" &
    echo $! >"$home/pid"
    wait $!
    ;;
  "task kill") [ ! -e "$home/pid" ] || kill -"${6#SIG}" "$(cat "$home/pid")" ;;
  esac
}
sleep() {
  until [ -e "$place/wal/0-0.wal" ] || [ -e "$mark.ended" ]; do command sleep 0.1; done
  command sleep "$1"
  eval "$AFTER_PAUSE"
}
"#;

    struct Site {
        home: TempDir,
    }

    impl Site {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            Self { home }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.home.path().join(name)
        }

        fn join(&self, etcd: &str, seconds: &str) -> (Output, Duration) {
            self.join_with(etcd, seconds, "")
        }

        fn join_with(&self, etcd: &str, seconds: &str, after_pause: &str) -> (Output, Duration) {
            let start = Instant::now();
            let output = Command::new("/bin/sh")
                .args(["-c", &format!("{CTR}{JOINING}"), "joining.sh"])
                .args([self.path("mark"), self.path("member")])
                .args([seconds, "etcd:1", "halite-etcd-joining", "etcd"])
                .env("home", self.home.path())
                .env("place", self.path("member"))
                .env("ETCD", etcd)
                .env("AFTER_PAUSE", after_pause)
                .output()
                .unwrap();
            (output, start.elapsed())
        }

        fn calls(&self, word: &str) -> usize {
            let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
            calls.lines().filter(|line| line.contains(word)).count()
        }

        /// No trace of a possible container is left.
        fn assert_done(&self, output: &Output) {
            assert!(output.status.success(), "{output:?}");
            for name in ["mark", "mark.log", "mark.ended"] {
                assert!(!self.path(name).exists(), "{name} is left");
            }
        }
    }

    const BEGINS: &str = "mkdir -p $place/wal $place/snap; : >$place/wal/0-0.wal";
    const LONG: &str = "300";

    #[test]
    fn a_member_that_joins_ends_as_soon_as_it_has_the_snapshot() {
        let site = Site::new();
        let etcd = format!(
            "trap 'echo ended >$place/ended; exit' TERM; {BEGINS}; : >$place/snap/1.snap.db; sleep 0.3; \
             : >$place/snap/1-1.snap; sleep 0.3; mv $place/snap/1.snap.db $place/snap/db; while :; do sleep 0.1; done"
        );
        let (output, _) = site.join(&etcd, LONG);
        site.assert_done(&output);
        assert!(site.path("member/snap/db").exists(), "it ended too early");
        assert!(
            site.path("member/ended").exists(),
            "it was not asked to end"
        );
        // It has started, and is not started again.
        let (output, _) = site.join(&etcd, LONG);
        site.assert_done(&output);
        assert_eq!(site.calls(" run "), 1);
    }

    #[test]
    fn a_member_that_serves_needed_no_snapshot() {
        let site = Site::new();
        let etcd =
            format!("{BEGINS}; echo '\"msg\":\"ready to serve client requests\"'; exec sleep 100");
        let (output, _) = site.join(&etcd, LONG);
        site.assert_done(&output);
    }

    #[test]
    fn one_that_ends_or_receives_nothing_is_left_to_its_pod() {
        let site = Site::new();
        let (output, _) = site.join("echo no member >&2; exit 1", LONG);
        site.assert_done(&output);
        let (output, took) = site.join(&format!("{BEGINS}; exec sleep 100"), "3");
        site.assert_done(&output);
        assert!(took >= Duration::from_secs(3), "{took:?}");
        assert!(site.path("member/wal/0-0.wal").exists());
    }

    #[test]
    fn a_join_waits_for_a_large_snapshot_while_it_grows() {
        let site = Site::new();
        // It grows just before the script would end, twice, so that the limit passes in between.
        let grows = "pauses=$((${pauses:-0} + 1)); case $pauses in \
                     15 | 30) echo more >>$place/snap/tmp1 ;; \
                     45) mv $place/snap/tmp1 $place/snap/db; : >$place/snap/1-1.snap ;; esac";
        let (output, _) = site.join_with(&format!("{BEGINS}; exec sleep 100"), "2", grows);
        site.assert_done(&output);
        assert!(site.path("member/snap/db").exists());
    }

    #[test]
    fn the_container_of_an_interrupted_run_ends_and_its_data_stay() {
        let site = Site::new();
        fs::create_dir_all(site.path("member/wal")).unwrap();
        fs::write(site.path("member/wal/0-0.wal"), "begun").unwrap();
        fs::write(site.path("mark"), "").unwrap();
        let (output, _) = site.join("exit 1", LONG);
        site.assert_done(&output);
        assert_eq!((site.calls("SIGKILL"), site.calls(" run ")), (1, 0));
        let log = fs::read_to_string(site.path("member/wal/0-0.wal")).unwrap();
        assert_eq!(log, "begun");
    }
}
