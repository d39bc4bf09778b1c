//! Replacing a lost host by the operator's one command: it prints the line to run on the new host,
//! and waits for that.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Cluster;
use super::adding::enrol;
use crate::host::Host;
use crate::watched;

/// The command that `ctl` prints for a host, searched in its lines: from the heading to the next
/// empty line.
struct Printed {
    /// The line above it.
    heading: String,
    is_below: bool,
    lines: Vec<String>,
}

impl Printed {
    fn new(name: &str) -> Self {
        Self {
            heading: format!("Run this on {name}, as root:"),
            is_below: false,
            lines: Vec::new(),
        }
    }

    /// Takes the next line; returns the command when it has ended.
    fn take(&mut self, line: &str) -> Option<String> {
        let line = line.trim();
        if !self.is_below {
            self.is_below = line == self.heading;
            return None;
        }
        if !line.is_empty() {
            self.lines.push(line.to_owned());
            return None;
        }
        if self.lines.is_empty() {
            return None;
        }
        self.is_below = false;
        Some(std::mem::take(&mut self.lines).join("\n"))
    }
}

impl Cluster {
    /// Replaces a host that is off and has no disks: boots it once `ctl node replace` has printed
    /// the command for the new one, and runs that there. Returns the time until it was printed.
    pub fn replace(&self, name: &str) -> Result<Duration> {
        self.replace_on(&self.bootstrap, name)
    }

    /// The same with `ctl` on another host.
    pub fn replace_on(&self, on: &Host, name: &str) -> Result<Duration> {
        let words = ["ctl", "node", "replace", name];
        let confirmed = ["--force", "--cluster", "demo"];
        self.replace_by(on, name, &[&words[..], &confirmed].concat())
    }

    /// The same by a command on that host.
    pub fn replace_by<S: AsRef<str>>(
        &self,
        on: &Host,
        name: &str,
        command: &[S],
    ) -> Result<Duration> {
        self.replace_by_after(on, name, command, || ())
    }

    /// The same. `before_boot` is called when the command for the new host has been printed, while
    /// there is no host of that name.
    pub fn replace_by_after<S: AsRef<str>>(
        &self,
        on: &Host,
        name: &str,
        command: &[S],
        mut before_boot: impl FnMut(),
    ) -> Result<Duration> {
        let start = Instant::now();
        let mut printed = None;
        self.enrol_while(on, command, &[name], |_| {
            printed = Some(start.elapsed());
            before_boot();
            self.lab.power_on(&[name.to_owned()])
        })
        .with_context(|| format!("replacing {name}"))?;
        printed.with_context(|| format!("no command for {name} was printed"))
    }

    /// Runs a command on a host that prints the commands for new hosts, and runs each of these on
    /// its host. `before` is called with the host's name when its command has been printed. Returns
    /// the output of the command.
    pub fn enrol_while<S: AsRef<str>>(
        &self,
        on: &Host,
        command: &[S],
        names: &[&str],
        mut before: impl FnMut(&str) -> Result<()>,
    ) -> Result<String> {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let shown = words.join(" ");
        let mut printed: Vec<_> = names
            .iter()
            .map(|name| (*name, Printed::new(name)))
            .collect();
        let ctl = watched::run(&mut on.command(&words)?, &shown, |line| {
            watched::show(line)?;
            for (name, printed) in &mut printed {
                if let Some(command) = printed.take(line) {
                    before(name)?;
                    enrol(self.host(name)?, &command)?;
                }
            }
            Ok(())
        })?;
        let status = ctl.status;
        ensure!(status.success(), "`{shown}` ended with {status}");
        Ok(String::from_utf8_lossy(&ctl.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_command_is_found_below_the_name_of_its_host() {
        let lines = [
            "cp-2  member ✓  0.3 s",
            "Run this on cp-1, as root:",
            "",
            "(one) <<E",
            "token",
            "E",
            "",
            "Run this on cp-2, as root:",
            "",
            "(two) <<E",
            "token",
            "E",
            "",
            "! cp-2  enrolled: waiting for 10 s until cp-2 has connected",
            "",
        ];
        let mut command = Printed::new("cp-2");
        let found: Vec<String> = (lines.into_iter())
            .filter_map(|line| command.take(line))
            .collect();
        assert_eq!(found, ["(two) <<E\ntoken\nE"]);
    }
}
