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
        let host = self.host(name)?;
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let start = Instant::now();
        let mut command = Printed::new(name);
        let mut printed = None;
        let ctl = watched::run(&mut on.command(&words)?, &words.join(" "), |line| {
            watched::show(line)?;
            if let Some(command) = command.take(line) {
                printed = Some(start.elapsed());
                before_boot();
                self.lab.power_on(&[name.to_owned()])?;
                enrol(host, &command)?;
            }
            Ok(())
        })?;
        let status = ctl.status;
        ensure!(status.success(), "replacing {name} ended with {status}");
        printed.with_context(|| format!("no command for {name} was printed"))
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
