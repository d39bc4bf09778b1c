//! Commands on the hosts: one that is interrupted, and others of which only the status counts.

use std::fs;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::wait;

/// Limit for a command to end after one of its programs was killed.
const COMMAND: Duration = Duration::from_secs(800);

/// Limit for a command that was just started to run in its host.
const INSIDE: Duration = Duration::from_secs(10);

/// Starts a command in a host, and discards its output.
pub(crate) fn spawn(host: &Host, line: &[String]) -> Result<Child> {
    let mut command = host.command(line)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().context("cannot start nsenter")
}

/// Waits for the end of the command, and returns its status.
pub(crate) fn ended(command: &mut Child) -> Result<ExitStatus> {
    wait::until(
        "the command to end after the kill",
        COMMAND,
        || match command.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(anyhow!("it still runs")),
            Err(error) => Err(error.into()),
        },
    )
}

/// The outcomes after which a command is run once more in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// Success and failure.
    Always,
    /// Failure: once it has succeeded, it would be refused, or disturb what it has done.
    AfterFailure,
}

/// A command that is run again when an interruption made it fail.
pub(crate) struct RepeatedCommand<'c> {
    host: &'c Host,
    line: Vec<String>,
    repetition: Repetition,
    child: Child,
    /// The file that has its output.
    output: File,
    /// `true` if a victim has died since it was started.
    is_interrupted: bool,
}

impl<'c> RepeatedCommand<'c> {
    /// Starts the command in a host.
    ///
    /// # Errors
    /// The host does not run.
    pub(crate) fn start(host: &'c Host, line: Vec<String>, repetition: Repetition) -> Result<Self> {
        let output = tempfile::tempfile()?;
        let child = host
            .command(&line)?
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .context("cannot start nsenter")?;
        Ok(Self {
            host,
            line,
            repetition,
            child,
            output,
            is_interrupted: false,
        })
    }

    /// Records that a victim dies: from now on the command may fail.
    pub(crate) fn interrupted(&mut self) {
        self.is_interrupted = true;
    }

    /// Kills the command itself, a child of the process that entered the host.
    ///
    /// # Errors
    /// It has already ended.
    pub(crate) fn die(&self) -> Result<()> {
        let id = self.child.id();
        let inside = wait::promptly("the command to kill", INSIDE, || {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
            let inside = children.split_whitespace().next();
            inside.map(str::to_owned).context("it does not run")
        })?;
        run("kill", &["-9", inside.as_str()]).map(drop)
    }

    /// Runs it again if it has failed, after `prepare`, which is given its status. Returns whether
    /// it has succeeded.
    ///
    /// # Errors
    /// It has failed without an interruption.
    pub(crate) fn repeat(
        &mut self,
        prepare: impl FnOnce(ExitStatus) -> Result<()>,
    ) -> Result<bool> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(false);
        };
        if !status.success() {
            self.check(status)?;
            prepare(status)?;
            *self = Self::start(self.host, self.line.clone(), self.repetition)?;
        }
        Ok(status.success())
    }

    /// Waits for its end, and runs it once more, after `prepare`.
    ///
    /// # Errors
    /// It has failed without an interruption, or fails again.
    pub(crate) fn succeed(mut self, prepare: impl FnOnce() -> Result<()>) -> Result<()> {
        let status = ended(&mut self.child)?;
        self.check(status)?;
        if status.success() && self.repetition == Repetition::AfterFailure {
            return Ok(());
        }
        prepare()?;
        self.host
            .run(&self.line)
            .with_context(|| format!("after the last one had ended with {status}"))?;
        println!("  the command ended with {status}, and succeeded when it was run again");
        Ok(())
    }

    /// Fails if the command has failed without an interruption.
    fn check(&self, status: ExitStatus) -> Result<()> {
        ensure!(
            status.success() || self.is_interrupted,
            "{} ended with {status}, although no victim had died since its start: {}",
            self.line.join(" "),
            self.said()?
        );
        Ok(())
    }

    /// The output of the command, which has ended.
    fn said(&self) -> Result<String> {
        let mut output = &self.output;
        let mut text = Vec::new();
        output.rewind()?;
        output.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
