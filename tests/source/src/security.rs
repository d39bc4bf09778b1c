//! Every test that `docs/dev/security.md` names exists, and every finding of the second review is
//! there.

use crate::named_tests::{missing, rows};

const PATH: &str = "docs/dev/security.md";

#[test]
fn every_test_of_the_security_document_exists() {
    let rows = rows(PATH, "finding");
    let named: usize = rows.iter().map(|row| row.tests.len()).sum();
    // Fewer would mean that the table has changed its form and is no longer read.
    assert!(named > 150, "{named} names");
    let findings = missing(PATH, &rows);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// A finding without a test is accepted, with a reason.
#[test]
fn every_finding_of_the_second_review_has_a_test_or_a_reason() {
    let rows = rows(PATH, "finding");
    for number in 1..=22 {
        let id = format!("S{number}");
        let own = rows.iter().filter(|row| row.cells.first() == Some(&id));
        let own: Vec<_> = own.collect();
        assert!(!own.is_empty(), "{PATH}: {id} has no row");
        for row in own {
            let outcome = row.cells.last().map_or("", String::as_str);
            assert!(
                !row.tests.is_empty() || outcome.starts_with("accepted"),
                "{PATH}:{}: {id} has no test, and is not accepted",
                row.line
            );
        }
    }
}
