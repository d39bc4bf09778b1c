//! Phrases that read as if translated.
//!
//! Doc comments and strings of programs are what operators and contributors read; other comments
//! and documents follow the same rule, and so do the names of functions: a failed test prints its
//! name.

use regex::Regex;

use crate::parsed::{self, Paragraph};
use crate::tree;

/// Patterns without regard to case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    (
        r"\b(?P<before>\w+ )?(?:is|are|was|were) no (?P<noun>[{`']?\w+)",
        "is not a …, is invalid",
    ),
    (r"\bof before\b", "previous"),
    (r"\b(?:go|goes|went|gone) on\b", "continue"),
    (
        r"\b(?:is|are|was|were|be|been) (?:not )?waited for\b",
        "… waits for",
    ),
    (r"\bis a refusal\b", "is refused"),
    (
        r"\bhosts? of (?:(?:the|a|its) master|masters)\b",
        "the master's host",
    ),
    (
        r"\b(?:the|a|its|their|each|every) begin\b",
        "start, beginning",
    ),
    (r"\bside by side\b", "in parallel"),
];
/// Words after "is no" that are idiomatic.
const COMPARISONS: &[&str] = &[
    "different",
    "earlier",
    "fewer",
    "further",
    "greater",
    "larger",
    "later",
    "less",
    "longer",
    "more",
    "newer",
    "older",
    "shorter",
    "smaller",
];
/// Words that do not start a doc comment.
const QUESTIONS: &[&str] = &[
    "How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why",
];
/// Files that have to quote the phrases.
const QUOTING: &[&str] = &["STYLE.md", "tests/source/src/phrases.rs"];

/// The comments of a Rust file that are not doc comments, and other files as a whole.
fn other_text(path: &str, text: &str) -> Vec<Paragraph> {
    let is_rust = path.ends_with(".rs");
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let words = match line.strip_prefix("//") {
            Some(rest) if is_rust && !rest.starts_with(['/', '!']) => rest.trim(),
            _ if is_rust => "",
            _ => line.trim_start_matches(['#', '|', '>', '-', '*', ' ']),
        };
        match paragraphs.last_mut() {
            _ if words.is_empty() => {}
            Some(last) if open => {
                last.text.push(' ');
                last.text.push_str(words);
            }
            _ => paragraphs.push(Paragraph {
                line: number + 1,
                text: words.to_owned(),
            }),
        }
        open = !words.is_empty();
    }
    paragraphs
}

/// The compiled patterns.
struct Patterns {
    /// Each pattern, and what to write instead.
    each: Vec<(Regex, &'static str)>,
    /// Matches each text in which one of them occurs. Almost no text does, and one search takes
    /// less time than eight.
    any: Regex,
}

impl Patterns {
    fn new() -> Self {
        let compile = |pattern: &str| Regex::new(&format!("(?i){pattern}")).unwrap();
        let each = PHRASES.iter();
        let each = each.map(|(pattern, instead)| (compile(pattern), *instead));
        let any: Vec<&str> = PHRASES.iter().map(|(pattern, _)| *pattern).collect();
        // Beside an ASCII letter, each boundary of Unicode is also one of ASCII. For the former,
        // regex has only a slow search in texts that are not ASCII.
        let any = format!("(?:{})", any.join("|")).replace(r"\b", r"(?-u:\b)");
        Self {
            each: each.collect(),
            any: compile(&any),
        }
    }
}

/// The phrases of a text, each with what to write instead.
fn phrases(patterns: &Patterns, text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    if !patterns.any.is_match(&text) {
        return found;
    }
    for (pattern, instead) in &patterns.each {
        for hit in pattern.captures_iter(&text) {
            let word = |name| {
                hit.name(name)
                    .map_or("", |m| m.as_str())
                    .trim()
                    .to_lowercase()
            };
            let is_idiomatic =
                word("before") == "there" || COMPARISONS.contains(&word("noun").as_str());
            if !is_idiomatic {
                found.push(format!("{:?}: write: {instead}", &hit[0]));
            }
        }
    }
    found
}

#[test]
fn doc_comments_and_messages_are_idiomatic() {
    let patterns = Patterns::new();
    let mut findings = Vec::new();
    for (path, facts) in parsed::facts() {
        if QUOTING.contains(path) {
            continue;
        }
        let prose = &facts.prose;
        for Paragraph { line, text } in prose.docs.iter().chain(&prose.strings) {
            let found = phrases(&patterns, text);
            findings.extend(found.iter().map(|f| format!("{path}:{line}: {f}")));
        }
        for Paragraph { line, text } in &prose.docs {
            let first = text.split_whitespace().next().unwrap_or_default();
            if QUESTIONS.contains(&first) {
                findings.push(format!(
                    "{path}:{line}: {first} starts a doc comment: begin with a noun, or with a verb (\"Returns whether …\")"
                ));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn other_comments_and_documents_are_idiomatic() {
    let patterns = Patterns::new();
    let mut findings = Vec::new();
    let endings = [
        ".rs", ".md", ".sls", ".j2", ".jinja", ".proto", ".yaml", ".toml", ".txt", ".5", ".8",
        ".sh", ".sql", ".svg", ".html", ".case",
    ];
    for file in tree::files(&endings) {
        if QUOTING.contains(&file.path.as_str()) {
            continue;
        }
        for Paragraph { line, text } in other_text(&file.path, &file.text) {
            for found in phrases(&patterns, &text) {
                findings.push(format!("{}:{line}: {found}", file.path));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn names_of_functions_are_idiomatic() {
    let patterns = Patterns::new();
    let mut findings = Vec::new();
    for file in tree::files(&[".rs"]) {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some((_, rest)) = line.split_once("fn ") {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                let found = phrases(&patterns, &name.replace('_', " "));
                findings.extend(found.iter().map(|f| format!("{}:{number}: {f}", file.path)));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
