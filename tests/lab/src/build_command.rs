//! Runs slow programs, with a sign of life every few seconds and a record of the time.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::timing;

/// Interval of the messages about a program that still runs.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Lines of a failed program's output that are shown.
const SHOWN_LINES: usize = 40;

/// Runs a program to its end. What it prints to standard error is in the error when it fails; `what`
/// names the work in messages, in the error and in the table of times.
pub fn run(command: &mut Command, what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    timing::build(what, || watched(command, what, progress))
}

fn watched(command: &mut Command, what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let start = Instant::now();
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
    let mut heartbeat = start + HEARTBEAT;
    loop {
        match lines.recv_timeout(heartbeat.saturating_duration_since(Instant::now())) {
            Ok(line) => printed.push(line),
            Err(RecvTimeoutError::Timeout) => {
                heartbeat = Instant::now() + HEARTBEAT;
                let last = printed.last().map(|line| format!(" ({})", line.trim()));
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
    // It has seen the end of the stream, or the channel would not be closed.
    let _ = reader.join();
    if !status.success() {
        let from = printed.len().saturating_sub(SHOWN_LINES);
        bail!("{what} failed ({status}):\n{}", printed[from..].join("\n"));
    }
    Ok(())
}

/// Runs a short program and returns what it prints.
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
