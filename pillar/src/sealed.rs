//! The encrypted file with the values of secrets, which the cluster document names.
//!
//! This crate does not decrypt it: a reader that has the key adds the plain text
//! ([`SealedSecrets::plain`]). For all others the values are unknown, and everything else of the
//! declaration is validated as usual.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use halite_document::Problem;
use halite_document::source::join;
use halite_document::yaml::{Node, NodeKind};
use halite_secrets::{SecretText, reference, yaml};

use crate::cluster::Cluster;
use crate::declaration::Document;
use crate::formats;

/// The name of the encrypted file in the operator's directory.
pub const SEALED_FILE: &str = "secrets.yaml.age";

/// The encrypted file with the values of secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealedSecrets {
    /// The name of the file in problems.
    pub file: String,
    /// Its encrypted content.
    pub bytes: Vec<u8>,
    /// The decrypted content: a mapping of names to values. `None` if the reader has no key.
    pub plain: Option<SecretText>,
}

impl SealedSecrets {
    /// Reads the file in the operator's directory, without decrypting it; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn from_dir(dir: &Path) -> Result<Option<Self>, Problem> {
        let path = dir.join(SEALED_FILE);
        let file = path.display().to_string();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(Self {
                file,
                bytes,
                plain: None,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::in_file(file, format!("cannot be read: {error}"))),
        }
    }
}

impl Cluster {
    /// The names of the secrets whose values are in an encrypted file that was not decrypted.
    pub fn unknown_secrets(&self) -> impl Iterator<Item = &str> {
        let unknown = (self.secrets.iter()).filter(|(_, secret)| secret.value.is_none());
        unknown.map(|(name, _)| name.as_str())
    }
}

/// Puts the values of the encrypted file into the cluster document, and reports each problem of the
/// two together. No problem repeats a part of the plain text, except a well-formed name.
pub(crate) fn fill(
    cluster: &mut Document<Cluster>,
    sealed: Option<&SealedSecrets>,
    problems: &mut Vec<Problem>,
) {
    let mut reported = BTreeSet::new();
    if let Some(sealed) = sealed {
        let Some(plain) = &sealed.plain else { return };
        match merge(cluster, &sealed.file, plain.reveal(), problems) {
            Some(unusable) => reported = unusable,
            None => return,
        }
    }
    for (name, secret) in &cluster.value.secrets {
        let path = join("secrets", name);
        let is_open = secret.value.is_none() && !reported.contains(name);
        if is_open && cluster.source.is_sound(&path) {
            problems.push(
                cluster
                    .source
                    .problem(&path, format!("the secret `{name}` has no value"))
                    .hint("`ctl secrets edit` writes it encrypted"),
            );
        }
    }
}

/// Returns the names whose values in the encrypted file cannot be used; `None` if it has no entries
/// that can be read.
fn merge(
    cluster: &mut Document<Cluster>,
    file: &str,
    text: &str,
    problems: &mut Vec<Problem>,
) -> Option<BTreeSet<String>> {
    let entries = match entries(file, text) {
        Ok(entries) => entries,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    let mut unusable = BTreeSet::new();
    for (key, value) in &entries {
        if let Err(problem) = take(cluster, key, value) {
            problems.push(problem);
            unusable.insert(key.raw.clone());
        }
    }
    Some(unusable)
}

/// The names in the plain text of the encrypted file.
///
/// # Errors
/// It is not a mapping. The problem does not repeat a part of it.
pub fn names(file: &str, text: &str) -> Result<Vec<String>, Problem> {
    let entries = entries(file, text)?.into_iter();
    Ok(entries.map(|(key, _)| key.raw).collect())
}

/// The entries of the plain text. A parser's own message may quote a value, so only its place is
/// reported.
fn entries(file: &str, text: &str) -> Result<Vec<(Node, Node)>, Problem> {
    // Without any value, a YAML text has no document.
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_empty) {
        return Ok(Vec::new());
    }
    let root = yaml::parse(file, text).map_err(|problem| Problem {
        path: String::new(),
        message: "this is not YAML with one value for each name".to_owned(),
        hint: "each entry is `NAME: VALUE`, each name occurs once, and a value with special characters has quotes"
            .to_owned(),
        excerpt: String::new(),
        ..problem
    })?;
    match root.kind {
        NodeKind::Map(entries) => Ok(entries),
        NodeKind::Null => Ok(Vec::new()),
        _ => Err(Problem::at(&root.position, "this is not a mapping")
            .hint("each entry is `NAME: VALUE`")),
    }
}

fn take(cluster: &mut Document<Cluster>, key: &Node, value: &Node) -> Result<(), Problem> {
    let name = &key.raw;
    if formats::check("secret-name", name).is_err() {
        return Err(
            Problem::at(&key.position, "this is not a valid name of a secret")
                .hint("use letters, digits, `-` and `_`"),
        );
    }
    let problem = |message: String, hint: String| {
        let at = if value.is_scalar() && value.kind != NodeKind::Null {
            &value.position
        } else {
            &key.position
        };
        Err(Problem::at(at, message).path(name.as_str()).hint(hint))
    };
    let NodeKind::Text(text) = &value.kind else {
        return problem(
            format!("the value of the secret `{name}` is not a text"),
            format!("write it in quotes: `{name}: \"…\"`"),
        );
    };
    if text.is_empty() {
        return problem(
            format!("the secret `{name}` is empty"),
            "write its value".to_owned(),
        );
    }
    if reference::mentions(text) {
        return problem(
            format!(
                "`{}` is reserved for references to secrets",
                reference::PREFIX
            ),
            "choose another value".to_owned(),
        );
    }
    let declared = cluster.source.position(&join("secrets", name));
    let document = cluster.source.file.clone();
    match cluster.value.secrets.get_mut(name) {
        None => problem(
            format!("{document} does not declare the secret `{name}`"),
            format!(
                "add it under `secrets:` there, with the hosts that get it: `{name}: {{roles: [worker]}}`; or remove it here"
            ),
        ),
        Some(secret) if secret.known().is_some_and(|known| known != text) => problem(
            format!(
                "the secret `{name}` has another value in {document}:{}:{}",
                declared.line, declared.column
            ),
            "remove one of the two".to_owned(),
        ),
        Some(secret) => {
            secret.value = Some(SecretText::new(text));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Text, Texts, load};
    use crate::validate::Context;
    use crate::view::own_secret;

    const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.0.0.0/24]}\n\
        kubernetes: {version: \"1.36\"}\nsiteRegistry: {enabled: true, users: {ci: push}}\nnotify: {sinks: {chat: {urlSecret: hook}}}\n\
        secrets:\n  push: {}\n  hook: {}\n  own: {nodes: [master]}\n";

    fn texts(plain: Option<&str>) -> Texts {
        let text = |file: &str, text: &str| Text {
            file: file.to_owned(),
            text: text.to_owned(),
        };
        Texts {
            cluster: text("cluster.yaml", CLUSTER),
            nodes: vec![text(
                "nodes/a.yaml",
                "apiVersion: halite/v1\nkind: Node\nmetadata: {name: a}\nroles: [bootstrap, registry, etcd, control-plane]\naddress: 10.0.0.1\n",
            )],
            sealed: Some(SealedSecrets {
                file: SEALED_FILE.to_owned(),
                bytes: vec![1],
                plain: plain.map(SecretText::new),
            }),
            ..Texts::default()
        }
    }

    #[test]
    fn without_the_key_a_declaration_is_valid_and_its_values_are_unknown() {
        let declaration = load(&texts(None), &Context::default()).unwrap();
        let unknown: Vec<&str> = declaration.cluster.unknown_secrets().collect();
        assert_eq!(unknown, ["hook", "own", "push"]);
        assert_eq!(own_secret(&declaration, "master", "secrets.own"), None);
        assert!(declaration.cluster.sink_targets().is_empty());
    }

    #[test]
    fn with_the_key_the_values_are_used_and_validated() {
        let plain = "push: a-long-password\nhook: https://chat.example.com/canary\nown: |\n  two\n  lines\n";
        let declaration = load(&texts(Some(plain)), &Context::default()).unwrap();
        assert_eq!(declaration.cluster.unknown_secrets().count(), 0);
        assert_eq!(
            own_secret(&declaration, "master", "secrets.own").as_deref(),
            Some("two\nlines\n")
        );
        assert_eq!(declaration.cluster.sink_targets().len(), 1);
        assert!(!format!("{declaration:?}").contains("canary"));
        let short = plain.replace("a-long-password", "canary");
        let problems = load(&texts(Some(&short)), &Context::default()).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}")
        };
        let text = problem.to_string();
        assert!(
            text.contains("is shorter than") && !text.contains("canary"),
            "{text}"
        );
    }
}
