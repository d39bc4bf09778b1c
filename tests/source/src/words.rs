//! Words that `STYLE.md` replaces.

use regex::Regex;

use crate::tree;

/// The page that names the words.
const STYLE: &str = "STYLE.md";
/// The head of the table in it, whose first column has them.
const HEAD: &str = "| not | but |";
/// The number of occurrences that may remain in the tree: quotations, and words in another sense.
const AT_MOST: usize = 30;
/// Identifiers that were renamed.
const RENAMED: &[&str] = &[
    "Doorkeeper",
    "Hearing",
    "Lack",
    "Laid",
    "MEDIUM",
    "MENDERS",
    "Mending",
    "Newcomer",
    "Owed",
    "Seat",
    "Shelf",
    "Tenths",
    "Vouched",
    "hearers",
    "is_owed",
];
/// This file, which must name them.
const HERE: &str = "tests/source/src/words.rs";

/// A pattern for any of these words as a whole word.
fn any_of(words: &[impl AsRef<str>]) -> String {
    let words = words.iter().map(|word| regex::escape(word.as_ref()));
    let words = words.collect::<Vec<String>>().join("|");
    format!(r"(?-u:\b)(?:{words})(?-u:\b)")
}

/// The matches in a text, each after the number of its line.
fn matches<'a>(pattern: &Regex, text: &'a str) -> Vec<(usize, &'a str)> {
    let (mut line, mut counted) = (1, 0);
    let mut found = Vec::new();
    for hit in pattern.find_iter(text) {
        line += text[counted..hit.start()].matches('\n').count();
        counted = hit.start();
        found.push((line, hit.as_str()));
    }
    found
}

/// The words in the first column of the table, separated by commas.
fn dialect() -> Vec<String> {
    let style = std::fs::read_to_string(tree::root().join(STYLE)).unwrap();
    let rows = style.split(HEAD).nth(1).unwrap().lines().skip(2);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split(" |").next());
    let words: Vec<String> = cells
        .flat_map(|cell| cell.split(", "))
        .map(str::to_owned)
        .collect();
    assert!(
        words.len() > 10,
        "{STYLE} has no table {HEAD:?} with words: {words:?}"
    );
    words
}

#[test]
fn the_dialect_is_rare() {
    let dialect = Regex::new(&format!("(?i){}", any_of(&dialect()))).unwrap();
    let mut found = Vec::new();
    for file in tree::files(&[
        ".rs", ".md", ".sls", ".j2", ".jinja", ".proto", ".yaml", ".toml",
    ]) {
        if file.path == STYLE || file.path == HERE {
            continue;
        }
        // A term may be broken over two lines; checking single lines is enough to keep it rare.
        let hits = matches(&dialect, &file.text).into_iter();
        found.extend(hits.map(|(line, word)| format!("{}:{line}: {word}", file.path)));
    }
    assert!(
        found.len() <= AT_MOST,
        "{} words that STYLE.md replaces, at most {AT_MOST} may stay:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn renamed_identifiers_do_not_come_back() {
    let renamed = Regex::new(&any_of(RENAMED)).unwrap();
    let mut found = Vec::new();
    for file in tree::files(&[".rs"]) {
        if file.path == HERE {
            continue;
        }
        let hits = matches(&renamed, &file.text).into_iter();
        found.extend(hits.map(|(line, word)| format!("{}:{line}: {word}", file.path)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
