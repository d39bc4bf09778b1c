//! The allow-list: every intended difference between Halite's cluster and kubeadm's, with its
//! reason.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::difference::Difference;

/// The list itself, included at compile time.
const LIST: &str = include_str!("../../kubeadm-allowed.yaml");

/// The further list for clusters that were upgraded.
const OF_UPGRADES: &str = include_str!("../../kubeadm-upgraded-allowed.yaml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Glob over the place of a difference.
    r#where: String,
    /// Glob over its path; an empty one means the whole place.
    path: String,
    /// Reason for the difference.
    reason: String,
}

/// The allow-list, with a record of the entries that were used.
#[derive(Debug)]
pub(super) struct Allowed {
    entries: Vec<(Entry, bool)>,
}

impl Allowed {
    /// The committed list.
    pub(super) fn load() -> Result<Self> {
        Self::parse(LIST).context("tests/suites/kubeadm-allowed.yaml")
    }

    /// The committed list for clusters that were upgraded to another minor version.
    pub(super) fn of_upgrades() -> Result<Self> {
        let mut list = Self::load()?;
        let further = Self::parse(OF_UPGRADES);
        let further = further.context("tests/suites/kubeadm-upgraded-allowed.yaml")?;
        list.entries.extend(further.entries);
        Ok(list)
    }

    fn parse(text: &str) -> Result<Self> {
        let entries: Vec<Entry> = serde_saphyr::from_str(text)?;
        for entry in &entries {
            ensure!(
                !entry.reason.trim().is_empty(),
                "{} {:?} has no reason",
                entry.r#where,
                entry.path
            );
        }
        Ok(Self {
            entries: entries.into_iter().map(|entry| (entry, false)).collect(),
        })
    }

    /// Returns whether the list allows a difference. The first entry that matches counts as used.
    pub(super) fn allows(&mut self, difference: &Difference) -> bool {
        let fitting = self
            .entries
            .iter_mut()
            .find(|(e, _)| fits(&e.r#where, &difference.place) && fits(&e.path, &difference.path));
        if let Some((_, used)) = fitting {
            *used = true;
            return true;
        }
        false
    }

    /// Entries that matched no difference: they are obsolete.
    pub(super) fn unused(&self) -> Vec<String> {
        let unused = self.entries.iter().filter(|(_, used)| !used);
        unused
            .map(|(entry, _)| {
                format!(
                    "{}: {:?} ({})",
                    entry.r#where,
                    entry.path,
                    entry.reason.trim()
                )
            })
            .collect()
    }
}

/// Returns whether a text matches a pattern in which `*` matches any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('*').collect();
    let Some((last, middle)) = parts.split_last() else {
        return true;
    };
    for part in middle {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("*", "a/b", true),
            ("object/*/x", "object/Role/kube-system/x", true),
            ("object/*/x", "object/x", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    fn difference(place: &str, path: &str) -> Difference {
        Difference {
            place: place.to_owned(),
            path: path.to_owned(),
            reference: None,
            ours: None,
        }
    }

    #[test]
    fn an_unused_entry_is_reported() {
        let text = "- {where: 'p*', path: a, reason: because}\n- {where: p, path: a, reason: never reached}\n";
        let mut allowed = Allowed::parse(text).unwrap();
        assert!(allowed.allows(&difference("p", "a")));
        assert!(!allowed.allows(&difference("p", "b")));
        assert_eq!(allowed.unused(), [r#"p: "a" (never reached)"#]);
    }

    #[test]
    fn every_entry_needs_a_reason() {
        assert!(Allowed::parse("- {where: p, path: a, reason: ' '}").is_err());
        assert!(Allowed::parse("- {where: p, path: a}").is_err());
        Allowed::load().unwrap();
    }
}
