//! Tests that a table of a document names: crates, suites, functions, modules and files of cases.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::tree;

/// The files that may contain a name: sources, and the cases of state functions and documents.
const ENDINGS: [&str; 5] = [".rs", ".json", ".yaml", ".case", ".txt"];

/// A row of a table.
pub(crate) struct Row {
    /// The number of its line.
    pub(crate) line: usize,
    /// The texts of its cells.
    pub(crate) cells: Vec<String>,
    /// The names in the last but one, which has the tests.
    pub(crate) tests: Vec<String>,
}

/// The rows of a document's table whose head begins with this cell. The names of tests are between
/// backquotes.
pub(crate) fn rows(path: &str, head: &str) -> Vec<Row> {
    let document = std::fs::read_to_string(tree::root().join(path)).unwrap();
    let head = format!("| {head} ");
    let is_row = |row: &str| row.starts_with("| ") && !row.starts_with(&head);
    let lines = (1..).zip(document.lines());
    let rows = lines.filter(|(_, row)| is_row(row));
    rows.map(|(line, row)| {
        let cells = row.trim_matches('|').split(" | ");
        let cells: Vec<String> = cells.map(|cell| cell.trim().to_owned()).collect();
        let [.., tests, _] = cells.as_slice() else {
            panic!("{path}:{line}: two cells at least")
        };
        let tests = tests.split('`').skip(1).step_by(2);
        Row {
            line,
            tests: tests.map(str::to_owned).collect(),
            cells,
        }
    })
    .collect()
}

/// The names of all functions. Searching all sources once takes less time than once for each name.
static FUNCTIONS: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let files = tree::files(&[".rs"]).into_iter();
    let starts = files.flat_map(|file| file.text.split("fn ").skip(1));
    let names = starts.filter_map(|start| start.split_once('('));
    names.map(|(name, _)| name).collect()
});

/// The names of the suites' tests: the name of the suite, and the rest.
static SUITES: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let files = tree::files(&[".rs"]).into_iter();
    let suites = files.filter(|file| file.path.starts_with("tests/suites/src/"));
    let texts = suites.flat_map(|file| file.text.split('"').skip(1).step_by(2));
    texts.filter_map(|text| text.split_once(": ")).collect()
});

/// One text for each named test that does not exist.
pub(crate) fn missing(path: &str, rows: &[Row]) -> Vec<String> {
    let files = tree::files(&ENDINGS);
    let exists = |name: &str| {
        tree::packages().iter().any(|package| package.name == name)
            || is_suite(name)
            || is_function(name)
            || files.iter().any(|file| is_file(&file.path, name))
    };
    let mut findings = Vec::new();
    for row in rows {
        for name in row.tests.iter().filter(|name| !exists(name)) {
            findings.push(format!("{path}:{}: there is no test `{name}`", row.line));
        }
    }
    findings
}

/// Tests whether a source has a function without generic parameters of this name.
pub(crate) fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(name)
}

/// Tests whether a suite (`ha:`), or the beginning or end of the name of one of its tests, exists.
fn is_suite(name: &str) -> bool {
    let mut tests = SUITES.iter();
    match name.strip_suffix(':') {
        Some(wanted) => tests.any(|(suite, test)| *suite == wanted && !test.is_empty()),
        None => {
            let is_part = |test: &str| test.starts_with(name) || test.ends_with(name);
            name.contains(' ') && tests.any(|(_, test)| is_part(test))
        }
    }
}

/// Tests whether this suite has a test with this whole name.
pub(crate) fn is_whole(suite: &str, name: &str) -> bool {
    SUITES.contains(&(suite, name))
}

/// Tests whether a path has this module (`a::b`), file, or folder of cases
/// (`pkgrepo.managed/dnf*`).
fn is_file(path: &str, name: &str) -> bool {
    let place = name.replace("::", "/");
    let (place, is_prefix) = match place.strip_suffix('*') {
        Some(begin) => (begin, true),
        None => (place.as_str(), false),
    };
    let path = format!("/{path}");
    let wanted = format!("/{place}");
    path.match_indices(&wanted).any(|(at, _)| {
        let rest = &path[at + wanted.len()..];
        is_prefix || rest.is_empty() || rest.starts_with(['/', '.'])
    })
}

#[test]
fn a_name_is_found_as_a_whole() {
    assert!(is_file(
        "minion/src/host/static_pod/machine.rs",
        "host::static_pod::machine"
    ));
    assert!(is_file(
        "minion/tests/cases/etcd.data/gone.json",
        "etcd.data/*"
    ));
    assert!(is_file("pillar/tests/bad/108-x/cluster.yaml", "108-x"));
    assert!(!is_file("pillar/tests/bad/108-x-y/cluster.yaml", "108-x"));
    assert!(!is_file("minion/src/host/machines.rs", "host::machine"));
}
