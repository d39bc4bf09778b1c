//! Running a command of `ctl` whose lines are read as they come; see [`crate::silence`].
//!
//! Time for which this machine was held up does not count. A silence in which a master started does
//! not count: its host lost power, it was killed, or another host became the master's, and `ctl`
//! waited for it. Tests that interrupt commands or their hosts at many moments read the lines
//! themselves (`interrupted::Running` of the suites) and measure no silence. commands or their
//! hosts at many moments read the lines themselves (`interrupted::Running` of the suites) and
//! measure no silence.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::hold_ups::HoldUps;
use crate::silence::{LIMIT, Silences};

/// The name of the master's processes.
const MASTER: &str = "halite-master";

/// The kernel's units of time in `/proc`, per second (`USER_HZ`), on all architectures of the lab.
const TICKS: u64 = 100;

/// Runs a command with these words, and passes each line of its standard output to `each` as it
/// comes. Returns its status and its output; standard error is read as well if it is a pipe.
///
/// # Errors
/// The command cannot be started, `each` failed, or one of its steps was silent.
pub fn run(
    command: &mut Command,
    words: &str,
    each: impl FnMut(&str) -> Result<()>,
) -> Result<Output> {
    run_within(LIMIT, command, words, each)
}

fn run_within(
    limit: Duration,
    command: &mut Command,
    words: &str,
    mut each: impl FnMut(&str) -> Result<()>,
) -> Result<Output> {
    let silences = Mutex::new(Silences::longer_than(limit));
    let (start, hold_ups) = (Instant::now(), HoldUps::start());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start nsenter")?;
    let heard = |line: &str| {
        let mut silences = silences.lock().unwrap_or_else(PoisonError::into_inner);
        let held_up = hold_ups.so_far();
        silences.take(start.elapsed().saturating_sub(held_up), line, |time| {
            began_within(Path::new("/proc"), MASTER, time + held_up)
        });
    };
    let output = child.stdout.take().context("no output")?;
    let errors = child.stderr.take();
    let (stdout, stderr) = thread::scope(|scope| {
        let errors = errors.map(|errors| {
            scope.spawn(|| {
                lines(errors, |line| {
                    heard(line);
                    Ok(())
                })
            })
        });
        let stdout = lines(output, |line| {
            heard(line);
            each(line)
        })?;
        let stderr = match errors.map(thread::ScopedJoinHandle::join) {
            Some(read) => read.map_err(|_| anyhow!("the reader of its errors panicked"))??,
            None => Vec::new(),
        };
        anyhow::Ok((stdout, stderr))
    })?;
    let status = child.wait()?;
    let found = silences.into_inner();
    let found = found.unwrap_or_else(PoisonError::into_inner).found();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    ensure!(
        found.is_empty(),
        "`{words}`, which ended with {status}, {}",
        found.join("; it ")
    );
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Prints a line of a displayed command.
pub fn show(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Reads lines to the end, and returns all bytes.
fn lines(from: impl Read, mut each: impl FnMut(&str) -> Result<()>) -> Result<Vec<u8>> {
    let (mut from, mut all) = (BufReader::new(from), Vec::new());
    loop {
        let begin = all.len();
        if from.read_until(b'\n', &mut all)? == 0 {
            return Ok(all);
        }
        let line = String::from_utf8_lossy(all.get(begin..).unwrap_or_default());
        each(line.strip_suffix('\n').unwrap_or(&line))?;
    }
}

/// Returns whether a process of this name started within that time. The processes of all hosts are
/// in the machine's `/proc`.
fn began_within(proc: &Path, name: &str, time: Duration) -> bool {
    let uptime = fs::read_to_string(proc.join("uptime")).unwrap_or_default();
    let uptime: Option<f64> = uptime
        .split_whitespace()
        .next()
        .and_then(|seconds| seconds.parse().ok());
    let Some(uptime) = uptime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) else {
        return false;
    };
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut stats =
        processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.any(|stat| {
        let start = started(&stat, name);
        start.is_some_and(|start| uptime.saturating_sub(start) <= time)
    })
}

/// The time after the machine's boot at which a process of this name started, from its `stat`
/// (proc(5)).
fn started(stat: &str, name: &str) -> Option<Duration> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, found) = before.split_once(" (")?;
    // After the name: the state is the third field, the start the 22nd.
    let ticks: u64 = after.split(' ').nth(22 - 3)?.parse().ok()?;
    (found == name).then(|| Duration::from_millis(ticks * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_come_one_by_one_and_all_bytes_are_returned() {
        let mut seen = Vec::new();
        let script = "printf 'a  b ✓\\n\\nlast'; printf 'x\\377' >&2; exit 3";
        let output = run(shell(script).stderr(Stdio::piped()), "x", |line| {
            seen.push(line.to_owned());
            Ok(())
        });
        let output = output.unwrap();
        assert_eq!(seen, ["a  b ✓", "", "last"]);
        assert_eq!(output.stdout, "a  b ✓\n\nlast".as_bytes());
        assert_eq!(output.stderr, b"x\xff");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_line_is_heard_before_the_command_ends() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        let script = format!(
            "echo begun; until test -e {}; do sleep 0.01; done",
            seen.display()
        );
        let output = run(&mut shell(&script), "x", |_| Ok(fs::write(&seen, "")?));
        assert!(output.unwrap().status.success());
    }

    #[test]
    fn a_silent_step_fails_the_command() {
        let limit = Duration::from_millis(10);
        let run = |between: &str| {
            let dir = tempfile::tempdir().unwrap();
            let heard = dir.path().join("heard");
            // The silence starts when the first line is received, however late that is.
            let script = format!(
                "echo 'cp-2  a ✓'; until test -e {}; do sleep 0.01; done; sleep 0.1; {between} echo 'cp-2  b ✓'",
                heard.display()
            );
            let mut command = shell(&script);
            run_within(
                limit,
                command.stderr(Stdio::piped()),
                "ctl node add",
                |_| Ok(fs::write(&heard, "")?),
            )
        };
        // A master that a lab starts at that moment excuses a silence, and so do disks that are
        // busy all the time.
        let error = (0..100).find_map(|_| run("").err()).unwrap().to_string();
        let begin = "`ctl node add`, which ended with exit status: 0, was silent for ";
        assert!(
            error.starts_with(begin) && error.contains(" s after \"cp-2  a ✓\""),
            "{error}"
        );
        // Between two runs it reports this on standard error, whose reader has time to get it
        // first.
        let note = "echo 'waiting for the next master' >&2; sleep 3;";
        assert!(run(note).is_ok());
    }

    #[test]
    fn the_start_of_a_process_is_found_by_its_name() {
        let stat = |name: &str, ticks: u64| {
            format!(
                "77 ({name}) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 {ticks} 9 9 18446744073709551615\n"
            )
        };
        let at = |stat: String| started(&stat, "halite-master");
        assert_eq!(
            at(stat("halite-master", 150)),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(at(stat("halite-minion", 150)), None);
        assert_eq!(at("77 (halite-master) S".to_owned()), None);

        let proc = tempfile::tempdir().unwrap();
        let directory = proc.path().join("77");
        fs::create_dir(&directory).unwrap();
        fs::write(proc.path().join("uptime"), "100.50 7.00\n").unwrap();
        fs::write(directory.join("stat"), stat("halite-master", 7000)).unwrap();
        for (seconds, began) in [(30, false), (31, true)] {
            let time = Duration::from_secs(seconds);
            assert_eq!(began_within(proc.path(), MASTER, time), began, "{seconds}");
        }
        assert!(!began_within(
            proc.path(),
            "other",
            Duration::from_secs(1000)
        ));
    }

    #[test]
    fn the_kernel_counts_as_this_does() {
        let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
        let (proc, name) = (Path::new("/proc"), format!("/proc/{}/stat", sleep.id()));
        // The process has the name of this test until it runs the other program.
        let begin = Instant::now();
        let start = loop {
            match started(&fs::read_to_string(&name).unwrap(), "sleep") {
                Some(start) => break start,
                None => assert!(begin.elapsed() < Duration::from_secs(30)),
            }
        };
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let age = uptime - start.as_secs_f64();
        let is_young = began_within(proc, "sleep", Duration::from_secs(30));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!((-1.0..30.0).contains(&age), "{age}");
        assert!(is_young);
    }
}
