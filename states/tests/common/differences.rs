//! The tables of differences from Salt in `docs/coming-from-salt.md`. Each difference that a test
//! finds is a row of its table, and each row is a difference that occurs.

use std::collections::BTreeSet;
use std::path::Path;

/// A difference: the first cells of its row.
pub type Difference<const CELLS: usize> = [String; CELLS];

/// Compares the differences that a test found with the table between `<!-- NAME -->` and
/// `<!-- end of NAME -->`.
pub fn compare_with_table<const CELLS: usize>(name: &str, found: &BTreeSet<Difference<CELLS>>) {
    let table = table(name);
    let missing: Vec<_> = found.difference(&table).collect();
    let unused: Vec<_> = table.difference(found).collect();
    assert!(
        missing.is_empty(),
        "not in docs/coming-from-salt.md: {missing:#?}"
    );
    assert!(
        unused.is_empty(),
        "in docs/coming-from-salt.md but not found: {unused:#?}"
    );
}

fn table<const CELLS: usize>(name: &str) -> BTreeSet<Difference<CELLS>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/coming-from-salt.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = (
        format!("<!-- {name} -->"),
        format!("<!-- end of {name} -->"),
    );
    let (_, rest) = text.split_once(&begin).unwrap();
    let (table, _) = rest.split_once(&end).unwrap();
    let mut rows = BTreeSet::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned());
        let row = std::array::from_fn(|_| cells.next().unwrap());
        assert!(rows.insert(row), "twice: {line}");
    }
    rows
}
