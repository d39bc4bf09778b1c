//! Phrases that read as if translated.
//!
//! Doc comments and strings of programs are what operators and contributors read; other comments and
//! documents follow the same rule.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use regex::Regex;

use crate::tree;

/// Patterns without regard to case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    (
        r"\b(?P<before>\w+ )?(?:is|are|was|were) no (?P<noun>\w+)",
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
        r"\bthe hosts? of (?:the|a|its) master\b",
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

/// A paragraph of a file, with the line that it starts in.
struct Paragraph {
    line: usize,
    text: String,
}

/// The doc comments and the strings of a Rust file.
#[derive(Default)]
struct Prose {
    docs: Vec<Paragraph>,
    strings: Vec<Paragraph>,
}

impl Prose {
    fn read(text: &str) -> Self {
        let mut prose = Self::default();
        prose.walk(text.parse().unwrap());
        prose
    }

    fn walk(&mut self, tokens: TokenStream) {
        // The line after the last one of the doc comment under way.
        let mut next_line = 0;
        for token in tokens {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    let Some(text) = doc(group.stream()) else {
                        self.walk(group.stream());
                        continue;
                    };
                    let line = group.span_open().start().line;
                    match self.docs.last_mut() {
                        Some(last) if line == next_line => {
                            last.text.push('\n');
                            last.text.push_str(&text);
                        }
                        _ => self.docs.push(Paragraph { line, text }),
                    }
                    next_line = line + 1;
                }
                TokenTree::Group(group) => self.walk(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(string) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        let line = literal.span().start().line;
                        let text = string.value();
                        self.strings.push(Paragraph { line, text });
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

/// The text of `doc = "…"`.
fn doc(attribute: TokenStream) -> Option<String> {
    let attribute: syn::MetaNameValue = syn::parse2(attribute).ok()?;
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(text),
        ..
    }) = attribute.value
    else {
        return None;
    };
    attribute.path.is_ident("doc").then(|| text.value())
}

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

/// The phrases of a text, each with what to write instead.
fn phrases(patterns: &[(Regex, &str)], text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (pattern, instead) in patterns {
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

fn patterns() -> Vec<(Regex, &'static str)> {
    let compile = |&(pattern, instead): &(&str, &'static str)| {
        (Regex::new(&format!("(?i){pattern}")).unwrap(), instead)
    };
    PHRASES.iter().map(compile).collect()
}

#[test]
fn doc_comments_and_messages_are_idiomatic() {
    let patterns = patterns();
    let mut findings = Vec::new();
    for file in tree::files(&[".rs"]) {
        if QUOTING.contains(&file.path.as_str()) {
            continue;
        }
        let prose = Prose::read(&file.text);
        for Paragraph { line, text } in prose.docs.iter().chain(&prose.strings) {
            let found = phrases(&patterns, text);
            findings.extend(found.iter().map(|f| format!("{}:{line}: {f}", file.path)));
        }
        for Paragraph { line, text } in &prose.docs {
            let first = text.split_whitespace().next().unwrap_or_default();
            if QUESTIONS.contains(&first) {
                findings.push(format!(
                    "{}:{line}: {first} starts a doc comment: begin with a noun, or with a verb (\"Returns whether …\")",
                    file.path
                ));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn other_comments_and_documents_are_idiomatic() {
    let patterns = patterns();
    let mut findings = Vec::new();
    let endings = [
        ".rs", ".md", ".sls", ".j2", ".jinja", ".proto", ".yaml", ".toml",
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
