//! Programs: arguments as a list, a deadline, captured output, and the end of the whole process
//! group at the deadline.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::host::effect::{Command, Output, PATH};
use crate::host::{HostError, HostResult, Stop};

/// Maximum bytes of each output stream that are kept; the rest is read and dropped.
const MAX_OUTPUT: usize = 4 << 20;
/// The end of an output of which only the start is kept; starts with a line break and a mark of
/// [`halite_errors::cut`].
const CUT: &str = "\n[cut here: only the first 4 MiB of an output are kept]\n";
/// Longest wait for output after the program itself has ended (its remaining children hold the pipe
/// open).
const STRAGGLERS: Duration = Duration::from_secs(2);

/// Time between SIGTERM and SIGKILL for a program that must end.
const GRACE: Duration = Duration::from_secs(10);

/// The process group of a program. It is killed if this is dropped before the program has ended:
/// killing only the program would leave its children.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The end of a program.
enum Ended {
    Itself(std::io::Result<std::process::ExitStatus>),
    Stopped(String),
    Late,
}

/// Runs a program. `deadline` applies if the command has no `timeout` of its own.
///
/// # Errors
/// It cannot be started, or its deadline has passed. An exit code is not an error here.
pub async fn run(command: &Command, deadline: Option<Duration>) -> HostResult<Output> {
    run_until(command, deadline, &Stop::default()).await
}

/// Like [`run`]; a request of `stop` ends the program: SIGTERM, and SIGKILL if it still runs after
/// ten seconds.
///
/// # Errors
/// Like [`run`], and the end by `stop`.
pub async fn run_until(
    command: &Command,
    deadline: Option<Duration>,
    stop: &Stop,
) -> HostResult<Output> {
    let argv = arguments(command)?;
    let name = argv.first().cloned().unwrap_or_default();
    let Some((program, arguments)) = argv.split_first() else {
        return Err(HostError::refused("an empty command cannot be run"));
    };
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(command.cwd.as_deref().unwrap_or("/"))
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("LANG", "C.UTF-8")
        .env("LC_ALL", "C.UTF-8")
        .envs(&command.env)
        .stdin(if command.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| HostError::Start {
            program: name.clone(),
            source,
        })?;
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(group.and_then(Pid::from_raw));
    let input = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let feed = async {
        if let (Some(mut pipe), Some(bytes)) = (input, &command.stdin) {
            // A program may stop reading before the end.
            let _ = pipe.write_all(bytes).await;
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let limit = command.timeout.map(Duration::from_secs).or(deadline);
    let ended = {
        let work = async {
            let streams =
                async { tokio::join!(feed, capture(stdout, &mut out), capture(stderr, &mut err)) };
            tokio::pin!(streams);
            tokio::select! {
                status = child.wait() => {
                    let _ = tokio::time::timeout(STRAGGLERS, &mut streams).await;
                    status
                }
                _ = &mut streams => child.wait().await,
            }
        };
        tokio::pin!(work);
        let time_is_up = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // In this order: a program that has ended has ended by itself.
            biased;
            status = &mut work => Ended::Itself(status),
            reason = stop.requested() => {
                group.signal(Signal::TERM);
                let _ = tokio::time::timeout(GRACE, &mut work).await;
                Ended::Stopped(reason)
            }
            () = time_is_up => Ended::Late,
        }
    };
    let status = match ended {
        Ended::Itself(status) => status.map_err(|source| HostError::Start {
            program: name,
            source,
        })?,
        Ended::Stopped(reason) => {
            return Err(HostError::Stopped {
                program: name,
                reason,
            });
        }
        Ended::Late => {
            return Err(HostError::Timeout {
                program: name,
                seconds: limit.unwrap_or_default().as_secs(),
                stderr: String::from_utf8_lossy(&err).trim().to_owned(),
            });
        }
    };
    // Children of a program that ended by itself are wanted, like a daemon that it started.
    group.0 = None;
    let code = status
        .code()
        .or_else(|| status.signal().map(|s| 128 + s))
        .unwrap_or(-1);
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    };
    Ok(Output {
        code,
        stdout: text(out),
        stderr: text(err),
    })
}

/// `argv`, through `setpriv` if it must run as another user: that program may use the host's name
/// service.
fn arguments(command: &Command) -> HostResult<Vec<String>> {
    if command.argv.is_empty() {
        return Err(HostError::refused("an empty command cannot be run"));
    }
    let own = match command.umask {
        None => command.argv.clone(),
        Some(umask) => {
            let line = "umask \"$1\"; shift; exec \"$@\"";
            let mut argv: Vec<String> =
                ["/bin/sh", "-c", line, "umask"].map(str::to_owned).to_vec();
            argv.push(format!("{umask:04o}"));
            argv.extend(command.argv.iter().cloned());
            argv
        }
    };
    let Some(user) = command.runas.as_deref().filter(|u| *u != "root") else {
        return Ok(own);
    };
    if user.starts_with('-') || user.is_empty() {
        return Err(HostError::refused(format!("`{user}` is not a user name")));
    }
    // `--regid` by user name means that user's primary group.
    let line = "u=$1; shift; exec setpriv --reuid \"$u\" --regid \"$(id -g \"$u\")\" --init-groups -- \"$@\"";
    let mut argv: Vec<String> = ["/bin/sh", "-c", line, "runas", user]
        .map(str::to_owned)
        .to_vec();
    argv.extend(own);
    Ok(argv)
}

async fn capture(stream: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 8192];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let room = MAX_OUTPUT.saturating_sub(into.len());
        into.extend(buffer.iter().take(length.min(room)));
        // The mark is written once: with it the output is longer than the limit.
        if length > room && into.len() == MAX_OUTPUT {
            into.extend(CUT.as_bytes());
        }
    }
}

/// Runs one of the host's own programs; any exit code but 0 is an error with the program's output.
///
/// # Errors
/// Like [`run`], and a failure of the program.
pub async fn run_checked(
    argv: &[&str],
    environment: &[(&str, &str)],
    deadline: Duration,
) -> HostResult<String> {
    run_checked_until(argv, environment, deadline, &Stop::default()).await
}

/// Like [`run_checked`]; a request of `stop` ends the program.
///
/// # Errors
/// Like [`run_checked`], and the end by `stop`.
pub async fn run_checked_until(
    argv: &[&str],
    environment: &[(&str, &str)],
    deadline: Duration,
    stop: &Stop,
) -> HostResult<String> {
    let output = run_until(&command(argv, environment), Some(deadline), stop).await?;
    if output.code == 0 {
        Ok(output.stdout)
    } else {
        Err(failure(argv, &output))
    }
}

/// A program with its arguments and with variables in addition to the minion's.
#[must_use]
pub fn command(argv: &[&str], environment: &[(&str, &str)]) -> Command {
    Command {
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        env: environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ..Command::default()
    }
}

/// The error of a program that failed.
#[must_use]
pub fn failure(argv: &[&str], output: &Output) -> HostError {
    let stderr = if output.stderr.trim().is_empty() {
        output.stdout.trim()
    } else {
        output.stderr.trim()
    };
    HostError::Command {
        command: argv.join(" "),
        status: output.code,
        stderr: stderr.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use halite_errors::cut;

    use super::*;

    fn shell(line: &str) -> Command {
        Command {
            argv: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
            ..Command::default()
        }
    }

    #[tokio::test]
    async fn output_code_and_input() {
        let command = Command {
            stdin: Some(b"in".to_vec()),
            ..shell("cat; echo err >&2; exit 3")
        };
        let output = run(&command, None).await.unwrap();
        assert_eq!(
            (output.code, output.stdout.as_str(), output.stderr.as_str()),
            (3, "in", "err\n")
        );
        assert_eq!(run(&shell("kill -TERM $$"), None).await.unwrap().code, 143);
    }

    #[tokio::test]
    async fn an_output_that_is_cut_says_so() {
        let output = run(
            &shell("head -c 5000000 /dev/zero | tr '\\0' x; echo end"),
            None,
        )
        .await
        .unwrap();
        assert_eq!(output.stdout.len(), MAX_OUTPUT + CUT.len());
        assert!(output.stdout.ends_with(CUT) && CUT.trim_start().starts_with(cut::MARK));
        let whole = run(&shell("head -c 4194304 /dev/zero | tr '\\0' x"), None)
            .await
            .unwrap();
        assert_eq!(whole.stdout.len(), MAX_OUTPUT);
    }

    #[tokio::test]
    async fn a_umask_is_that_of_the_command() {
        let command = Command {
            umask: Some(0o027),
            ..shell("umask; echo \"$0\"")
        };
        assert_eq!(run(&command, None).await.unwrap().stdout, "0027\n/bin/sh\n");
    }

    #[tokio::test]
    async fn a_timeout_kills_the_whole_process_group() {
        let command = Command {
            timeout: Some(0),
            ..shell("echo begun >&2; sleep 60 & sleep 60")
        };
        let error = run(&command, None).await.unwrap_err();
        assert!(error.to_string().contains("not done after 0 s"), "{error}");
    }

    #[tokio::test]
    async fn a_stop_ends_the_whole_process_group() {
        let dir = tempfile::tempdir().unwrap();
        let command = Command {
            cwd: Some(dir.path().display().to_string()),
            ..shell("trap 'echo told > told; exit' TERM; sleep 60 & echo $! > child; wait")
        };
        let stop = Stop::default();
        let running = run_until(&command, None, &stop);
        let child = dir.path().join("child");
        let request = async {
            while std::fs::read_to_string(&child)
                .unwrap_or_default()
                .is_empty()
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.request("the time limit of the job has passed");
        };
        let (ended, ()) = tokio::join!(running, request);
        assert_eq!(
            ended.unwrap_err().to_string(),
            "`/bin/sh` was ended: the time limit of the job has passed"
        );
        assert_eq!(
            std::fs::read_to_string(dir.path().join("told")).unwrap(),
            "told\n"
        );
        let pid = std::fs::read_to_string(&child).unwrap();
        let gone = || !std::path::Path::new(&format!("/proc/{}/exe", pid.trim())).exists();
        // Only a failure waits so long.
        tokio::time::timeout(Duration::from_secs(60), async {
            while !gone() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the child of the program still runs");
    }

    #[tokio::test]
    async fn a_child_left_behind_does_not_delay_the_end() {
        let output = run(&shell("sleep 60 & echo $!"), Some(Duration::from_secs(30)))
            .await
            .unwrap();
        assert_eq!(output.code, 0);
        let pid = output
            .stdout
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = run_checked(&["/no/such/program"], &[], Duration::from_secs(5))
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot run `/no/such/program`"),
            "{error}"
        );
    }

    #[test]
    fn other_users_go_through_setpriv() {
        let command = Command {
            runas: Some("etcd".into()),
            ..shell("id")
        };
        assert_eq!(arguments(&command).unwrap()[3..5], ["runas", "etcd"]);
        assert!(
            arguments(&Command {
                runas: Some("-x".into()),
                ..shell("id")
            })
            .is_err()
        );
    }
}
