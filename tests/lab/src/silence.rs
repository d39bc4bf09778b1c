//! Silences in the output of a command of `ctl` that shows the steps of an orchestration.
//!
//! Without a terminal, `ctl` prints a line at the end of each step, one line when a step has waited
//! for ten seconds, and another one when the reason of the wait has changed. So a step must not be
//! quiet from its start, which is the end of the previous step in the same run, to its first line.
//! After that line it may be quiet as long as its reason is the same.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The longest silence at the start of a step, in time for which this machine was not held up. It
/// is the sum of the master's own times: it names the reason of a wait after ten seconds, and
/// before that a step may wait ten seconds for the answer of a host, and ten for hosts that
/// reconnect.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A silence that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Its length.
    pub time: Duration,
    /// The line before it.
    pub after: String,
    /// The line that ended it.
    pub before: String,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "was silent for {} s after {:?}, until {:?}",
            self.time.as_secs(),
            self.after,
            self.before
        )
    }
}

/// The silences of one command, measured line by line.
#[derive(Debug)]
pub struct Silences {
    limit: Duration,
    /// The runs of which a step has just ended: the label, the time, and the line.
    ended: BTreeMap<String, (Duration, String)>,
    found: Vec<Silence>,
}

impl Silences {
    /// Measures with this limit.
    #[must_use]
    pub fn longer_than(limit: Duration) -> Self {
        Self {
            limit,
            ended: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// Takes the next line, at this time since the start of the command. A silence that
    /// `is_excused`, by its length, does not count.
    pub fn take(&mut self, at: Duration, line: &str, is_excused: impl FnOnce(Duration) -> bool) {
        let kind = Kind::of(line);
        let label = match kind {
            Kind::End(label) | Kind::Failure(label) | Kind::Wait(label) => label,
            // The command reports something else: it is between two runs, or waits for the master.
            Kind::Other => return self.ended.clear(),
        };
        if let Some((since, after)) = self.ended.remove(label) {
            let time = at.saturating_sub(since);
            if time > self.limit && !is_excused(time) {
                self.found.push(Silence {
                    time,
                    after,
                    before: line.to_owned(),
                });
            }
        }
        if matches!(kind, Kind::End(_)) {
            self.ended.insert(label.to_owned(), (at, line.to_owned()));
        }
    }

    /// The silences that were too long.
    #[must_use]
    pub fn found(self) -> Vec<Silence> {
        self.found
    }
}

/// A line, with the label of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'l> {
    /// A step has ended, and the next one starts: `cp-2  images ✓  1.5 s`.
    End(&'l str),
    /// A step has failed, and its run ends: `cp-2  images ✗  3.0 s`.
    Failure(&'l str),
    /// A step waits: `! cp-2  images: waiting for 10 s until …`.
    Wait(&'l str),
    /// Any other line.
    Other,
}

impl<'l> Kind<'l> {
    fn of(line: &'l str) -> Self {
        Self::wait(line)
            .or_else(|| Self::end(line))
            .unwrap_or(Self::Other)
    }

    fn wait(line: &'l str) -> Option<Self> {
        let (label, step) = line.strip_prefix("! ")?.split_once("  ")?;
        let (name, _) = step.split_once(": waiting for ")?;
        is_name(name).then_some(Self::Wait(label))
    }

    fn end(line: &'l str) -> Option<Self> {
        let (label, step) = line.split_once("  ")?;
        let (name, outcome) = step.split_once(' ')?;
        if label.is_empty() || label.starts_with('!') || !is_name(name) {
            return None;
        }
        // `(offline: worker-1) ✓  0.2 s`
        let remarks = outcome.strip_prefix('(');
        let outcome = remarks.map_or(Some(outcome), |rest| {
            rest.rsplit_once(") ").map(|(_, outcome)| outcome)
        })?;
        let (mark, time) = outcome.split_once("  ").unwrap_or((outcome, ""));
        let is_time = time.is_empty() || time.ends_with(" s");
        match mark {
            "✓" | "–" if is_time => Some(Self::End(label)),
            "✗" if is_time => Some(Self::Failure(label)),
            _ => None,
        }
    }
}

/// Returns whether a text is the name of a step, which has no space.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: &str = "! cp-2  host: waiting for 10 s (usually 22 s here) until cp-2 has returned: the job \
                        20261126113125728000 runs there: packages are installed";

    /// The silences of lines at these seconds.
    fn silences(lines: &[(u64, &str)]) -> Vec<Silence> {
        let mut silences = Silences::longer_than(LIMIT);
        for (second, line) in lines {
            silences.take(Duration::from_secs(*second), line, |_| false);
        }
        silences.found()
    }

    #[test]
    fn lines_are_told_apart() {
        for (line, kind) in [
            ("cp-2  images ✓  1.5 s", Kind::End("cp-2")),
            ("bundle 0.1.0  cp-1 ✓  2 min 3 s", Kind::End("bundle 0.1.0")),
            (
                "cp-2  names (offline: w-1, w-2) ✓  0.1 s",
                Kind::End("cp-2"),
            ),
            ("w-1  enrolled (fingerprint ab:cd) ✓", Kind::End("w-1")),
            ("worker-1  custom –", Kind::End("worker-1")),
            ("cp-2  images ✗  3.0 s", Kind::Failure("cp-2")),
            (WAIT, Kind::Wait("cp-2")),
            ("preflight    ✓ 33 checks", Kind::Other),
            (
                "master       ✓ runs here, and this host's minion is connected",
                Kind::Other,
            ),
            ("Run this on cp-2, as root:", Kind::Other),
            ("✓ cp-2 is Ready (41 s).", Kind::Other),
            ("! cp-2  cancelled by alice", Kind::Other),
            ("waiting for the next master", Kind::Other),
            ("  curl  --silent x", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(line), kind, "{line}");
        }
    }

    #[test]
    fn a_step_without_a_line_is_a_silence() {
        let found = silences(&[
            (0, "cp-2  host ✓  1.0 s"),
            (30, "cp-2  images ✓  30 s"),
            (61, "cp-2  member ✓  31 s"),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "was silent for 31 s after \"cp-2  images ✓  30 s\", until \"cp-2  member ✓  31 s\""
        );
        // A first line of a wait that comes too late, and a failure.
        let late = silences(&[(0, "cp-2  peers ✓"), (31, WAIT)]);
        assert_eq!(late.len(), 1);
        let failure = silences(&[(0, "cp-2  peers ✓"), (31, "cp-2  host ✗  31 s")]);
        assert_eq!(failure.len(), 1);
    }

    #[test]
    fn a_wait_that_was_named_may_be_long() {
        let lines = [
            (0, "cp-2  peers ✓  1.0 s"),
            (10, WAIT),
            (90, "cp-2  host ✓  90 s"),
            (91, "cp-2  images ✓  1.0 s"),
        ];
        assert_eq!(silences(&lines), []);
    }

    #[test]
    fn each_run_has_a_clock_of_its_own() {
        let found = silences(&[
            (0, "cp-2  peers ✓"),
            (0, "cp-3  peers ✓"),
            (20, "cp-3  host ✓  20 s"),
            (35, "cp-2  host ✓  35 s"),
            (40, "cp-3  images ✓  20 s"),
        ]);
        let of: Vec<&str> = found.iter().map(|silence| silence.after.as_str()).collect();
        assert_eq!(of, ["cp-2  peers ✓"]);
    }

    #[test]
    fn time_between_two_runs_does_not_count() {
        let lines = [
            (0, "cp-2  forgotten ✓  0.1 s"),
            (1, "Run this on cp-2, as root:"),
            (60, "cp-2  enrolled ✓  58 s"),
        ];
        assert_eq!(silences(&lines), []);
    }

    #[test]
    fn a_silence_is_excused_by_its_length() {
        let mut silences = Silences::longer_than(LIMIT);
        let mut asked = Vec::new();
        for (second, line) in [
            (0, "cp-2  a ✓"),
            (20, "cp-2  b ✓"),
            (51, "cp-2  c ✓"),
            (91, "cp-2  d ✓"),
        ] {
            silences.take(Duration::from_secs(second), line, |time| {
                asked.push(time.as_secs());
                time.as_secs() < 35
            });
        }
        assert_eq!(asked, [31, 40]);
        let found = silences.found();
        assert_eq!((found.len(), found[0].time.as_secs()), (1, 40));
    }
}
