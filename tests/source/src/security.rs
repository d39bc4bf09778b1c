//! Every test that `docs/dev/security.md` names exists.

use crate::named_tests::{missing, rows};

#[test]
fn every_test_of_the_security_document_exists() {
    let path = "docs/dev/security.md";
    let rows = rows(path, "finding");
    let named: usize = rows.iter().map(|row| row.tests.len()).sum();
    // Fewer would mean that the table has changed its form and is no longer read.
    assert!(named > 150, "{named} names");
    let findings = missing(path, &rows);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
