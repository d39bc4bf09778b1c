//! The declared Kubernetes version in the text of the cluster document.

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};
use halite_secrets::yaml;

const PATH: &str = "kubernetes.version";

/// The text of a cluster document with another `kubernetes.version`, in quotes. Everything else
/// stays unchanged, comments included.
///
/// # Errors
/// The text is not a document with that field on one line.
pub fn with_kubernetes_version(file: &str, text: &str, version: &str) -> Result<String, Problem> {
    let root = yaml::parse(file, text)?;
    let value = below(&root, "kubernetes").and_then(|block| below(block, "version"));
    let changed = value.and_then(|value| replaced(text, value, version));
    changed.ok_or_else(|| {
        let position = value.map_or(&root.position, |value| &value.position);
        // Without its line: the document may contain secrets.
        Problem::at(
            position,
            format!("cannot change `{PATH}` to {version} in this text"),
        )
        .path(PATH)
        .hint("write the version in quotes behind `version:`, on the same line")
    })
}

fn below<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.kind {
        NodeKind::Map(entries) => {
            let entry = entries.iter().find(|(key, _)| key.raw == name);
            entry.map(|(_, value)| value)
        }
        _ => None,
    }
}

/// The text with another value in place of a scalar.
fn replaced(text: &str, value: &Node, version: &str) -> Option<String> {
    let line = (value.position.line as usize).checked_sub(1)?;
    let column = (value.position.column as usize).checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..)?;
    let at = start + rest.char_indices().nth(column)?.0;
    // In a block scalar, quotes would be part of the value.
    let is_beside_its_key = text.get(start..at)?.trim_end().ends_with(':');
    let quote = text
        .get(at..)?
        .chars()
        .next()
        .filter(|c| ['"', '\''].contains(c));
    let quote = quote.map(String::from).unwrap_or_default();
    let old = format!("{quote}{}{quote}", value.raw);
    let after = text
        .get(at..)?
        .strip_prefix(&old)
        .filter(|_| is_beside_its_key)?;
    Some(format!("{}\"{version}\"{after}", &text[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_is_replaced() {
        for (before, after) in [
            (
                "# ü\na: ü # 1.35\nkubernetes:\n  # mine\n  version: \"1.35\" # why\nb: 1.35\n",
                "# ü\na: ü # 1.35\nkubernetes:\n  # mine\n  version: \"1.36\" # why\nb: 1.35\n",
            ),
            (
                "kubernetes: {version: '1.35'}",
                "kubernetes: {version: \"1.36\"}",
            ),
            (
                "kubernetes: {version: 1.35}\n",
                "kubernetes: {version: \"1.36\"}\n",
            ),
            (
                "kubernetes:\n  version: v1.35\n",
                "kubernetes:\n  version: \"1.36\"\n",
            ),
        ] {
            assert_eq!(with_kubernetes_version("c", before, "1.36").unwrap(), after);
        }
        for text in [
            "a: 1\n",
            "kubernetes: 1.35\n",
            "kubernetes:\n  version: >-\n    1.35\n",
        ] {
            let problem = with_kubernetes_version("c", text, "1.36").unwrap_err();
            assert!(problem.to_string().contains("cannot change"), "{problem}");
        }
    }
}
