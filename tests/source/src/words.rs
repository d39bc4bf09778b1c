//! Words that `STYLE.md` replaces.

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

/// Returns whether the bytes around a match do not belong to a word.
fn is_word(line: &str, at: usize, length: usize) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let before = at.checked_sub(1).and_then(|i| line.as_bytes().get(i));
    !is_part(before) && !is_part(line.as_bytes().get(at + length))
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

fn count(line: &str, word: &str) -> usize {
    line.match_indices(word)
        .filter(|(at, _)| is_word(line, *at, word.len()))
        .count()
}

#[test]
fn the_dialect_is_rare() {
    let dialect = dialect();
    let mut found = Vec::new();
    let mut total = 0;
    for file in tree::files(&[
        ".rs", ".md", ".sls", ".j2", ".jinja", ".proto", ".yaml", ".toml",
    ]) {
        if file.path == STYLE || file.path == HERE {
            continue;
        }
        // A term may be broken over two lines; checking single lines is enough to keep it rare.
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in &dialect {
                let times = count(&lower, word);
                if times > 0 {
                    total += times;
                    found.push(format!("{}:{}: {word}", file.path, number + 1));
                }
            }
        }
    }
    assert!(
        total <= AT_MOST,
        "{total} words that STYLE.md replaces, at most {AT_MOST} may stay:\n{}",
        found.join("\n")
    );
}

#[test]
fn renamed_identifiers_do_not_come_back() {
    let mut found = Vec::new();
    for file in tree::files(&[".rs"])
        .iter()
        .filter(|file| file.path != HERE)
    {
        for (number, line) in file.text.lines().enumerate() {
            let hits = RENAMED.iter().filter(|word| count(line, word) > 0);
            found.extend(hits.map(|word| format!("{}:{}: {word}", file.path, number + 1)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
