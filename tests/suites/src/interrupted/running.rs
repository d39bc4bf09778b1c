//! A running command of `ctl`, with the steps that it has shown.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use halite_lab::host::Host;
use halite_lab::wait;

/// Limit for a step to end, and for a command.
const LIMIT: Duration = Duration::from_secs(900);

/// A command that runs in a host.
pub(crate) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: thread::JoinHandle<()>,
}

impl Running {
    /// Starts a command. Without a terminal it prints a line when a step has ended: the master has
    /// already recorded that.
    pub(crate) fn start<S: AsRef<str>>(host: &Host, words: &[S]) -> Result<Self> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let line = format!("exec {} 2>&1", words.join(" "));
        let mut child = host
            .command(&["sh", "-c", &line])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nsenter")?;
        let output = child.stdout.take().context("no output")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        Ok(Self {
            child,
            lines,
            reader,
        })
    }

    fn said(&self) -> Vec<String> {
        let lines = self.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of printed lines.
    pub(crate) fn line_count(&self) -> usize {
        self.said().len()
    }

    /// Returns whether the command has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Returns whether the end of a step has been shown.
    pub(crate) fn has_shown(&self, step: &str) -> bool {
        is_end_in(&self.said(), step)
    }

    /// Waits until the end of a step is shown; an error if the command ends earlier. `each_time` is
    /// called while it waits.
    pub(crate) fn wait_for(
        &mut self,
        step: &str,
        mut each_time: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let what = format!("the end of the step {step}");
        let over = wait::promptly(&what, LIMIT, || {
            let status = self.child.try_wait()?;
            if self.has_shown(step) {
                return Ok(None);
            }
            // Its last lines may not have been read yet.
            if let Some(status) = status.filter(|_| self.reader.is_finished()) {
                return Ok((!self.has_shown(step)).then_some(status));
            }
            each_time()?;
            Err(anyhow!("the command runs, and has not shown it"))
        })?;
        match over {
            None => Ok(()),
            Some(status) => bail!(
                "the command ended with {status} before the end of the step {step}:\n{}",
                self.said().join("\n")
            ),
        }
    }

    /// Waits until a line has all of these parts, and returns it; an error if the command ends
    /// earlier.
    pub(crate) fn wait_for_line(&mut self, parts: &[&str]) -> Result<String> {
        let found = self.next_line(0, |line| parts.iter().all(|part| line.contains(part)))?;
        let (_, line) = found.with_context(|| {
            let said = self.said().join("\n");
            format!("the command ended without a line with {parts:?}: {said}")
        })?;
        Ok(line)
    }

    /// Waits until one of the lines beyond the first `seen` ones is wanted. Returns the number of
    /// lines up to it, and the line; `None` once the command has ended.
    pub(crate) fn next_line(
        &mut self,
        seen: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<(usize, String)>> {
        wait::until("another line, or the end", LIMIT, || {
            // Before the check, so that the last lines are seen.
            let over = self.child.try_wait()?.is_some() && self.reader.is_finished();
            let said = self.said();
            let mut further = said.iter().enumerate().skip(seen);
            match further.find(|(_, line)| is_wanted(line)) {
                Some((place, line)) => Ok(Some((place + 1, line.clone()))),
                None if over => Ok(None),
                None => Err(anyhow!("it says: {}", said.join("\n"))),
            }
        })
    }

    /// Waits until one more line shows the end of a step, beyond the first `shown` ones; returns
    /// it, or `None` once the command has ended.
    pub(crate) fn next_end(&mut self, shown: usize) -> Result<Option<String>> {
        wait::promptly("the end of another step", LIMIT, || {
            let over = self.child.try_wait()?.is_some() && self.reader.is_finished();
            let mut ends = self.said().into_iter().filter(|line| is_an_end(line));
            match ends.nth(shown) {
                Some(line) => Ok(Some(line)),
                None if over => Ok(None),
                None => Err(anyhow!("{shown} steps have ended")),
            }
        })
    }

    /// Waits for the end of the command; `each_time` is called while it waits. Returns its status
    /// and its output.
    pub(crate) fn ended(
        mut self,
        mut each_time: impl FnMut() -> Result<()>,
    ) -> Result<(ExitStatus, String)> {
        let status = wait::until("the command to end", LIMIT, || {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            each_time()?;
            Err(anyhow!("it still runs: {}", self.said().join("\n")))
        })?;
        let lines = Arc::clone(&self.lines);
        // Its output has ended with it.
        self.reader
            .join()
            .map_err(|_| anyhow!("the reader of its output panicked"))?;
        let said = lines.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((status, said.join("\n")))
    }
}

/// Returns whether a line shows the end of any step.
fn is_an_end(line: &str) -> bool {
    let mark = line.trim_end().contains(" ✓") || line.trim_end().ends_with(" –");
    mark && line.contains("  ") && !line.starts_with('!')
}

/// Returns whether one of the lines shows the end of a step. After a failure the steps that the run
/// does not reach have lines, too.
fn is_end_in(lines: &[String], step: &str) -> bool {
    let mut reached = lines.iter().take_while(|line| !line.contains(" ✗"));
    reached.any(|line| is_end_of(line, step))
}

/// Returns whether a line shows the end of a step: `worker-1  drained ✓  1.2 s`.
fn is_end_of(line: &str, step: &str) -> bool {
    let after = line.split_once(&format!("  {step} "));
    after.is_some_and(|(_, rest)| rest.contains('✓') || rest.contains('–'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_step_is_told_from_its_waits() {
        assert!(is_end_of("cp-3  vip ✓  1.2 s", "vip"));
        assert!(is_end_of("worker-1  names (offline: cp-2) ✓", "names"));
        assert!(is_end_of("worker-1  custom –", "custom"));
        assert!(!is_end_of("worker-1  custom ✗  3.0 s", "custom"));
        assert!(!is_end_of(
            "! cp-3  vip: waiting for 10 s until another host has it",
            "vip"
        ));
        assert!(!is_end_of("cp-3  vip ✓  1.2 s", "member"));
        assert!(!is_end_of("cp-3  other-masters ✓", "masters"));
        let failed = ["cp-3  vip ✓", "cp-3  drained ✗  3.0 s", "cp-3  member –"];
        let failed = failed.map(str::to_owned);
        assert!(is_end_in(&failed, "vip") && !is_end_in(&failed, "member"));
        assert!(is_an_end("upgrade  backup ✓  1.2 s") && is_an_end("worker-1  custom –"));
        assert!(!is_an_end("! cp-3  vip: waiting for 10 s") && !is_an_end("upgraded to v1.36.4"));
    }
}
