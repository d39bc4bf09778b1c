//! Reads the documents of a cluster, and reports every problem of every file at once.

use std::path::Path;

use halite_document::schema::read;
use halite_document::source::join;
use halite_document::{DocumentSource, Problem};
use halite_names::NodeName;
use halite_secrets::{reference, yaml};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::declaration::{Declaration, Document};
use crate::formats::Documents;
use crate::node::Node;
use crate::sealed::SealedSecrets;
use crate::validate::Context;
use crate::{schema, sealed, validate};

/// A file by name and content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// The name of the file in problems.
    pub file: String,
    /// Its content.
    pub text: String,
}

impl std::fmt::Debug for Text {
    // The text may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Text").field(&self.file).finish()
    }
}

/// The operator's documents as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// `cluster.yaml`.
    pub cluster: Text,
    /// `nodes/*.yaml`.
    pub nodes: Vec<Text>,
    /// `custom/pillar.yaml`.
    pub custom: Option<Text>,
    /// `secrets.yaml.age`.
    pub sealed: Option<SealedSecrets>,
}

impl Texts {
    /// Reads the layout of `/etc/halite`: `cluster.yaml`, `nodes/NAME.yaml`, `custom/pillar.yaml`,
    /// and `secrets.yaml.age`, which stays encrypted. Hidden files and other endings in `nodes/`
    /// are left alone.
    ///
    /// # Errors
    /// All files that are missing or cannot be read.
    pub fn from_dir(dir: &Path) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut read = |path: &Path| {
            let file = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => Some(Text { file, text }),
                Err(error) => {
                    problems.push(Problem::in_file(file, format!("cannot be read: {error}")));
                    None
                }
            }
        };
        let cluster = read(&dir.join("cluster.yaml"));
        let mut names: Vec<_> = std::fs::read_dir(dir.join("nodes"))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension().is_some_and(|ending| ending == "yaml")
                    && !path
                        .file_name()
                        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
            })
            .collect();
        names.sort();
        let nodes = names.iter().filter_map(|path| read(path)).collect();
        let custom = dir.join("custom/pillar.yaml");
        let custom = if custom.exists() { read(&custom) } else { None };
        let sealed = match SealedSecrets::from_dir(dir) {
            Ok(sealed) => sealed,
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        match (cluster, problems.is_empty()) {
            (Some(cluster), true) => Ok(Self {
                cluster,
                nodes,
                custom,
                sealed,
            }),
            _ => Err(problems),
        }
    }
}

/// Reads and validates the documents. `context` has additional facts; checks that need a missing
/// fact are skipped.
///
/// # Errors
/// All problems of all files, sorted by place.
pub fn load(texts: &Texts, context: &Context<'_>) -> Result<Declaration, Vec<Problem>> {
    let mut problems = Vec::new();
    let custom = custom(texts.custom.as_ref(), &mut problems);
    let mut nodes = Vec::new();
    for text in &texts.nodes {
        if let Some(node) = document::<Node>(text, schema::node(), &mut problems) {
            nodes.push(node);
        }
    }
    if let Some(mut cluster) = document::<Cluster>(&texts.cluster, schema::cluster(), &mut problems)
    {
        sealed::fill(&mut cluster, texts.sealed.as_ref(), &mut problems);
        problems.extend(validate::duplicate_names(&nodes));
        let nodes = nodes
            .into_iter()
            .enumerate()
            .map(|(number, node)| (key(number, &node), node))
            .collect();
        let declaration = Declaration {
            cluster,
            nodes,
            custom,
        };
        problems.extend(validate::validate(&declaration, context));
        if problems.is_empty() {
            return Ok(declaration);
        }
    }
    problems.sort();
    problems.dedup();
    Err(problems)
}

/// The name of a node. A document without a valid name gets another for the validation, which then
/// finds its other problems; the declaration is refused.
fn key(number: usize, node: &Node) -> NodeName {
    let name = node.metadata.name.parse();
    name.unwrap_or_else(|_| NodeName::unnamed(number))
}

/// The values that a valid document contains, as its schema reads them: without defaults, secrets
/// included.
///
/// # Errors
/// All problems of the document alone.
pub fn values(text: &Text, schema: &Value) -> Result<Value, Vec<Problem>> {
    let root = yaml::parse(&text.file, &text.text).map_err(|problem| vec![problem])?;
    let read = read(&text.file, &text.text, root, schema, &Documents);
    match read.problems.is_empty() {
        true => Ok(read.value),
        false => Err(read.problems),
    }
}

/// Reads one document of any kind by its schema, and adds its problems.
pub(crate) fn document<T: DeserializeOwned>(
    text: &Text,
    schema: &Value,
    problems: &mut Vec<Problem>,
) -> Option<Document<T>> {
    let root = match yaml::parse(&text.file, &text.text) {
        Ok(root) => root,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    let read = read(&text.file, &text.text, root, schema, &Documents);
    problems.extend(read.problems);
    let source = read.source;
    placeholders(&read.value, &source, "", problems);
    match serde_json::from_value(read.value) {
        Ok(value) => Some(Document { value, source }),
        Err(error) => {
            // serde's message may quote a secret value, so only the kind of the failure is
            // reported.
            problems.push(Problem::in_file(
                &text.file,
                format!("cannot be used ({:?})", error.classify()),
            ));
            None
        }
    }
}

/// Reports references to secrets: the master would replace them like its own references.
fn placeholders(value: &Value, source: &DocumentSource, path: &str, problems: &mut Vec<Problem>) {
    match value {
        Value::String(text) if reference::mentions(text) => problems.push(
            source
                .problem(
                    path,
                    format!(
                        "`{}` is reserved for references to secrets",
                        reference::PREFIX
                    ),
                )
                .hint("declare the secret under `secrets:` and use it in a state"),
        ),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
            placeholders(item, source, &format!("{path}[{index}]"), problems)
        }),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| placeholders(item, source, &join(path, key), problems)),
        _ => {}
    }
}

fn custom(text: Option<&Text>, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let Some(text) = text else { return Map::new() };
    let root = match yaml::parse(&text.file, &text.text) {
        Ok(root) => root,
        Err(problem) => {
            problems.push(problem);
            return Map::new();
        }
    };
    let value = root.to_json();
    let source = DocumentSource::new(&text.file, &text.text, root);
    placeholders(&value, &source, "", problems);
    match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => {
            problems.push(
                source
                    .problem("", "must be a mapping")
                    .hint("its keys become `pillar.custom.KEY`"),
            );
            Map::new()
        }
    }
}
