//! A document with its text, so that a problem of its meaning can be reported with its place.

use std::collections::BTreeSet;

use crate::position::Position;
use crate::problem::Problem;
use crate::yaml::{Node as Yaml, NodeKind};

/// The text of one document, parsed.
#[derive(Clone, Default)]
pub struct DocumentSource {
    /// The file as its reader names it.
    pub file: String,
    text: String,
    root: Option<Yaml>,
    /// The prefixes of the paths whose lines are not displayed.
    secret_paths: &'static [&'static str],
    /// Dotted paths of unusable values that were replaced. Problems that follow from them
    /// are not reported.
    pub(crate) broken: BTreeSet<String>,
}

impl std::fmt::Debug for DocumentSource {
    // The text may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl DocumentSource {
    /// A document of a file, without any unusable value.
    #[must_use]
    pub fn new(file: &str, text: &str, root: Yaml) -> Self {
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            root: Some(root),
            secret_paths: &[],
            broken: BTreeSet::new(),
        }
    }

    /// Sets the prefixes of the paths whose lines problems do not display.
    #[must_use]
    pub fn secret_paths(mut self, paths: &'static [&'static str]) -> Self {
        self.secret_paths = paths;
        self
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the value at a path, all values above it and all below it were usable as
    /// written.
    #[must_use]
    pub fn is_sound(&self, path: &str) -> bool {
        let within = |path: &str, above: &str| {
            let below = path.strip_prefix(above);
            above.is_empty()
                || below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self
            .broken
            .iter()
            .any(|broken| within(path, broken) || within(broken, path))
    }

    /// The position of the value at a path; if it is missing, of the nearest value above.
    #[must_use]
    pub fn position(&self, path: &str) -> Position {
        let nothing = Position {
            file: self.file.clone(),
            line: 0,
            column: 0,
        };
        let Some(mut node) = self.root.as_ref() else {
            return nothing;
        };
        let mut best = node.position.clone();
        for segment in segments(path) {
            match below(node, &segment) {
                Some((position, next)) => {
                    best = position;
                    node = next;
                }
                None => break,
            }
        }
        best
    }

    /// A problem with the value at a path.
    #[must_use]
    pub fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        let problem = Problem::at(&self.position(path), message).path(path);
        // The line of a secret is not displayed.
        if is_secret(self.secret_paths, path) {
            problem
        } else {
            problem.excerpt_from(&self.text)
        }
    }
}

/// The child at a segment and the position to report for it: a scalar or list item has its own, any
/// other child its key's.
fn below<'a>(node: &'a Yaml, segment: &str) -> Option<(Position, &'a Yaml)> {
    match &node.kind {
        NodeKind::Map(entries) => {
            let (key, value) = entries.iter().find(|(key, _)| key.raw == segment)?;
            let here = if value.is_scalar() && value.kind != NodeKind::Null {
                value
            } else {
                key
            };
            Some((here.position.clone(), value))
        }
        NodeKind::List(items) => {
            let item = items.get(segment.parse::<usize>().ok()?)?;
            Some((item.position.clone(), item))
        }
        _ => None,
    }
}

/// The steps of a path: `a.b[1]`, with quotes around keys that contain dots:
/// `labels."example.com/x"`.
fn segments(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for c in path.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' | '[' | ']' if !quoted => {
                if !current.is_empty() {
                    found.push(std::mem::take(&mut current));
                }
            }
            _ => current.push(c),
        }
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}

/// Returns whether the line of a path is not displayed.
pub(crate) fn is_secret(beginnings: &[&str], path: &str) -> bool {
    beginnings
        .iter()
        .any(|beginning| path.starts_with(beginning))
}

/// A path extended by one key; keys that contain dots or brackets are quoted.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    let key = if key.contains(['.', '[', ']']) {
        format!("\"{key}\"")
    } else {
        key.to_owned()
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> DocumentSource {
        let text = "a:\n  b: [1, 2]\n  c:\n    x.y/z: 3\n";
        DocumentSource::new("f", text, crate::yaml::parse("f", text).unwrap())
    }

    #[test]
    fn finds_the_nearest_place() {
        let source = source();
        for (path, line, column) in [
            ("a.b[1]", 2, 10),
            ("a.c.\"x.y/z\"", 4, 12),
            ("a.missing.deep", 1, 1),
            ("a.b", 2, 3),
            ("", 1, 1),
        ] {
            let position = source.position(path);
            assert_eq!((position.line, position.column), (line, column), "{path}");
        }
    }

    #[test]
    fn what_hangs_below_something_broken_is_not_sound() {
        let mut source = source();
        source.broken.insert("a.b".to_owned());
        assert!(!source.is_sound("a.b"));
        assert!(!source.is_sound("a.b[1]"));
        assert!(source.is_sound("a.bc"));
        assert!(!source.is_sound("a"));
        assert!(source.is_sound("c"));
    }
}
