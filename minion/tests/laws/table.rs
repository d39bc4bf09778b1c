//! The table of inputs: the files `*.case` in this directory, in the order of their names.
//!
//! An input begins with a line `=== NAME`. Its states are SLS text. States that make its start come
//! first, before a line `--- then`. A line `--- repeats: REASON` at its end says that the second
//! check finds changes again, and why. Text before the first input is a comment.

use std::path::{Path, PathBuf};

/// The mark of an input's first line.
const INPUT: &str = "=== ";
/// The line between the start and the states.
const THEN: &str = "--- then\n";
/// The mark of the line with the reason for changes in the second check.
const REPEATS: &str = "--- repeats: ";

/// One input.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name in the table.
    pub name: String,
    /// States that make its start.
    pub start: Option<String>,
    /// The states.
    pub states: String,
    /// The reason why the second check finds changes again.
    pub repeats: Option<String>,
}

/// All inputs below a directory.
pub fn read(directory: &Path) -> Vec<Input> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "case"));
    files.sort();
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts.flat_map(|text| parse(&text)).collect()
}

fn parse(text: &str) -> Vec<Input> {
    let (text, mark) = (format!("\n{text}"), format!("\n{INPUT}"));
    text.split(&mark).skip(1).map(input).collect()
}

fn input(text: &str) -> Input {
    let (name, body) = text.split_once('\n').unwrap();
    let (body, repeats) = match body.split_once(REPEATS) {
        Some((body, reason)) => (body, Some(reason.trim().to_owned())),
        None => (body, None),
    };
    let (start, states) = match body.split_once(THEN) {
        Some((start, states)) => (Some(start.trim().to_owned()), states),
        None => (None, body),
    };
    let line = |text: &str| format!("{}\n", text.trim());
    Input {
        name: name.trim().to_owned(),
        start: start.map(|start| line(&start)),
        states: line(states),
        repeats,
    }
}

#[test]
fn an_input_has_a_start_states_and_a_reason() {
    let text = "# comment\n\n=== one\na:\n  test.nop: []\n\n=== two\nb: 1\n--- then\nc: 2\n--- repeats: it does\n";
    let wanted = |name: &str, start: Option<&str>, states: &str, repeats: Option<&str>| Input {
        name: name.to_owned(),
        start: start.map(str::to_owned),
        states: states.to_owned(),
        repeats: repeats.map(str::to_owned),
    };
    assert_eq!(
        parse(text),
        [
            wanted("one", None, "a:\n  test.nop: []\n", None),
            wanted("two", Some("b: 1\n"), "c: 2\n", Some("it does")),
        ]
    );
}
