//! YAML that may contain references to secrets.
//!
//! A plain scalar that ends in a reference ends in colons, so YAML would read it as a key. The
//! colons are replaced while the text is parsed, so that a reference needs no quotes.

use std::borrow::Cow;

use halite_document::yaml::{Node, NodeKind};
use halite_document::{Position, Problem, yaml};

use crate::reference;

/// Replaces each colon at the end of a reference; a character of the private use area.
const COLON: char = '\u{F8F2}';

/// Parses a text that holds one document, as [`yaml::parse`] does.
///
/// # Errors
/// The first problem of the text, with its place and line.
pub fn parse(file: &str, text: &str) -> Result<Node, Problem> {
    guarded(text, |text| yaml::parse(file, text), restore)
}

/// Parses a text of several documents, as [`yaml::parse_all`] does.
///
/// # Errors
/// The first problem of the text, with its place and line.
pub fn parse_all(file: &str, text: &str) -> Result<Vec<Node>, Problem> {
    guarded(
        text,
        |text| yaml::parse_all(file, text),
        |documents| documents.iter_mut().for_each(restore),
    )
}

/// Parses a rendered text, as [`yaml::parse_located`] does.
///
/// # Errors
/// The first problem of the text, with its place.
pub fn parse_located(
    file: &str,
    text: &str,
    locate: &dyn Fn(&mut Position),
) -> Result<Node, Problem> {
    guarded(
        text,
        |text| yaml::parse_located(file, text, locate),
        restore,
    )
}

/// Parses a rendered text of several documents, as [`yaml::parse_all_located`] does.
///
/// # Errors
/// The first problem of the text, with its place.
pub fn parse_all_located(
    file: &str,
    text: &str,
    locate: &dyn Fn(&mut Position),
) -> Result<Vec<Node>, Problem> {
    guarded(
        text,
        |text| yaml::parse_all_located(file, text, locate),
        |documents| documents.iter_mut().for_each(restore),
    )
}

/// Parses a text in which no reference ends in colons, and restores the colons in the result.
fn guarded<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, Problem>,
    restore: impl FnOnce(&mut T),
) -> Result<T, Problem> {
    match protect(text) {
        Cow::Borrowed(text) => parse(text),
        Cow::Owned(safe) => match parse(&safe) {
            Ok(mut parsed) => {
                restore(&mut parsed);
                Ok(parsed)
            }
            Err(mut problem) => {
                for text in [&mut problem.message, &mut problem.excerpt] {
                    colons(text);
                }
                Err(problem)
            }
        },
    }
}

/// Replaces the colons at the end of each reference, character by character, so that no position
/// in the text changes.
fn protect(text: &str) -> Cow<'_, str> {
    if !reference::mentions(text) {
        return Cow::Borrowed(text);
    }
    let mut out = text.to_owned();
    for path in reference::paths(text) {
        let safe = format!("{}{path}{COLON}{COLON}", reference::PREFIX);
        out = out.replace(&reference::for_path(path), &safe);
    }
    Cow::Owned(out)
}

fn restore(node: &mut Node) {
    colons(&mut node.raw);
    match &mut node.kind {
        NodeKind::Text(text) => colons(text),
        NodeKind::List(items) => items.iter_mut().for_each(restore),
        NodeKind::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
            restore(key);
            restore(value);
        }),
        NodeKind::Null | NodeKind::Bool(_) | NodeKind::Int(_) | NodeKind::Float(_) => {}
    }
}

fn colons(text: &mut String) {
    if text.contains(COLON) {
        *text = text.replace(COLON, ":");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_secrets_need_no_quotes() {
        let text = "a: halite-secret::x.y::\nb: {k: halite-secret::z::, l: [halite-secret::z::]}\nc: 'u:halite-secret::x.y::'\n";
        assert_eq!(
            parse("f.sls", text).unwrap().to_json(),
            serde_json::json!({
                "a": "halite-secret::x.y::",
                "b": {"k": "halite-secret::z::", "l": ["halite-secret::z::"]},
                "c": "u:halite-secret::x.y::"
            })
        );
    }

    #[test]
    fn problems_show_references_as_they_were_written() {
        let problem =
            parse("f.sls", "a: halite-secret::x::\n  b: halite-secret::y::\n").unwrap_err();
        assert_eq!(problem.excerpt, "  b: halite-secret::y::");
        let problem = parse("f.sls", "halite-secret::x::: 1\nhalite-secret::x::: 2\n").unwrap_err();
        assert!(
            problem
                .message
                .starts_with("`halite-secret::x::` occurs twice"),
            "{problem}"
        );
    }
}
