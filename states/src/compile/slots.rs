//! Salt's slots: texts that Salt replaces, while it runs, by the result of an execution function.
//! Halite has no slots, and one that remained in a text would be written to the host literally.

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};

use super::declaration::Declaration;

/// Reports every slot in the arguments of a declaration.
pub(super) fn refuse(declaration: &Declaration, problems: &mut Vec<Problem>) {
    for argument in &declaration.arguments {
        walk(&argument.value, problems);
    }
}

fn walk(node: &Node, problems: &mut Vec<Problem>) {
    match &node.kind {
        NodeKind::Text(text) if text.starts_with("__slot__:") => problems.push(
            Problem::at(
                &node.position,
                format!("`{text}` is a slot, and slots do not exist here"),
            )
            .hint(
                "use a grain for a fact of the host, or a shell command that finds the value itself",
            ),
        ),
        _ => {
            let values = node.entries().iter().map(|(_, value)| value);
            values.chain(node.items()).for_each(|node| walk(node, problems));
        }
    }
}
