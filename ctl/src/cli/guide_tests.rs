//! Parses the command lines in the documents: a line that no longer parses fails here, with its
//! position.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::*;

/// A command line with its position.
struct Line {
    at: String,
    words: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md")];
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The words of a shell's line up to a comment, with single and double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None::<char>);
    for character in line.chars() {
        match character {
            '\'' | '"' if quote.is_none_or(|quote| quote == character) => {
                quote = quote.is_none().then_some(character);
                word.get_or_insert_default();
            }
            ' ' if quote.is_none() => words.extend(word.take()),
            '#' if quote.is_none() && word.is_none() => break,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// The text with the values of the variables that the page assigns, each on a line of its own.
fn expanded(text: &str, page: &str) -> String {
    let is_name = |name: &str| {
        let begins = name.starts_with(|c: char| c.is_ascii_uppercase());
        begins && (name.bytes()).all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let assigned = page.lines().filter_map(|line| line.split_once('='));
    let mut variables: Vec<(&str, &str)> = assigned
        .filter(|(name, _)| is_name(name))
        .filter_map(|(name, value)| Some((name, value.split_whitespace().next()?)))
        .collect();
    // A name may begin with another one.
    variables.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let mut text = text.to_owned();
    for (name, value) in variables {
        text = text.replace(&format!("${name}"), value);
    }
    text
}

/// The lines of a page's code, fenced or indented, that start with `ctl`.
fn lines(page: &str, name: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let (mut is_fenced, mut begun) = (false, None::<(usize, String)>);
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let code = match (is_fenced, line.strip_prefix("    ")) {
            (true, _) => line.trim(),
            (false, Some(indented)) => indented.trim(),
            (false, None) => continue,
        };
        let (at, text) = match begun.take() {
            Some((at, before)) => (at, format!("{before}{code}")),
            None if code.starts_with("ctl ") => (number + 1, code.to_owned()),
            None => continue,
        };
        match text.strip_suffix('\\') {
            Some(head) => begun = Some((at, head.to_owned())),
            None => found.push(Line {
                at: format!("{name}:{at}"),
                words: words(&expanded(&text, page)),
            }),
        }
    }
    found
}

/// The commands in running text: `` `ctl bundle use` ``.
fn mentions(page: &str, name: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for (number, line) in page.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2) {
            if code.starts_with("ctl ") {
                found.push(Line {
                    at: format!("{name}:{}", number + 1),
                    words: words(code),
                });
            }
        }
    }
    found
}

fn all(read: fn(&str, &str) -> Vec<Line>) -> Vec<Line> {
    let read_page = |path: PathBuf| {
        let page = fs::read_to_string(&path).unwrap();
        read(&page, &path.display().to_string())
    };
    pages().into_iter().flat_map(read_page).collect()
}

/// The problem of a mention, if it names a command that does not exist. It may stop anywhere, and
/// contain placeholders.
fn unknown(line: &Line) -> Option<String> {
    let mut command = &Cli::command();
    for word in &line.words[1..] {
        let is_name = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        if !command.has_subcommands() || word.starts_with('-') || !is_name {
            return None;
        }
        match command.find_subcommand(word) {
            Some(next) => command = next,
            None => return Some(format!("{}: {}", line.at, line.words.join(" "))),
        }
    }
    None
}

/// The words with the id of a job or a run in place of the page's `ID`; other placeholders may have
/// any form.
fn filled(line: &Line) -> impl Iterator<Item = &str> {
    let job = (line.words.get(1)).is_some_and(|word| word == "job" || word == "orchestrate");
    let words = line.words.iter().map(String::as_str);
    words.map(move |word| match word {
        "ID" if job => "20261121000000123000",
        other => other,
    })
}

#[test]
fn the_commands_of_the_guide_are_valid() {
    let lines = all(lines);
    // Fewer would mean that the form of the pages has changed and they are not read.
    assert!(lines.len() > 50, "{} lines", lines.len());
    let problem = |line: &Line| match Cli::try_parse_from(filled(line)) {
        Ok(_) => None,
        Err(error) => Some(format!("{}: {}\n{error}", line.at, line.words.join(" "))),
    };
    let problems: Vec<String> = lines.iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_commands_that_documents_mention_exist() {
    let mentions = all(mentions);
    assert!(mentions.len() > 80, "{} mentions", mentions.len());
    let problems: Vec<String> = mentions.iter().filter_map(unknown).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let page = "text\n```sh\nctl cmd '*' -- 'rm -f x'   # all\nctl a \\\n    --b \"c 'd'\"\nother\n```\n    ctl d\nctl e\n";
    let found: Vec<(String, Vec<String>)> = lines(page, "p")
        .into_iter()
        .map(|line| (line.at, line.words))
        .collect();
    let expected = [
        ("p:3", vec!["ctl", "cmd", "*", "--", "rm -f x"]),
        ("p:4", vec!["ctl", "a", "--b", "c 'd'"]),
        ("p:8", vec!["ctl", "d"]),
    ];
    let expected = expected.map(|(at, words)| {
        let words = words.into_iter().map(str::to_owned).collect::<Vec<_>>();
        (at.to_owned(), words)
    });
    assert_eq!(found, expected);
    let page = "```sh\nA=10.0.0.1   # one\nA_B=two\n```\n```sh\nctl c x=$A y=$A_B $C\n```\n";
    let words = lines(page, "p").remove(0).words;
    assert_eq!(words, ["ctl", "c", "x=10.0.0.1", "y=two", "$C"]);
    let unknown = |code: &str| {
        let page = format!("x `{code}` y");
        mentions(&page, "p")
            .iter()
            .find_map(super::guide_tests::unknown)
    };
    assert_eq!(unknown("ctl bundle use"), None);
    assert_eq!(unknown("ctl node add NAME --roles worker"), None);
    assert!(unknown("ctl bundle vanish").is_some());
    assert!(unknown("ctl frobnicate worker-1").is_some());
}
