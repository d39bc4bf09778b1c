//! The roles in the text of a node document.

use halite_document::Problem;
use halite_document::yaml::NodeKind;
use halite_secrets::yaml;

use crate::role::Role;

/// The text of a node document with other roles. Everything else stays unchanged, except for
/// comments on the lines of the roles.
///
/// # Errors
/// The text is not a document in block style with roles.
pub fn with_roles(file: &str, text: &str, roles: &[Role]) -> Result<String, Problem> {
    let root = yaml::parse(file, text)?;
    let entry = match &root.kind {
        NodeKind::Map(entries) => entries.iter().find(|(key, _)| key.raw == "roles"),
        _ => None,
    };
    let lines: Vec<&str> = text.lines().collect();
    let line = entry.map(|(key, _)| key.position.line as usize - 1);
    let at = line.filter(|at| lines.get(*at).is_some_and(|line| line.starts_with("roles")));
    let Some(at) = at else {
        return Err(Problem::at(
            &root.position,
            "the roles cannot be changed in this document",
        )
        .hint("write one key per line, `roles` at the start of its own")
        .excerpt_from(text));
    };
    // The items of a list may start in the column of its key, and so may the end of a list in
    // brackets.
    let belongs = |line: &&str| line.is_empty() || line.starts_with([' ', '\t', '-', ']']);
    let mut end = at
        + 1
        + lines[at + 1..]
            .iter()
            .take_while(|line| belongs(line))
            .count();
    while end > at + 1 && lines[end - 1].is_empty() {
        end -= 1;
    }
    let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    let own = format!("roles: [{}]", names.join(", "));
    let mut out = lines[..at].to_vec();
    out.push(&own);
    out.extend(&lines[end..]);
    Ok(out.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_roles_are_replaced() {
        let roles = [Role::Worker, Role::Infra];
        for (before, after) in [
            (
                "a: 1 # one\nroles: [worker]\n# two\nlabels: {b: c}\n",
                "a: 1 # one\nroles: [worker, infra]\n# two\nlabels: {b: c}\n",
            ),
            (
                "roles:\n- worker\n- etcd\n\nlabels: {b: c}\n",
                "roles: [worker, infra]\n\nlabels: {b: c}\n",
            ),
            (
                "a: 1\nroles:\n  - worker\n",
                "a: 1\nroles: [worker, infra]\n",
            ),
            (
                "roles: [\n  worker\n]\na: 1\n",
                "roles: [worker, infra]\na: 1\n",
            ),
        ] {
            assert_eq!(with_roles("n.yaml", before, &roles).unwrap(), after);
        }
        for text in ["{roles: [worker]}\n", "a: 1\n", "[]\n"] {
            let problem = with_roles("n.yaml", text, &roles).unwrap_err();
            assert!(
                problem.to_string().contains("cannot be changed"),
                "{problem}"
            );
        }
    }
}
