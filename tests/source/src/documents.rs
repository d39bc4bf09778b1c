//! Fields of Halite's documents are read through a type of `halite-api`, not by name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::tree;
use crate::tree::Text;

/// The folder of the program of operators, and that of the suites.
const FOLDERS: [&str; 2] = ["ctl/src/", "tests/suites/src/"];
/// The documents that are read by names, with their readers: in each line a file, a word of
/// [`DOCUMENTS`], and functions of the file. A function is added only for such a document; one that
/// no longer reads any is removed.
const READERS: &str = include_str!("foreign_documents.txt");
/// Maximum number of these functions. It may only shrink.
const MOST: usize = 181;
/// Documents without a type in `halite-api`.
const DOCUMENTS: &[&str] = &[
    // The manifest, the recipe and the lock of a bundle, and reports about its completeness.
    "bundle",
    // The records of cargo.
    "cargo",
    // The answers of ctr.
    "containerd",
    // A document of the operator that may not be valid.
    "declaration",
    // The answers of etcdctl.
    "etcdctl",
    // A file that Halite keeps for itself: the header of a backup, a minion's journal.
    "file",
    // The files and the configuration of kubeadm, and what has the same meaning.
    "kubeadm",
    // The objects of Kubernetes, and the answers of kubectl.
    "kubectl",
    // No document: a typed mapping whose keys are data.
    "map",
    // The documents of a previous version of Halite.
    "older",
    // The answers of Prometheus.
    "prometheus",
    // The answers and the manifests of OCI registries.
    "registry",
    // The arguments of a state, which are as different as the functions.
    "state",
];
/// The documents that the program of operators may read by names.
const OF_OPERATORS: [&str; 2] = ["declaration", "map"];

/// The start of a function, with its name.
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn (\w+)").unwrap()
});

/// A call that reads or removes a field with a literal name.
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    let methods = "get|get_mut|shift_remove|swap_remove|contains_key";
    Regex::new(&format!(r#"\.(?:{methods})\("|\.pointer(?:_mut)?\("#)).unwrap()
});
/// A call that may be about something else than a field.
static REMOVAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\.(?:remove|entry)\(""#).unwrap());
/// An index or a call whose name is a variable: `value[name]`, `value.get(&name)`.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    let methods = "get|get_mut|remove|shift_remove|swap_remove|contains_key|entry";
    let name = r"[&*]*(?P<NAME>[a-z_]+)(?:\.as_str\(\))?";
    let index = format!(r"[\w\])?]\[{}\]", name.replace("NAME", "index"));
    let call = format!(r"\.(?:{methods})\({}\)", name.replace("NAME", "call"));
    Regex::new(&format!("{index}|{call}")).unwrap()
});
/// The use of a JSON value: its type, or a method that only it has.
static VALUE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\bValue\b|\bas_(?:array|object|bool|u64|i64)\b|\.is_string\(").unwrap()
});
/// Variables with these names are positions.
const POSITIONS: [&str; 2] = ["at", "index"];

/// Returns whether a line reads a field by a literal name: `value["name"]`, `value.get("name")`, or
/// a JSON pointer.
fn reads_by_name(line: &str) -> bool {
    let is_index = |(at, _): (usize, &str)| {
        let before = line[..at].chars().next_back();
        let is_value = before.is_some_and(|c| c.is_alphanumeric() || "_])?".contains(c));
        let rest = &line[at + 2..];
        is_value
            && rest
                .find('"')
                .is_some_and(|end| rest[end..].starts_with("\"]"))
    };
    line.match_indices("[\"").any(is_index) || CALL.is_match(line)
}

/// Returns whether a line reads a field, if its function uses JSON values: it removes one, or its
/// name is in a variable.
fn may_read_by_name(line: &str) -> bool {
    let is_variable = VARIABLE.captures_iter(line).any(|captures| {
        let name = captures.name("index").or_else(|| captures.name("call"));
        name.is_some_and(|name| !POSITIONS.contains(&name.as_str()))
    });
    is_variable || REMOVAL.is_match(line)
}

/// The functions of a file, each with the number of its first line. Lines before the first one have
/// no name.
fn functions(text: &str) -> Vec<(String, usize, Vec<&str>)> {
    let mut found = vec![(String::new(), 1, Vec::new())];
    for (number, line) in text.lines().enumerate() {
        if line.contains("fn ")
            && let Some(captures) = FUNCTION.captures(line)
        {
            found.push((captures[1].to_owned(), number + 1, Vec::new()));
        }
        found.last_mut().unwrap().2.push(line);
    }
    found
}

/// The lines of a file that read by name: the function, and the number of the line. Functions
/// without JSON values index typed mappings and lists.
fn readings(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (name, first, lines) in functions(text) {
        let uses_values = lines.iter().any(|line| VALUE.is_match(line));
        for (offset, line) in lines.iter().enumerate() {
            if reads_by_name(line) || uses_values && may_read_by_name(line) {
                found.push((name.clone(), first + offset));
            }
        }
    }
    found
}

/// The files of the program and the suites.
fn files() -> Vec<&'static Text> {
    let mut files = tree::files(&[".rs"]);
    files.retain(|file| FOLDERS.iter().any(|folder| file.path.starts_with(folder)));
    files
}

/// The listed readers: the file, the document and the function.
fn readers() -> BTreeSet<(&'static str, &'static str, &'static str)> {
    let one = |line: &'static str| {
        let mut words = line.split(' ');
        let (file, document) = (words.next().unwrap(), words.next().unwrap());
        words.map(move |function| (file, document, function))
    };
    READERS.lines().flat_map(one).collect()
}

#[test]
fn documents_of_halite_are_not_read_by_names() {
    let readers = readers();
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    for file in files() {
        for (function, line) in readings(&file.text) {
            let reader = readers
                .iter()
                .find(|(path, _, name)| *path == file.path && *name == function);
            match reader {
                Some(reader) => {
                    used.insert(*reader);
                }
                None => found.push(format!(
                    "{}:{line}: {function} reads by name; read a type of halite-api",
                    file.path
                )),
            }
        }
    }
    for (path, document, function) in readers.difference(&used) {
        found.push(format!(
            "foreign_documents.txt: {path} {document}: {function} reads nothing by names; remove it"
        ));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_documents_that_are_read_by_names_are_known() {
    for (path, document, function) in readers() {
        assert!(
            DOCUMENTS.contains(&document),
            "{path} {function}: {document}"
        );
        let is_of_operators = path.starts_with(FOLDERS[0]);
        assert!(
            !is_of_operators || OF_OPERATORS.contains(&document),
            "{path}: ctl must read {document} through a type"
        );
    }
}

#[test]
fn the_list_of_readers_is_short() {
    let count = readers().len();
    assert!(
        count <= MOST,
        "foreign_documents.txt names {count} functions, at most {MOST} are allowed: read types of halite-api"
    );
}

#[test]
fn indexes_pointers_and_calls_are_found() {
    for line in [
        "status[\"nodes\"]",
        "a()[\"b\"]",
        "a[0][\"b\"]",
        "a?[\"b\"]",
        "value.pointer(\"/a\")",
        "value.get(\"a\")",
        "    .get_mut(\"a\")",
        "object.shift_remove(\"a\");",
        "object.contains_key(\"a\")",
    ] {
        assert!(reads_by_name(line), "{line}");
    }
    for line in [
        "&[\"ctl\", \"status\"]",
        "[\"a\"]",
        "let a = [\"b\"];",
        "f([\"a\"])",
        "run(&[\"a\"])",
        "names.get(name)",
    ] {
        assert!(!reads_by_name(line), "{line}");
    }
    for line in [
        "object.remove(\"a\");",
        "note[key].as_str()",
        "a[\"b\"][&key]",
        "map.get(name)",
        "map.remove(&name)",
    ] {
        assert!(may_read_by_name(line), "{line}");
    }
    for line in [
        "#[test]",
        "let a = [name];",
        "rows[at]",
        "text[from..]",
        "set.insert(name)",
    ] {
        assert!(!may_read_by_name(line), "{line}");
    }
    let text =
        "fn one() {\n    a[\"b\"];\n}\n\npub(super) async fn two() {\n    a.get(\"b\");\n}\n";
    let found: Vec<String> = readings(text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["one", "two"]);
    let text = "fn typed() {\n    names[key];\n}\nfn read(note: &Value) {\n    \
                let text = |key: &str| note[key].as_str();\n}\n";
    assert_eq!(readings(text), [("read".to_owned(), 5)]);
}
