//! The YAML reader of SLS files and of the operator's documents. Every node has its position and
//! the text of the source.
//!
//! Scalars are YAML 1.1 as Salt reads them (`0644` is 644, `yes` is true, `<<` merges). Tags are
//! refused, duplicate keys are errors that name both places, and size, depth and aliases are
//! limited, so that no input can exhaust memory.

mod build;
mod kubernetes;
pub mod scalar;

use serde_json::{Map, Value};

use crate::position::Position;
use crate::problem::Problem;

/// Largest accepted text, in bytes.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Deepest accepted nesting.
pub const MAX_DEPTH: usize = 64;
/// Most nodes after aliases were expanded.
pub const MAX_NODES: usize = 200_000;

/// The start of a key that is not a text in [`Node::to_json_with_key_types`]; from the private use
/// area.
pub const KEY_MARK: char = '\u{F8F3}';

/// A value with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub kind: NodeKind,
    /// The position of its first character.
    pub position: Position,
    /// Scalars: the text as written (without quotes); otherwise empty.
    pub raw: String,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "YAML's own kinds")]
pub enum NodeKind {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the source; keys are always scalars and unique.
    Map(Vec<(Node, Node)>),
}

/// Parses a text that holds one document; an empty text is a null node.
///
/// # Errors
/// The first problem of the text, with its place and line.
pub fn parse(file: &str, text: &str) -> Result<Node, Problem> {
    parse_located(file, text, &|_| {}).map_err(|problem| problem.excerpt_from(text))
}

/// Parses a rendered text of several documents; see [`parse_located`].
///
/// # Errors
/// The first problem of the text, with its place.
pub fn parse_all_located(
    file: &str,
    text: &str,
    locate: &dyn Fn(&mut Position),
) -> Result<Vec<Node>, Problem> {
    build::documents(file, text, locate)
}

/// Parses a rendered text. `locate` maps each position in the text to the position in its template;
/// a problem may then have no excerpt.
///
/// # Errors
/// The first problem of the text, with its place.
pub fn parse_located(
    file: &str,
    text: &str,
    locate: &dyn Fn(&mut Position),
) -> Result<Node, Problem> {
    let mut documents = build::documents(file, text, locate)?;
    if let Some(second) = documents.get(1) {
        return Err(Problem::at(
            &second.position,
            "a second document begins here, but this file must hold one",
        )
        .hint("remove the `---` between them, or split the file"));
    }
    Ok(documents.pop().unwrap_or_else(|| Node {
        kind: NodeKind::Null,
        position: Position {
            file: file.to_owned(),
            line: 1,
            column: 1,
        },
        raw: String::new(),
    }))
}

/// Parses a text that may hold several documents, separated by `---`. Documents without content are
/// omitted.
///
/// # Errors
/// The first problem of the text, with its place and line.
pub fn parse_all(file: &str, text: &str) -> Result<Vec<Node>, Problem> {
    build::documents(file, text, &|_| {}).map_err(|problem| problem.excerpt_from(text))
}

impl Node {
    /// The value of a key of a map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .find(|(k, _)| k.raw == key)
            .map(|(_, value)| value)
    }

    /// Keys and values of a map; empty for everything else.
    #[must_use]
    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Items of a list; empty for everything else.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar as written; `None` for lists, maps and null.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self.kind {
            NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => None,
            _ => Some(&self.raw),
        }
    }

    /// Returns whether this is neither a list nor a map.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        !matches!(self.kind, NodeKind::List(_) | NodeKind::Map(_))
    }

    /// The kind in words, for messages.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool(_) => "a boolean",
            NodeKind::Int(_) => "a whole number",
            NodeKind::Float(_) => "a number",
            NodeKind::Text(_) => "a text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a mapping",
        }
    }

    /// The value as JSON. Keys become texts as written; infinite floats become null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.json(&|value, _| value, &|key| key.raw.clone())
    }

    /// The value as JSON; a key that is not a text (`80:`) begins with [`KEY_MARK`].
    #[must_use]
    pub fn to_json_with_key_types(&self) -> Value {
        self.json(&|value, _| value, &|key| match key.kind {
            NodeKind::Text(_) => key.raw.clone(),
            _ => format!("{KEY_MARK}{}", key.raw),
        })
    }

    /// The value as JSON; `integer` maps each whole number, given with its text, and `name` each
    /// key.
    fn json(&self, integer: &dyn Fn(i64, &str) -> i64, name: &dyn Fn(&Node) -> String) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(value) => Value::Bool(*value),
            NodeKind::Int(value) => Value::from(integer(*value, &self.raw)),
            NodeKind::Float(value) => Value::from(*value),
            NodeKind::Text(value) => Value::from(value.as_str()),
            NodeKind::List(items) => items.iter().map(|item| item.json(integer, name)).collect(),
            NodeKind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(k, v)| (name(k), v.json(integer, name)))
                    .collect::<Map<String, Value>>(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
