//! The `resolved` block of a document, and its insertion into the document's text.

use std::fmt::Write as _;

use halite_document::Problem;
use halite_document::yaml::NodeKind;
use halite_secrets::yaml;

use crate::cluster::ResolvedCluster;

/// The block that records a cluster's Kubernetes version and the bundle in use.
#[must_use]
pub fn cluster_block(resolved: &ResolvedCluster) -> String {
    let mut block =
        String::from("# Chosen by Halite from the bundle; a repair keeps it.\nresolved:\n");
    let _ = writeln!(block, "  kubernetes: {}", resolved.kubernetes);
    if let Some(bundle) = &resolved.bundle {
        // A version may look like a number.
        let _ = writeln!(
            block,
            "  bundle: {}",
            serde_json::Value::from(bundle.as_str())
        );
    }
    if let Some(master) = &resolved.master {
        let _ = writeln!(
            block,
            "  master: {}",
            serde_json::Value::from(master.as_str())
        );
    }
    if let Some(etcd) = resolved.etcd {
        let _ = writeln!(block, "  etcd: {}", etcd.as_str());
    }
    block
}

/// Puts a `resolved` block into the text of a document in place of an older one, or at its end.
/// Everything else stays unchanged, comments included.
///
/// # Errors
/// The text is not a document in block style.
pub fn record(file: &str, text: &str, block: &str) -> Result<String, Problem> {
    let root = yaml::parse(file, text)?;
    let NodeKind::Map(entries) = &root.kind else {
        return Err(Problem::at(&root.position, "must be a mapping").excerpt_from(text));
    };
    let first = text
        .lines()
        .nth((root.position.line as usize).saturating_sub(1))
        .unwrap_or_default();
    if first.trim_start().starts_with('{') {
        return Err(Problem::at(
            &root.position,
            "the chosen addresses cannot be recorded in a document in braces",
        )
        .hint("write one key per line")
        .excerpt_from(text));
    }
    let comment = block.lines().next().unwrap_or_default();
    let old = entries
        .iter()
        .find(|(key, _)| key.raw == "resolved")
        .map(|(key, _)| key.position.line as usize - 1);
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<&str> = Vec::new();
    match old {
        None => {
            out.extend(&lines);
            // A document may end with an explicit marker.
            if out.last().is_some_and(|line| line.trim() == "...") {
                out.pop();
            }
        }
        Some(at) => {
            let end = lines[at + 1..]
                .iter()
                .position(|line| !line.is_empty() && !line.starts_with([' ', '\t']))
                .map_or(lines.len(), |offset| at + 1 + offset);
            let start = if at > 0 && lines[at - 1] == comment {
                at - 1
            } else {
                at
            };
            out.extend(&lines[..start]);
            out.extend(block.lines());
            out.extend(&lines[end..]);
        }
    }
    if old.is_none() {
        out.extend(block.lines());
    }
    Ok(out.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "# note\nresolved:\n  controlPlane: 10.0.0.5\n";

    #[test]
    fn recording_keeps_everything_else() {
        let text = "# mine\nkind: Node # yes\nroles:\n- worker # why\n# end";
        let once = record("f", text, BLOCK).unwrap();
        assert_eq!(once, format!("{text}\n{BLOCK}"));
        assert_eq!(record("f", &once, BLOCK).unwrap(), once);
    }

    #[test]
    fn an_older_record_is_replaced_where_it_stands() {
        let text =
            "a: 1\nresolved: {controlPlane: 10.0.0.1,\n  workloadPlane: 10.0.0.1}\nb: 2 # keep\n";
        assert_eq!(
            record("f", text, BLOCK).unwrap(),
            format!("a: 1\n{BLOCK}b: 2 # keep\n")
        );
    }

    #[test]
    fn a_document_in_braces_is_refused() {
        assert!(record("f", "{kind: Node}\n", BLOCK).is_err());
        assert!(record("f", "- a\n", BLOCK).is_err());
    }
}
