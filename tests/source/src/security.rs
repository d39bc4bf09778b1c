//! Every test that `docs/dev/security.md` names exists.

use crate::tree;

/// The files that may contain a name: sources, and the cases of state functions and documents.
const ENDINGS: [&str; 5] = [".rs", ".json", ".yaml", ".case", ".txt"];

#[test]
fn every_test_of_the_security_document_exists() {
    let document = std::fs::read_to_string(tree::root().join("docs/dev/security.md")).unwrap();
    let files = tree::files(&ENDINGS);
    let packages: Vec<String> = (tree::packages().into_iter())
        .map(|package| package.name)
        .collect();
    let exists = |name: &str| {
        packages.iter().any(|package| package == name)
            || is_suite(&files, name)
            || is_function(&files, name)
            || files.iter().any(|file| is_file(&file.path, name))
    };
    let (mut named, mut findings) = (0, Vec::new());
    for (number, row) in (1..).zip(document.lines()) {
        let is_row = row.starts_with("| ") && !row.starts_with("| finding ");
        if !is_row {
            continue;
        }
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [.., tests, _] = cells.as_slice() else {
            panic!("docs/dev/security.md:{number}: two cells at least")
        };
        for name in tests.split('`').skip(1).step_by(2) {
            named += 1;
            if !exists(name) {
                findings.push(format!(
                    "docs/dev/security.md:{number}: there is no test `{name}`"
                ));
            }
        }
    }
    // Fewer would mean that the table has changed its form and is no longer read.
    assert!(named > 150, "{named} names");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

fn is_function(files: &[tree::Text], name: &str) -> bool {
    let start = format!("fn {name}(");
    files.iter().any(|file| file.text.contains(&start))
}

/// Tests whether a suite (`ha:`), or the beginning or end of the name of one of its tests, exists.
fn is_suite(files: &[tree::Text], name: &str) -> bool {
    let is_suite = name.ends_with(':');
    if !is_suite && !name.contains(' ') {
        return false;
    }
    let suites = |file: &&tree::Text| file.path.starts_with("tests/suites/src/");
    files.iter().filter(suites).any(|file| {
        let mut texts = file.text.split('"').skip(1).step_by(2);
        texts.any(|text| match text.split_once(": ") {
            Some((suite, test)) if is_suite => format!("{suite}:") == name && !test.is_empty(),
            Some((_, test)) => test.starts_with(name) || test.ends_with(name),
            None => false,
        })
    })
}

/// Tests whether a path has this module (`a::b`), file, or folder of cases (`pkgrepo.managed/dnf*`).
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
