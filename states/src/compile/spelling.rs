//! Texts whose spelling YAML does not keep.
//!
//! Salt writes the value that YAML reads: `True` for `yes`, 755 for `0755`, 1.2 for `1.20`. Such a
//! text is refused, because its meaning is not known.

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};

/// Reports every scalar of a value that is a text, or has texts, and is written in another way than
/// Salt would write what YAML reads. `argument` names the argument.
pub(super) fn check(argument: &str, node: &Node, problems: &mut Vec<Problem>) {
    let read = match &node.kind {
        NodeKind::List(items) => {
            return items
                .iter()
                .for_each(|item| check(argument, item, problems));
        }
        NodeKind::Map(entries) => {
            let mut values = entries.iter().map(|(_, value)| value);
            return values
                .by_ref()
                .for_each(|value| check(argument, value, problems));
        }
        NodeKind::Bool(true) => "True".to_owned(),
        NodeKind::Bool(false) => "False".to_owned(),
        NodeKind::Int(number) => number.to_string(),
        NodeKind::Float(number) => format!("{number:?}"),
        NodeKind::Null | NodeKind::Text(_) => return,
    };
    let raw = &node.raw;
    if read == *raw {
        return;
    }
    let message = format!("{argument} has `{raw}` without quotes, which YAML reads as `{read}`");
    let mut hint = format!("write '{raw}' for this text, or {read}");
    // JSON and the filters spell booleans in this way.
    if matches!(raw.as_str(), "true" | "false") {
        hint += "; if a filter (`json`, `tojson`, `yaml`) wrote it, put the value in quotes where it \
                 comes from, for example in the pillar";
    }
    problems.push(Problem::at(&node.position, message).hint(hint));
}
