//! References: the entries of requisite lists, as written.

use std::fmt;

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};

use super::declaration::{Argument, Declaration};
use super::requisite_words::{INVERTED, REQUISITES};
use crate::low::Position;

/// One entry of a requisite list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reference {
    /// The module; `sls`; or empty for a bare id or name, which may be written `- id: x`.
    pub module: String,
    /// Id, name, SLS name, or a pattern of them.
    pub key: String,
    pub position: Position,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.module.is_empty() {
            write!(f, "`{}`", self.key)
        } else {
            write!(f, "`{}: {}`", self.module, self.key)
        }
    }
}

impl Reference {
    /// Tests whether it names a declaration, by id, `name` or one of `names`.
    pub(super) fn names_declaration(&self, declaration: &Declaration) -> bool {
        let named = |name: &str| {
            declaration.all(name).any(|argument| {
                argument.value.raw == self.key
                    || argument.value.items().iter().any(|item| {
                        item.raw == self.key
                            || item.entries().iter().any(|(key, _)| key.raw == self.key)
                    })
            })
        };
        match self.module.as_str() {
            "sls" => declaration.sls == self.key,
            module => {
                (module.is_empty() || module == declaration.state)
                    && (declaration.id == self.key || named("name") || named("names"))
            }
        }
    }
}

/// Reads a requisite list.
pub(super) fn references(argument: &Argument, problems: &mut Vec<Problem>) -> Vec<Reference> {
    let NodeKind::List(items) = &argument.value.kind else {
        problems.push(
            Problem::at(
                &argument.value.position,
                format!(
                    "`{}` must be a list, but it is {}",
                    argument.name,
                    argument.value.kind_name()
                ),
            )
            .hint(format!(
                "write `- {}:` and below it `- MODULE: ID`, one a line",
                argument.name
            )),
        );
        return Vec::new();
    };
    items
        .iter()
        .filter_map(|item| reference(&argument.name, item, problems))
        .collect()
}

fn reference(word: &str, item: &Node, problems: &mut Vec<Problem>) -> Option<Reference> {
    let (module, key) = match item.entries() {
        [] => ("", item),
        [(module, key)] => (module.raw.as_str(), key),
        [_, (second, _), ..] => {
            problems.push(
                Problem::at(
                    &second.position,
                    format!("two references in one item of `{word}`"),
                )
                .hint("put `- ` before each"),
            );
            return None;
        }
    };
    let Some(text) = key.text() else {
        problems.push(
            Problem::at(
                &key.position,
                format!(
                    "a reference of `{word}` must name an id, but this is {}",
                    key.kind_name()
                ),
            )
            .hint("write `- MODULE: ID`, for example `- file: /etc/hosts`"),
        );
        return None;
    };
    if let Some((state, _)) = module.split_once('.') {
        problems.push(
            Problem::at(
                &item.position,
                format!("`{module}` in `{word}` is a function; a reference names the module"),
            )
            .hint(format!("write `- {state}: {text}`")),
        );
        return None;
    }
    if module == "id" && matches!(word, "use" | "use_in") {
        problems.push(
            Problem::at(&item.position, format!("Salt ignores `id` in `{word}`"))
                .hint(format!("write `- MODULE: {text}`")),
        );
        return None;
    }
    let module = if module == "id" { "" } else { module };
    Some(Reference {
        module: module.to_owned(),
        key: text.to_owned(),
        position: item.position.clone(),
    })
}

/// Tests whether an argument becomes edges between calls (`use` does not).
pub(super) fn is_edge(name: &str) -> bool {
    REQUISITES.contains(&name) || INVERTED.contains(&name)
}
