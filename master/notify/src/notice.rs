//! Findings as notifications describe them, and their identity from one round to the next.

use std::net::{Ipv4Addr, SocketAddrV4};

use halite_api::{CheckState, Health};
use halite_pillar::notify::NoticeSeverity;
use halite_store::Millis;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of a fingerprint.
const LENGTH: usize = 8;
/// The most characters of a message: a request with long ones may be refused.
const MESSAGE: usize = 1000;
/// Words that count with the number before them.
const UNITS: [&str; 13] = [
    "B", "KiB", "MiB", "GiB", "TiB", "day", "days", "h", "hour", "hours", "minutes", "s", "seconds",
];
/// Letters of a time (RFC 3339) or a duration.
const TIME_LETTERS: &str = "TZdhms";

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The name of the check.
    pub check: String,
    /// The sound state, as a heading.
    pub title: String,
    /// The severity.
    pub severity: NoticeSeverity,
    /// The host; `None` if the finding is about the cluster, or names the host in its message.
    pub host: Option<String>,
    /// The finding, in one sentence.
    pub message: String,
    /// The operator's next step.
    pub remedy: Option<String>,
    /// The time at which a round found it first.
    pub since: Millis,
}

impl Notice {
    /// The identity of a finding: 16 hexadecimal digits of the check, the host and the message
    /// without its numbers and times, which change while the finding stays the same.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = format!("{}\n{}\n", self.check, self.host.as_deref().unwrap_or(""));
        let mut after_number = false;
        for word in self.message.split_whitespace() {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
            if is_number(bare) {
                after_number = true;
                continue;
            }
            if !(after_number && UNITS.contains(&bare)) {
                text.push_str(word);
                text.push(' ');
            }
            after_number = false;
        }
        short_digest(&text)
    }
}

/// The first 16 hexadecimal digits of a text's digest.
pub(crate) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes = digest.iter().take(LENGTH);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a word is a number, a time or a duration, and not an address or a name.
fn is_number(word: &str) -> bool {
    let is_address = word.parse::<Ipv4Addr>().is_ok() || word.parse::<SocketAddrV4>().is_ok();
    let fits = |c: char| !c.is_alphabetic() || TIME_LETTERS.contains(c);
    word.starts_with(|c: char| c.is_ascii_digit()) && !is_address && word.chars().all(fits)
}

/// The findings of a round, first seen at `now`.
#[must_use]
pub fn notices(health: &Health, now: Millis) -> Vec<Notice> {
    let mut found = Vec::new();
    for check in &health.checks {
        let severity = match check.state {
            CheckState::Failure => NoticeSeverity::Failure,
            _ => NoticeSeverity::Warning,
        };
        found.extend(check.findings.iter().map(|finding| Notice {
            check: check.name.clone(),
            title: check.title.clone(),
            severity,
            host: finding.host.clone(),
            message: finding.message.chars().take(MESSAGE).collect(),
            remedy: finding.remedy.clone(),
            since: now,
        }));
    }
    found
}

/// A notice for tests of this crate.
#[cfg(test)]
pub(crate) fn sample(check: &str, host: &str, message: &str) -> Notice {
    Notice {
        check: check.to_owned(),
        title: format!("{check} is sound"),
        severity: NoticeSeverity::Failure,
        host: Some(host.to_owned()).filter(|host| !host.is_empty()),
        message: message.to_owned(),
        remedy: Some("`ctl highstate`".to_owned()),
        since: 0,
    }
}

#[cfg(test)]
mod tests {
    use halite_api::{CheckResult, HealthFinding};

    use super::*;

    fn same(one: &str, other: &str) -> bool {
        sample("a", "h", one).fingerprint() == sample("a", "h", other).fingerprint()
    }

    #[test]
    fn a_finding_whose_numbers_change_stays_the_same() {
        for (one, other) in [
            ("it ends in 55 days: /a", "it ends in 1 day: /a"),
            ("only 3 MiB are free", "only 1.5 GiB are free"),
            (
                "gone since 2026-11-28T08:00:00.000Z: cut off",
                "gone since 2026-11-29T09:00Z: cut off",
            ),
            ("has used 80 % of its quota", "has used 91 % of its quota"),
            ("silent for 10m", "silent for 1h5m"),
        ] {
            assert!(same(one, other), "{one} / {other}");
        }
    }

    #[test]
    fn findings_about_other_things_differ() {
        for (one, other) in [
            ("the member cp-1 is away", "the member cp-2 is away"),
            ("10.0.0.1 is silent", "10.0.0.2 is silent"),
            ("10.0.0.1:2379 is silent", "10.0.0.2:2379 is silent"),
            ("/a.crt ends in 3 days", "/b.crt ends in 3 days"),
            ("days are short", "are short"),
        ] {
            assert!(!same(one, other), "{one} / {other}");
        }
        let (one, other) = (sample("a", "h", "x"), sample("b", "h", "x"));
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_ne!(
            one.fingerprint(),
            sample("a", "i", "x").fingerprint(),
            "another host"
        );
        assert_eq!(one.fingerprint().len(), 16);
    }

    #[test]
    fn each_finding_of_a_round_is_a_notice() {
        let finding = |host: Option<&str>| HealthFinding {
            message: "m".to_owned(),
            host: host.map(str::to_owned),
            remedy: None,
        };
        let check = |name: &str, state, findings| CheckResult {
            name: name.to_owned(),
            title: "t".to_owned(),
            state,
            findings,
        };
        let health = Health {
            healthy: false,
            checks: vec![
                check("a", CheckState::Good, Vec::new()),
                check("b", CheckState::Warning, vec![finding(None)]),
                check(
                    "c",
                    CheckState::Failure,
                    vec![finding(Some("h")), finding(None)],
                ),
            ],
        };
        let found = notices(&health, 7);
        let found: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    one.check.as_str(),
                    one.severity.as_str(),
                    one.host.as_deref(),
                    one.since,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("b", "warning", None, 7),
                ("c", "failure", Some("h"), 7),
                ("c", "failure", None, 7)
            ]
        );
    }

    #[test]
    fn a_long_message_is_cut() {
        let finding = HealthFinding {
            message: "é".repeat(5000),
            host: None,
            remedy: None,
        };
        let check = CheckResult {
            name: "a".to_owned(),
            title: "t".to_owned(),
            state: CheckState::Failure,
            findings: vec![finding],
        };
        let health = Health {
            healthy: false,
            checks: vec![check],
        };
        assert_eq!(notices(&health, 0)[0].message, "é".repeat(MESSAGE));
    }
}
