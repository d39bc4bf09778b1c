//! The reference of all state functions in Markdown.

use std::fmt::Write;

use crate::signature::{ArgumentKind, RunsOn, Signature};

/// Every function with its arguments, module by module.
pub(super) fn markdown(signatures: &[Signature]) -> String {
    let mut text = String::from(
        "# State functions\n\n\
         Generated from the signatures in `states/src/signatures`; a test compares them. Every function also takes `name`\n\
         (default: the state's id), the [requisites](requisites.md) and the global arguments.\n\n",
    );
    let modules = signatures.chunk_by(|a, b| a.state == b.state);
    for module in modules.clone() {
        let Some(first) = module.first() else {
            continue;
        };
        let names: Vec<_> = module
            .iter()
            .map(|s| format!("[{}](#{}{})", s.fun, s.state, s.fun))
            .collect();
        let _ = writeln!(text, "- {}: {}", first.state, names.join(", "));
    }
    for signature in modules.flatten() {
        let place = match signature.runs_on {
            RunsOn::Minion => "",
            RunsOn::Master => " On the target `master`.",
            RunsOn::Orchestration => " A step of an orchestration.",
        };
        let _ = write!(
            text,
            "\n## {}.{}\n\n{}{place}\n",
            signature.state, signature.fun, signature.doc
        );
        if signature.args.is_empty() {
            continue;
        }
        text.push_str("\n| argument | takes | meaning |\n|---|---|---|\n");
        for arg in signature.args {
            let required = if arg.required { " Required." } else { "" };
            let doc = arg.doc.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{}` | {} | {doc}{required} |",
                arg.name,
                kind(arg.kind)
            );
        }
    }
    text
}

const fn kind(kind: ArgumentKind) -> &'static str {
    match kind {
        ArgumentKind::Text | ArgumentKind::Word(_) => "text",
        ArgumentKind::Path => "absolute path",
        ArgumentKind::Integer | ArgumentKind::Within(..) => "whole number",
        ArgumentKind::Boolean => "true or false",
        ArgumentKind::Mode => "file mode",
        ArgumentKind::Sources => "text or list of texts",
        ArgumentKind::TextList | ArgumentKind::Words(_) => "list of texts",
        ArgumentKind::Addresses => "list of IP addresses",
        ArgumentKind::LinePattern => "regular expression or part of a line",
        ArgumentKind::PathPatterns => "list of patterns",
        ArgumentKind::Mapping => "mapping",
        ArgumentKind::Mappings => "list of mappings",
        ArgumentKind::Scalar
        | ArgumentKind::Codes
        | ArgumentKind::Variables
        | ArgumentKind::Packages
        | ArgumentKind::Any => "see meaning",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_in_docs_is_current() {
        halite_golden::check_reference("states.md", &crate::signatures::reference());
    }
}
