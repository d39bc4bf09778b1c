//! No suite reads the date: a run proves the same on every day.

use crate::tree;

/// The suites.
const SUITES: &str = "tests/suites/src/";

/// The file that sets the times of records.
const RECORDS: &str = "tests/suites/src/ledger/mod.rs";

/// Names by which code reads the date, from the standard library and from crates.
const CLOCKS: [&str; 5] = [
    "SystemTime",
    "UNIX_EPOCH",
    "Timestamp::now",
    "Zoned::now",
    "Utc::now",
];

#[test]
fn no_suite_reads_the_date() {
    let mut findings = Vec::new();
    let mut read = 0;
    for file in tree::files(&[".rs"]) {
        if !file.path.starts_with(SUITES) || file.path == RECORDS {
            continue;
        }
        read += 1;
        for (number, line) in file.text.lines().enumerate() {
            if CLOCKS.iter().any(|clock| line.contains(clock)) {
                findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert!(read > 100, "only {read} files are in {SUITES}");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
