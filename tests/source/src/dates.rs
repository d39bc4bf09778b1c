//! No suite reads the date: a run proves the same on every day.

use std::collections::BTreeSet;

use crate::tree;

/// The suites.
const SUITES: &str = "tests/suites/src/";

/// The files that read a clock, and the reason. None of them proves something else on another day.
const READERS: [(&str, &str); 7] = [
    (
        "tests/suites/src/bundles/second.rs",
        "converts the date of a build, and does not read a clock",
    ),
    (
        "tests/suites/src/hardened/issuer.rs",
        "signs tokens that end at a distance from now",
    ),
    (
        "tests/suites/src/kills/power.rs",
        "compares the moment of a power cut with later times of the API",
    ),
    (
        "tests/suites/src/ledger/mod.rs",
        "sets the times of records",
    ),
    (
        "tests/suites/src/lifetimes/mod.rs",
        "signs certificates that end at a distance from now",
    ),
    (
        "tests/suites/src/repair/renewal.rs",
        "computes when a process started, from its age",
    ),
    (
        "tests/suites/src/rotation/clients.rs",
        "notes the moment of each failure, to compare two of them",
    ),
];

/// Texts by which code reads the date: names from the standard library and from crates, and calls
/// of the program.
const CLOCKS: [&str; 7] = [
    "SystemTime",
    "UNIX_EPOCH",
    "Timestamp::now",
    "Zoned::now",
    "Utc::now",
    "\"date\"",
    "$(date",
];

#[test]
fn no_suite_reads_the_date() {
    let mut findings = Vec::new();
    let mut readers = BTreeSet::new();
    let mut read = 0;
    for file in tree::files(&[".rs"]) {
        if !file.path.starts_with(SUITES) {
            continue;
        }
        read += 1;
        for (number, line) in file.text.lines().enumerate() {
            if !CLOCKS.iter().any(|clock| line.contains(clock)) {
                continue;
            }
            if READERS.iter().any(|(path, _)| *path == file.path) {
                readers.insert(file.path.as_str());
            } else {
                findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert!(read > 100, "only {read} files are in {SUITES}");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    for (path, reason) in READERS {
        assert!(
            readers.contains(path),
            "{path} ({reason}) does not read the date: remove it from READERS"
        );
    }
}
