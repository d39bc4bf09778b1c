//! Every check of `ctl health` has a row in `docs/dev/remedies.md`, with the test that runs its
//! remedy.

use crate::named_tests::{missing, rows};
use crate::tree;

const PATH: &str = "docs/dev/remedies.md";
/// The table of the checks.
const CHECKS: &str = "master/src/operator/health/mod.rs";
/// The starts of the last column.
const KINDS: [&str; 4] = ["the printed ", "the same ", "nothing to run", "not run: "];

/// The names of the checks, in their order.
fn checks() -> Vec<String> {
    let source = std::fs::read_to_string(tree::root().join(CHECKS)).unwrap();
    let (_, table) = source.split_once("const CHECKS: &[Check] = &[").unwrap();
    let (table, _) = table.split_once("\n];").unwrap();
    let lines = table.lines().map(str::trim);
    let names = lines.filter_map(|line| line.strip_prefix("name: \"")?.strip_suffix("\","));
    names.map(str::to_owned).collect()
}

#[test]
fn every_remedy_is_run_by_a_test_or_has_a_reason() {
    let (checks, rows) = (checks(), rows(PATH, "check"));
    // Fewer would mean that the table has changed its form and is no longer read.
    assert!(checks.len() > 40, "{checks:?}");
    let named: Vec<&str> = rows.iter().map(|row| row.cells[0].as_str()).collect();
    assert_eq!(
        named, checks,
        "{PATH}: one row for each check, in their order"
    );
    for row in &rows {
        let what = row.cells.last().unwrap();
        let kind = KINDS.iter().find(|kind| what.starts_with(**kind));
        assert!(kind.is_some(), "{PATH}:{}: {what}", row.line);
        let is_run = !what.starts_with("not run: ");
        assert_eq!(!row.tests.is_empty(), is_run, "{PATH}:{}", row.line);
    }
    let findings = missing(PATH, &rows);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
