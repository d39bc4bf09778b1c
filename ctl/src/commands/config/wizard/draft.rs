//! A declaration under construction: its questions, the answers so far, and their problems.

use std::path::{Path, PathBuf};

use halite_document::schema::commented;
use halite_document::schema::questions::{SchemaQuestion, constants, questions};
use halite_document::{Problem, fields};
use halite_names::NodeName;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::schema;
use halite_pillar::validate::Context;
use serde_json::{Value, json};

use super::existing::ExistingDocuments;
use crate::paths::{CLUSTER_DOCUMENT_MODE, NODE_DOCUMENT_MODE};

/// The head of the cluster document.
const HEAD: &str =
    "# Written by `ctl config wizard`. `ctl config example` shows the other fields.\n";
/// The prefix of the questions for the first host's document.
const NODE: &str = "node.";

/// A document of the declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftDocument {
    /// The cluster document.
    Cluster,
    /// The document of the first host.
    FirstHost,
}

/// A question for one field of a document.
pub struct DraftQuestion {
    /// The path of the field; in the first host's document it begins with `node.`.
    pub id: String,
    /// The document.
    pub document: DraftDocument,
    /// The field.
    pub field: SchemaQuestion<'static>,
}

/// A declaration under construction.
pub struct Draft {
    /// All questions, in the order in which they are asked.
    pub questions: Vec<DraftQuestion>,
    /// The facts about the bundle to use.
    pub bundle: Option<BundleFacts>,
    /// The facts about the first host.
    pub host: Option<HostFacts>,
    cluster: Value,
    node: Value,
    directory: PathBuf,
    /// Documents that remain as they are.
    others: Texts,
    /// The file of the first host's document as it is now; it is replaced.
    replaced: Option<String>,
}

impl Draft {
    /// A declaration without answers.
    pub fn new(directory: &Path, bundle: Option<BundleFacts>, host: Option<HostFacts>) -> Self {
        let all = |document, prefix: &str, schema| {
            let questions = questions(schema).into_iter();
            let all = questions.map(|field| DraftQuestion {
                id: format!("{prefix}{}", field.path),
                document,
                field,
            });
            all.collect::<Vec<_>>()
        };
        let mut questions = all(DraftDocument::Cluster, "", schema::cluster());
        questions.extend(all(DraftDocument::FirstHost, NODE, schema::node()));
        Self {
            questions,
            bundle,
            host,
            cluster: constants(schema::cluster()),
            node: constants(schema::node()),
            directory: directory.to_owned(),
            others: Texts::default(),
            replaced: None,
        }
    }

    /// Keeps the documents of other hosts.
    pub fn leave(&mut self, existing: &ExistingDocuments) {
        self.others = existing.texts.clone();
        self.replaced = existing.first_host.as_ref().map(|(file, _)| file.clone());
    }

    /// Takes existing values for the answers so far.
    pub fn begin_with(&mut self, existing: &ExistingDocuments) {
        self.cluster.clone_from(&existing.cluster);
        if let Some((_, values)) = &existing.first_host {
            self.node.clone_from(values);
        }
    }

    fn values(&self, document: DraftDocument) -> &Value {
        match document {
            DraftDocument::Cluster => &self.cluster,
            DraftDocument::FirstHost => &self.node,
        }
    }

    /// The answer to a question so far.
    pub fn answer(&self, at: usize) -> Option<&Value> {
        let question = &self.questions[at];
        fields::at(self.values(question.document), &question.field.path)
    }

    /// The answer to the question with this id so far.
    pub fn answer_to(&self, id: &str) -> Option<&Value> {
        let at = self.questions.iter().position(|question| question.id == id);
        self.answer(at?)
    }

    /// Sets an answer; `None` leaves the field out.
    pub fn set(&mut self, at: usize, answer: Option<Value>) {
        let question = &self.questions[at];
        let values = match question.document {
            DraftDocument::Cluster => &mut self.cluster,
            DraftDocument::FirstHost => &mut self.node,
        };
        match answer {
            Some(value) => fields::put(values, &question.field.path, value),
            None => fields::remove(values, &question.field.path),
        }
    }

    /// Returns whether the condition of a question holds.
    pub fn is_asked(&self, at: usize) -> bool {
        let question = &self.questions[at];
        let values = self.values(question.document);
        let condition = question.field.condition();
        condition.is_none_or(|path| fields::is_set(values, path))
    }

    /// The name of the first host, if it is valid.
    pub fn node_name(&self) -> Option<String> {
        let name = fields::at(&self.node, "metadata.name")?.as_str()?;
        name.parse::<NodeName>().ok()?;
        Some(name.to_owned())
    }

    /// The path of a document.
    pub fn path(&self, document: DraftDocument) -> PathBuf {
        match document {
            DraftDocument::Cluster => self.directory.join("cluster.yaml"),
            DraftDocument::FirstHost => {
                let name = self.node_name().unwrap_or_else(|| "NAME".to_owned());
                self.directory.join("nodes").join(format!("{name}.yaml"))
            }
        }
    }

    /// The problems of the documents. The questions that `is_open` names have no answer yet:
    /// neither they nor the consequences of their answers are reported.
    pub fn problems(&self, is_open: impl Fn(usize) -> bool) -> Vec<Problem> {
        self.problems_on(self.host.as_ref(), is_open)
    }

    /// The problems that do not depend on the first host's addresses and routes.
    pub fn problems_anywhere(&self, is_open: impl Fn(usize) -> bool) -> Vec<Problem> {
        self.problems_on(None, is_open)
    }

    fn problems_on(
        &self,
        host: Option<&HostFacts>,
        is_open: impl Fn(usize) -> bool,
    ) -> Vec<Problem> {
        let (mut cluster, mut node) = (self.cluster.clone(), self.node.clone());
        let mut open = Vec::new();
        let mut has_node = false;
        for (at, question) in self.questions.iter().enumerate() {
            if !is_open(at) {
                has_node |= question.document == DraftDocument::FirstHost;
            } else if self.is_asked(at) {
                let values = match question.document {
                    DraftDocument::Cluster => &mut cluster,
                    DraftDocument::FirstHost => &mut node,
                };
                // No field takes a mapping. The reader refuses it, and the validation then reports
                // no consequence of the value.
                fields::put(values, &question.field.path, json!({}));
                let file = self.path(question.document).display().to_string();
                open.push((file, question.field.path.as_str()));
            }
        }
        let name = self.node_name();
        let host = host.map(|facts| HostFacts {
            name: name.unwrap_or_else(|| facts.name.clone()),
            ..facts.clone()
        });
        let context = Context {
            bundle: self.bundle.as_ref(),
            host: host.as_ref(),
        };
        let texts = self.texts(&cluster, has_node.then_some(&node));
        let mut problems = load(&texts, &context).err().unwrap_or_default();
        problems.retain(|problem| {
            let is_of =
                |(file, path): &(String, &str)| *file == problem.file && below(&problem.path, path);
            // A problem of the whole declaration is known only at its end.
            !open.iter().any(is_of) && (open.is_empty() || !problem.path.is_empty())
        });
        problems
    }

    /// The declaration as texts.
    fn texts(&self, cluster: &Value, node: Option<&Value>) -> Texts {
        let text = |document, text| Text {
            file: self.path(document).display().to_string(),
            text,
        };
        let mut texts = self.others.clone();
        texts.cluster = text(DraftDocument::Cluster, cluster_text(cluster));
        // The new document of the first host replaces the present one, also under another name.
        (texts.nodes).retain(|other| self.replaced.as_ref() != Some(&other.file));
        if let Some(node) = node {
            let own = text(DraftDocument::FirstHost, commented(schema::node(), node));
            if self.replaced.is_none() {
                texts.nodes.retain(|other| other.file != own.file);
            }
            // The name of another host is reported as a duplicate.
            texts.nodes.push(own);
        }
        texts
    }

    /// The present document of the first host, if the new one has another name. It is removed once
    /// the new one is written.
    pub fn obsolete(&self) -> Option<PathBuf> {
        let replaced = self.replaced.as_ref()?;
        let own = self.path(DraftDocument::FirstHost).display().to_string();
        (*replaced != own).then(|| PathBuf::from(replaced))
    }

    /// The files to write, with their modes. The cluster document comes first: without it, the
    /// others mean nothing.
    pub fn files(&self) -> Vec<(PathBuf, String, u32)> {
        vec![
            (
                self.path(DraftDocument::Cluster),
                cluster_text(&self.cluster),
                CLUSTER_DOCUMENT_MODE,
            ),
            (
                self.path(DraftDocument::FirstHost),
                commented(schema::node(), &self.node),
                NODE_DOCUMENT_MODE,
            ),
        ]
    }
}

fn cluster_text(values: &Value) -> String {
    format!("{HEAD}{}", commented(schema::cluster(), values))
}

/// Returns whether a path is `above`, or a path below it.
pub fn below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
