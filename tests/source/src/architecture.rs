//! The crates and their dependencies are those of the table in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree;

const FILE: &str = "ARCHITECTURE.md";

/// A row of the table: the folder, and the packages that the crate may use.
struct Row {
    folder: String,
    may_use: BTreeSet<String>,
}

/// The rows whose first cell is a folder and a package: `` | `proto/` | `halite-proto` | … | ``.
/// The last cell names the packages that it may use, each as code.
fn table(text: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, package, .., may_use] = cells.as_slice() else {
            continue;
        };
        let code = |cell: &str| -> Vec<String> {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        if let ([folder], [package]) = (code(folder).as_slice(), code(package).as_slice()) {
            let row = Row {
                folder: folder.trim_end_matches('/').to_owned(),
                may_use: code(may_use).into_iter().collect(),
            };
            rows.insert(package.clone(), row);
        }
    }
    rows
}

#[test]
fn every_arrow_between_crates_is_in_the_table_and_every_arrow_of_the_table_exists() {
    let text = std::fs::read_to_string(tree::root().join(FILE)).unwrap();
    let mut rows = table(&text);
    let mut findings = Vec::new();
    for package in tree::packages() {
        let Some(row) = rows.remove(&package.name) else {
            findings.push(format!("{}: no row for {}", FILE, package.name));
            continue;
        };
        if row.folder != package.folder {
            findings.push(format!(
                "{}: {} is in {}/, the table says {}/",
                FILE, package.name, package.folder, row.folder
            ));
        }
        let uses: BTreeSet<String> = package.uses.iter().cloned().collect();
        for other in uses.difference(&row.may_use) {
            findings.push(format!(
                "{}/Cargo.toml: {} must not use {other}: {FILE} does not allow it",
                package.folder, package.name
            ));
        }
        for other in row.may_use.difference(&uses) {
            findings.push(format!(
                "{FILE}: {} does not use {other}; take it out of its row",
                package.name
            ));
        }
    }
    findings.extend(
        rows.keys()
            .map(|name| format!("{FILE}: there is no crate {name}")),
    );
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
