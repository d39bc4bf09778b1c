//! The secrets in the text of the cluster document, without their values.

use std::fmt::Write as _;

use halite_document::Problem;
use halite_document::yaml::NodeKind;
use halite_secrets::yaml;

use crate::cluster::Cluster;

const KEY: &str = "secrets";
const COMMENT: &str = "# Their values are in secrets.yaml.age: ctl secrets edit";

/// The text of a cluster document whose secrets have no values, with the names, roles and nodes of
/// this cluster's secrets. Everything outside `secrets` stays unchanged, comments included.
///
/// # Errors
/// The text is not a document in block style.
pub fn without_secret_values(file: &str, text: &str, cluster: &Cluster) -> Result<String, Problem> {
    let root = yaml::parse(file, text)?;
    // Without an excerpt: the line may be that of a secret.
    let refused = || {
        Problem::at(&root.position, "the values of secrets cannot be removed from this text").hint(
            "write `secrets:` at the beginning of a line, and one key of the document per line; then run the command again",
        )
    };
    let NodeKind::Map(entries) = &root.kind else {
        return Err(refused());
    };
    let Some(at) = entries.iter().position(|(key, _)| key.raw == KEY) else {
        return Ok(text.to_owned());
    };
    let line = |index: usize| {
        let key = entries.get(index).map(|(key, _)| &key.position);
        key.map(|position| (position.line as usize).saturating_sub(1))
    };
    let lines: Vec<&str> = text.lines().collect();
    let start = line(at).unwrap_or_default();
    let next = line(at + 1).unwrap_or(lines.len());
    let is_key = |index: usize| {
        lines
            .get(index)
            .is_some_and(|line| !line.starts_with([' ', '\t', '{']))
    };
    if !is_key(start) || (next < lines.len() && (!is_key(next) || next <= start)) {
        return Err(refused());
    }
    // Comments before the next key belong to it; an end marker stays.
    let belongs = |line: &&str| !line.starts_with([' ', '\t', '}', ']']);
    let block = lines.get(start + 1..next).unwrap_or_default();
    let kept = block.iter().rev().take_while(|line| belongs(line)).count();
    let mut out: Vec<&str> = lines.iter().copied().take(start).collect();
    if out.last() == Some(&COMMENT) {
        out.pop();
    }
    let own = self::block(cluster);
    out.extend(own.lines());
    out.extend(lines.get(next - kept..).unwrap_or_default());
    Ok(out.join("\n") + "\n")
}

fn block(cluster: &Cluster) -> String {
    let mut block = format!("{COMMENT}\n{KEY}:\n");
    for (name, secret) in &cluster.secrets {
        let mut parts = Vec::new();
        if !secret.roles.is_empty() {
            let roles: Vec<&str> = secret.roles.iter().map(|role| role.as_str()).collect();
            parts.push(format!("roles: [{}]", roles.join(", ")));
        }
        if !secret.nodes.is_empty() {
            let nodes: Vec<String> = secret.nodes.iter().map(|node| word(node)).collect();
            parts.push(format!("nodes: [{}]", nodes.join(", ")));
        }
        let _ = writeln!(block, "  {}: {{{}}}", word(name), parts.join(", "));
    }
    block
}

/// A name in YAML, in quotes if YAML could read it as something else.
fn word(name: &str) -> String {
    let is_plain = |name: &str| {
        let mut letters = name.chars();
        letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let lower = name.to_ascii_lowercase();
    let other = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    if is_plain(name) && !other.contains(&lower.as_str()) {
        name.to_owned()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Text, document};
    use crate::schema;

    const HEAD: &str =
        "# mine\napiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test} # yes\n";

    fn without(text: &str) -> Result<String, Problem> {
        let read = Text {
            file: "c".to_owned(),
            text: text.to_owned(),
        };
        let mut problems = Vec::new();
        let cluster = document::<Cluster>(&read, schema::cluster(), &mut problems).unwrap();
        without_secret_values("c", text, &cluster)
    }

    #[test]
    fn only_the_values_leave() {
        let wanted = format!(
            "{HEAD}{COMMENT}\nsecrets:\n  \"1\": {{}}\n  smtp: {{roles: [worker], nodes: [a, \"2\"]}}\n\n# of custom\ncustom: {{a: 1}} # keep\n"
        );
        let tail = "\n# of custom\ncustom: {a: 1} # keep\n";
        for secrets in [
            "secrets:\n  # why\n  smtp: {value: canary, roles: [worker], nodes: [a, \"2\"]}\n  '1': {value: canary}\n",
            "secrets:\n  smtp:\n    value: |\n      canary\n\n      two\n    roles: [worker]\n    nodes:\n    - a\n    - \"2\"\n# canary? no\n  '1': {value: canary}\n",
            "secrets: {smtp: {value: canary, roles: [worker],\n  nodes: [a, '2']}, '1': {value: canary}\n}\n",
        ] {
            let text = format!("{HEAD}{secrets}{tail}");
            let once = without(&text).unwrap();
            assert_eq!(once, wanted, "{secrets}");
            assert_eq!(without(&once).unwrap(), wanted);
        }
    }

    #[test]
    fn at_the_end_of_the_document_and_without_secrets_too() {
        let text = format!("{HEAD}secrets: {{smtp: {{value: canary, roles: [worker]}}}}\n");
        assert_eq!(
            without(&text).unwrap(),
            format!("{HEAD}{COMMENT}\nsecrets:\n  smtp: {{roles: [worker]}}\n")
        );
        assert_eq!(without(HEAD).unwrap(), HEAD);
    }

    #[test]
    fn other_forms_are_refused_and_not_displayed() {
        for text in [
            "{apiVersion: halite/v1, kind: Cluster, metadata: {name: test}, secrets: {smtp: {value: canary}}}\n",
            "  apiVersion: halite/v1\n  kind: Cluster\n  metadata: {name: test}\n  secrets: {smtp: {value: canary}}\n",
        ] {
            let problem = without(text).unwrap_err().to_string();
            assert!(
                problem.contains("cannot be removed") && !problem.contains("canary"),
                "{problem}"
            );
        }
    }
}
