//! A command that is run again when it ends early.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::host::Host;
use halite_lab::wait;

use super::Running;

/// Limit for a command that is run again to reach a step, or to succeed.
const AGAIN: Duration = Duration::from_secs(300);

/// The time in which a command that joins a run shows the steps that have ended.
const BURST: Duration = Duration::from_millis(50);

/// A command of `ctl` that is run again when it ends early.
pub(crate) struct Repeated<'c> {
    host: &'c Host,
    words: Vec<String>,
    each_time: Box<dyn Fn() -> Result<()> + 'c>,
    is_over: Box<dyn Fn(&str) -> bool + 'c>,
    running: Option<Running>,
    /// `true` if it was started again, and no step has been reached since.
    has_joined: bool,
    /// `true` once it has succeeded, or has failed because an earlier run has already finished.
    is_done: bool,
    /// The output of the last one that has ended.
    said: String,
}

impl<'c> Repeated<'c> {
    /// Starts the command on a host.
    pub(crate) fn start<S: AsRef<str>>(host: &'c Host, words: &[S]) -> Result<Self> {
        Ok(Self {
            host,
            words: words.iter().map(|word| word.as_ref().to_owned()).collect(),
            each_time: Box::new(|| Ok(())),
            is_over: Box::new(|_| false),
            running: Some(Running::start(host, words)?),
            has_joined: false,
            is_done: false,
            said: String::new(),
        })
    }

    /// Sets the function that is called while it waits.
    pub(crate) fn each_time(self, each_time: impl Fn() -> Result<()> + 'c) -> Self {
        let each_time = Box::new(each_time);
        Self { each_time, ..self }
    }

    /// Sets the function that returns whether an earlier run has already finished. It is given the
    /// output of a failed command.
    pub(crate) fn over(self, is_over: impl Fn(&str) -> bool + 'c) -> Self {
        let is_over = Box::new(is_over);
        Self { is_over, ..self }
    }

    /// Waits for the end of a step. Returns `false` if its moment was missed: the end of one of the
    /// `later` steps is shown as well, or the command is done without having shown the step.
    ///
    /// The `first` step of a run that was just started cannot be missed, and the command may not
    /// fail before its end. After a power cut the cluster may refuse it for a while.
    pub(crate) fn reach(&mut self, step: &str, later: &[&str], first: bool) -> Result<bool> {
        let limit = if first { Duration::ZERO } else { AGAIN };
        let is_shown = wait::until(&format!("the end of the step {step}"), limit, || {
            self.start_again()?;
            let Some(running) = &mut self.running else {
                return Ok(false);
            };
            let Err(early) = running.wait_for(step, &self.each_time) else {
                return Ok(true);
            };
            self.ended()?;
            if self.is_done { Ok(false) } else { Err(early) }
        })?;
        if first || !is_shown {
            return Ok(is_shown);
        }
        if std::mem::take(&mut self.has_joined) {
            thread::sleep(BURST);
        }
        Ok(!self.has_shown(later))
    }

    /// Returns whether the end of one of these steps has been shown.
    fn has_shown(&self, steps: &[&str]) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| steps.iter().any(|step| running.has_shown(step)))
    }

    /// Starts the command again, unless it runs or is done.
    fn start_again(&mut self) -> Result<()> {
        if self.running.is_none() && !self.is_done {
            self.running = Some(Running::start(self.host, &self.words)?);
            self.has_joined = true;
        }
        Ok(())
    }

    /// Starts the command again if it has ended early, and does not wait for its end. Returns the
    /// output of the last one that has ended.
    pub(crate) fn keep_on(&mut self) -> Result<&str> {
        if let Some(running) = &mut self.running
            && running.has_ended()?
        {
            self.ended()?;
        }
        self.start_again()?;
        Ok(&self.said)
    }

    /// Waits for the end of the command, if it runs.
    pub(crate) fn ended(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        let (status, said) = running.ended(&self.each_time)?;
        self.is_done = status.success() || (self.is_over)(&said);
        self.said = said;
        Ok(())
    }

    /// Waits until the command has succeeded; returns its output.
    pub(crate) fn succeeds(mut self) -> Result<String> {
        wait::until("the command to succeed when it is run again", AGAIN, || {
            self.start_again()?;
            self.ended()?;
            ensure!(self.is_done, "it ended with {}", self.said);
            Ok(())
        })?;
        Ok(self.said)
    }
}
