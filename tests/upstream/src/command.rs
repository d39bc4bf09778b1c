//! Running a slow program while showing that it is alive.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a program that says nothing is reported to be still at work.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How much of what a failed program printed is worth showing.
const SHOWN_LINES: usize = 40;

/// Runs a program to its end. What it prints to standard error is shown when it fails; `what` names
/// the work in the signs of life and in the error.
pub fn run(command: &mut Command, what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
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
                progress(&format!("{what}: {} s so far", start.elapsed().as_secs()));
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
