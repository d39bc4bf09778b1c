//! The record of a write loop: acknowledged writes, failures, and the longest gap.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One write; the times count from the start of the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Its number, from 0.
    pub number: u64,
    /// The moment at which it was sent.
    pub began: Duration,
    /// The moment of its answer, or of its failure.
    pub ended: Duration,
    /// The cause of its failure; `None` for an acknowledged write.
    pub error: Option<String>,
}

/// All writes of one loop, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRecord {
    /// The moment at which the loop was started, by the clock of the program that started it.
    #[serde(skip)]
    pub started: Option<Instant>,
    /// The writes.
    pub writes: Vec<Write>,
    /// The end of the loop.
    pub end: Duration,
}

/// A time without an acknowledged write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Its length.
    pub length: Duration,
    /// Its start: the answer of the previous write, or the start of the loop.
    pub from: Duration,
    /// The failures in it, without duplicates.
    pub errors: Vec<String>,
}

impl WriteRecord {
    /// The numbers of the acknowledged writes.
    #[must_use]
    pub fn acknowledged(&self) -> BTreeSet<u64> {
        let acknowledged = self.writes.iter().filter(|write| write.error.is_none());
        acknowledged.map(|write| write.number).collect()
    }

    /// The failures of all writes, without duplicates.
    #[must_use]
    pub fn errors(&self) -> BTreeSet<String> {
        let errors = self.writes.iter().filter_map(|write| write.error.clone());
        errors.collect()
    }

    /// The longest time between the answers of two consecutive acknowledged writes; the time before
    /// the first and after the last counts too.
    #[must_use]
    pub fn longest_gap(&self) -> Gap {
        let mut longest = Gap {
            length: Duration::ZERO,
            from: Duration::ZERO,
            errors: Vec::new(),
        };
        let (mut from, mut errors) = (Duration::ZERO, Vec::new());
        let writes = self.writes.iter().map(Some).chain([None]);
        for write in writes {
            if let Some(error) = write.and_then(|write| write.error.as_ref()) {
                if !errors.contains(error) {
                    errors.push(error.clone());
                }
                continue;
            }
            let to = write.map_or(self.end, |write| write.ended);
            let gap = Gap {
                length: to.saturating_sub(from),
                from,
                errors: std::mem::take(&mut errors),
            };
            if gap.length > longest.length {
                longest = gap;
            }
            from = to;
        }
        longest
    }

    /// The number of acknowledged writes and the longest gap, as a test prints them.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} writes acknowledged, longest gap {:.1} s",
            self.acknowledged().len(),
            self.longest_gap().length.as_secs_f64()
        )
    }

    /// The acknowledged writes that are missing in the cluster. It may have others: writes whose
    /// answer was lost.
    #[must_use]
    pub fn missing(&self, present: &BTreeSet<u64>) -> BTreeSet<u64> {
        &self.acknowledged() - present
    }
}

/// The numbers of writes among names of objects or keys: `configmap/PREFIX-7` and `PREFIX-7` are 7.
pub fn numbers<'a>(prefix: &str, names: impl IntoIterator<Item = &'a str>) -> BTreeSet<u64> {
    let number = |name: &str| {
        let name = name.trim().rsplit('/').next()?;
        name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()
    };
    names.into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A record of writes that took no time: their moments, and the failures of some.
    fn record(writes: &[(u64, Option<&str>)], end: u64) -> WriteRecord {
        let write = |(number, (time, error)): (usize, &(u64, Option<&str>))| Write {
            number: u64::try_from(number).unwrap(),
            began: at(*time),
            ended: at(*time),
            error: error.map(str::to_owned),
        };
        WriteRecord {
            started: None,
            writes: writes.iter().enumerate().map(write).collect(),
            end: at(end),
        }
    }

    fn gap(length: u64, from: u64, errors: &[&str]) -> Gap {
        Gap {
            length: at(length),
            from: at(from),
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
        }
    }

    #[test]
    fn failures_make_a_gap_from_answer_to_answer() {
        let record = record(
            &[
                (0, None),
                (50, None),
                (1100, Some("timeout")),
                (2100, Some("timeout")),
                (2150, Some("refused")),
                (2200, None),
                (2250, None),
            ],
            2260,
        );
        assert_eq!(record.longest_gap(), gap(2150, 50, &["timeout", "refused"]));
        assert_eq!(record.acknowledged(), [0, 1, 5, 6].into());
        assert_eq!(record.summary(), "4 writes acknowledged, longest gap 2.1 s");
    }

    #[test]
    fn failures_outside_of_the_longest_gap_are_among_the_errors() {
        let record = record(
            &[
                (0, None),
                (50, Some("refused")),
                (100, None),
                (1100, Some("timeout")),
                (2100, Some("timeout")),
                (2150, None),
            ],
            2160,
        );
        assert_eq!(record.longest_gap(), gap(2050, 100, &["timeout"]));
        let errors = ["refused", "timeout"].map(str::to_owned);
        assert_eq!(record.errors(), errors.into());
    }

    #[test]
    fn a_slow_write_is_a_gap_although_none_failed() {
        let mut record = record(&[(0, None), (50, None), (100, None)], 150);
        record.writes[1].ended = at(900);
        record.writes[2] = Write {
            began: at(900),
            ended: at(910),
            ..record.writes[2].clone()
        };
        record.end = at(960);
        assert_eq!(record.longest_gap(), gap(900, 0, &[]));
    }

    #[test]
    fn the_time_before_the_first_and_after_the_last_answer_counts() {
        let late = record(&[(500, Some("refused")), (700, None)], 750);
        assert_eq!(late.longest_gap(), gap(700, 0, &["refused"]));
        let never_back = record(&[(0, None), (50, Some("refused"))], 5000);
        assert_eq!(never_back.longest_gap(), gap(5000, 0, &["refused"]));
        assert_eq!(record(&[], 80).longest_gap(), gap(80, 0, &[]));
    }

    #[test]
    fn an_acknowledged_write_that_the_cluster_lacks_is_missing() {
        let record = record(&[(0, None), (50, Some("timeout")), (100, None)], 150);
        let names = "configmap/a-0\nconfigmap/a-1\nconfigmap/kube-root-ca.crt\nconfigmap/b-2\n";
        let present = numbers("a", names.lines());
        assert_eq!(present, [0, 1].into());
        assert_eq!(record.missing(&present), [2].into());
        assert!(record.missing(&[0, 1, 2].into()).is_empty());
    }
}
