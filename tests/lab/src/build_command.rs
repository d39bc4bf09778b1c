//! Runs slow programs, with a progress message every few seconds and a record of the time.

use std::io::{BufRead as _, BufReader, IsTerminal as _, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::timing;

pub use halite_launch::cargo::{cargo, without_package};

/// Interval of the messages about a program that still runs, on a terminal and elsewhere, where
/// they remain.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HEARTBEAT_IN_A_LOG: Duration = Duration::from_secs(60);

/// Lines of a failed program's output that are shown.
const SHOWN_LINES: usize = 40;

/// Runs a program to its end, with a message at its start and some while it runs. On a failure its
/// standard error is in the error; `what` names the work in messages, in the error and in the table
/// of times.
pub fn run(command: &mut Command, what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    timing::build(what, || watched(command, what, progress))
}

fn watched(command: &mut Command, what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let start = Instant::now();
    let interval = if stdout().is_terminal() {
        HEARTBEAT
    } else {
        HEARTBEAT_IN_A_LOG
    };
    progress(what);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!(
                "{what}: cannot start {}",
                command.get_program().to_string_lossy()
            )
        })?;
    let (sender, lines) = channel();
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let Some(stderr) = stderr else { return };
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut printed: Vec<String> = Vec::new();
    let mut heartbeat = start + interval;
    // The number of lines of which the last one was already shown.
    let mut shown = 0;
    loop {
        match lines.recv_timeout(heartbeat.saturating_duration_since(Instant::now())) {
            Ok(line) => printed.push(line),
            Err(RecvTimeoutError::Timeout) => {
                heartbeat = Instant::now() + interval;
                let last = printed[shown..].last();
                let last = last.map(|line| format!(" ({})", line.trim()));
                shown = printed.len();
                let seconds = start.elapsed().as_secs();
                progress(&format!(
                    "{what}: {seconds} s so far{}",
                    last.unwrap_or_default()
                ));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait()?;
    // It has reached the end of the stream; otherwise the channel would not be closed.
    let _ = reader.join();
    if !status.success() {
        let from = printed.len().saturating_sub(SHOWN_LINES);
        bail!("{what} failed ({status}):\n{}", printed[from..].join("\n"));
    }
    Ok(())
}

/// Runs a short program and returns its output.
pub fn output(command: &mut Command, what: &str) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| {
        format!(
            "{what}: cannot start {}",
            command.get_program().to_string_lossy()
        )
    })?;
    if !output.status.success() {
        bail!(
            "{what} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_named_when_it_begins_and_in_the_error() {
        let mut said = Vec::new();
        let mut run = |script: &str, what: &str| {
            let mut shell = Command::new("sh");
            run(shell.args(["-c", script]), what, &mut |text| {
                said.push(text.to_owned());
            })
        };
        run("true", "one").unwrap();
        let error = run("echo why >&2; false", "two").unwrap_err().to_string();
        assert!(
            error.starts_with("two failed ") && error.ends_with("\nwhy"),
            "{error}"
        );
        assert_eq!(said, ["one", "two"]);
    }
}
