//! `docs/dev/rows.md`: the tests of each capability exist, and each capability has one line. And
//! the differences from Salt have their reasons.

use crate::named_tests::{is_whole, missing, rows};
use crate::tree;

const DOCUMENT: &str = "docs/dev/rows.md";
const FROM_SALT: &str = "docs/coming-from-salt.md";
/// The text in the last cell of a line without a test.
const NONE: &str = "not shown yet";
/// The capabilities that keep a cluster alive for years, in the order of the document.
const CAPABILITIES: [&str; 15] = [
    "M16", "M24", "M25", "M27", "M44", "M68", "M69", "M75", "M79", "M80", "M84", "M90", "N7",
    "N17", "N18",
];

#[test]
fn every_difference_from_salt_has_its_reason() {
    let page = tree::files(&[".md"]);
    let page = page.iter().find(|file| file.path == FROM_SALT).unwrap();
    let rows = (1..).zip(page.text.lines());
    let rows = rows.skip_while(|(_, line)| !line.starts_with("| in Salt | in Halite | why |"));
    let rows = rows.skip(2).take_while(|(_, line)| line.starts_with('|'));
    let mut count = 0;
    for (number, row) in rows {
        count += 1;
        let cells = row.trim_end().trim_end_matches('|').trim_end();
        // Without a reason, the row ends with the bar before it.
        assert!(!cells.ends_with('|'), "{FROM_SALT}:{number} has no reason");
    }
    assert!(count > 40, "{count} rows");
}

#[test]
fn every_test_of_a_capability_exists() {
    let rows = rows(DOCUMENT, "row");
    let named: usize = rows.iter().map(|row| row.tests.len()).sum();
    // Fewer rows mean that the format of the table has changed, so that it is not read.
    assert!(named > 40, "{named} names");
    let findings = missing(DOCUMENT, &rows);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_capability_says_if_no_test_shows_it() {
    for row in rows(DOCUMENT, "row") {
        let [.., note] = row.cells.as_slice() else {
            panic!("{DOCUMENT}:{}: two cells at least", row.line)
        };
        assert!(
            !row.tests.is_empty() || note.contains(NONE),
            "{DOCUMENT}:{}: name a test, or say {NONE:?}",
            row.line
        );
    }
}

#[test]
fn each_capability_of_the_list_has_one_line() {
    let rows = rows(DOCUMENT, "row");
    let names: Vec<&str> = rows.iter().map(|row| row.cells[0].as_str()).collect();
    assert_eq!(names, CAPABILITIES);
}

#[test]
fn tests_of_suites_are_named_as_a_whole() {
    for row in rows(DOCUMENT, "row") {
        // The suite is before the first of its tests.
        let mut suite = None;
        for name in &row.tests {
            if !name.contains(' ') {
                suite = name.strip_suffix(':');
                continue;
            }
            assert!(
                suite.is_some_and(|suite| is_whole(suite, name)),
                "{DOCUMENT}:{}: the suite {suite:?} has no test with the whole name `{name}`",
                row.line
            );
        }
    }
}
