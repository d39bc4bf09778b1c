//! The answers from a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use halite_document::yaml::{Node as Yaml, NodeKind};
use halite_document::{Position, Problem, did_you_mean};
use halite_secrets::yaml;
use serde_json::Value;

use super::draft::{Draft, below};
use crate::compile::report;

/// Takes the answers from a file; a field without an answer gets the default of the schema.
/// `is_here`: the facts about the first host are those of this one.
///
/// # Errors
/// The file cannot be read; or all missing, unknown and invalid answers, each with its place.
pub fn apply(draft: &mut Draft, file: &Path, is_here: bool) -> anyhow::Result<()> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let root = yaml::parse(&shown, &text)
        .map_err(|problem| anyhow::anyhow!("cannot use the answers: {}", report(&[problem])))?;
    let mut answers = AnswersFile::new(&shown, &text, root);
    answers.apply(draft);
    let (problems, open) = (answers.problems, answers.open);
    if problems.is_empty() {
        return Ok(());
    }
    let is_open = |at| open.contains(&at);
    let is_elsewhere = is_here
        && !draft.problems(is_open).is_empty()
        && draft.problems_anywhere(is_open).is_empty();
    let remedy = if is_elsewhere {
        "\nif the first host is another one, run this command there, or with --other-host"
    } else {
        ""
    };
    bail!(
        "cannot use the answers: {}{remedy}\nnothing was written",
        report(&problems)
    )
}

/// A parsed file of answers.
struct AnswersFile<'a> {
    file: &'a str,
    text: &'a str,
    root: Yaml,
    problems: Vec<Problem>,
    /// The questions without a usable answer.
    open: Vec<usize>,
}

impl<'a> AnswersFile<'a> {
    fn new(file: &'a str, text: &'a str, root: Yaml) -> Self {
        Self {
            file,
            text,
            root,
            problems: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Puts the answers into the draft, and collects all problems in the order of their places.
    fn apply(&mut self, draft: &mut Draft) {
        if !matches!(self.root.kind, NodeKind::Map(_) | NodeKind::Null) {
            let position = self.root.position.clone();
            self.add(
                &position,
                "",
                "must be a mapping",
                "write one `PATH: VALUE` for each answer",
            );
            return;
        }
        self.unknown(draft);
        let mut places = BTreeMap::new();
        for at in 0..draft.questions.len() {
            let id = draft.questions[at].id.clone();
            let found = self.root.entries().iter().find(|(key, _)| key.raw == id);
            let found = found.map(|(key, value)| (key.position.clone(), value.clone()));
            if !draft.is_asked(at) {
                draft.set(at, None);
                if let Some((position, _)) = found {
                    let condition = draft.questions[at].field.condition().unwrap_or_default();
                    let message = format!("is not used, because `{condition}` is not set");
                    self.add(&position, &id, message, "remove the answer");
                }
                continue;
            }
            let field = &draft.questions[at].field;
            let (is_required, description) = (field.is_required, field.description());
            let answer = match found {
                Some((position, value)) => {
                    let answer = read(&value, &|line| field.value(line));
                    places.insert(id.clone(), position.clone());
                    if answer.is_err() {
                        self.add(
                            &position,
                            &id,
                            "must be a value or a list of values",
                            &description,
                        );
                        self.open.push(at);
                    }
                    answer.unwrap_or_default()
                }
                None => field.default(),
            };
            if answer.is_none() && is_required && !self.open.contains(&at) {
                let position = self.root.position.clone();
                self.add(&position, &id, "the answer is missing", &description);
                self.open.push(at);
            }
            draft.set(at, answer);
        }
        for problem in draft.problems(|at| self.open.contains(&at)) {
            self.of_documents(draft, problem, &places);
        }
        self.problems.sort();
    }

    fn add(&mut self, position: &Position, id: &str, message: impl Into<String>, hint: &str) {
        let problem = Problem::at(position, message).path(id).hint(hint);
        self.problems.push(problem.excerpt_from(self.text));
    }

    /// Reports answers that belong to no question.
    fn unknown(&mut self, draft: &Draft) {
        let ids: Vec<&str> = (draft.questions.iter())
            .map(|question| question.id.as_str())
            .collect();
        let entries = self.root.entries().iter();
        let unknown: Vec<Yaml> = entries
            .map(|(key, _)| key)
            .filter(|key| !ids.contains(&key.raw.as_str()))
            .cloned()
            .collect();
        for key in unknown {
            let hint = match did_you_mean(&key.raw, ids.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the answers are: {}", ids.join(", ")),
            };
            let message = format!("there is no question `{}`", key.raw);
            self.add(&key.position, "", message, &hint);
        }
    }

    /// Reports a problem of the documents at the answer that causes it, or as one of the whole file
    /// if a default causes it.
    fn of_documents(
        &mut self,
        draft: &Draft,
        problem: Problem,
        places: &BTreeMap<String, Position>,
    ) {
        let question = draft.questions.iter().find(|question| {
            draft.path(question.document).display().to_string() == problem.file
                && below(&problem.path, &question.field.path)
        });
        let Some(question) = question else {
            self.problems.push(problem);
            return;
        };
        match places.get(&question.id) {
            Some(position) => {
                self.add(position, &question.id, problem.message, &problem.hint);
            }
            None => self.problems.push(
                Problem::in_file(self.file, problem.message)
                    .path(&question.id)
                    .hint(problem.hint),
            ),
        }
    }
}

/// The value of an answer; `None` if it is null. Scalars are read as they are written.
fn read(node: &Yaml, value: &dyn Fn(&str) -> Value) -> Result<Option<Value>, ()> {
    if node.kind == NodeKind::Null {
        return Ok(None);
    }
    if let Some(text) = node.text() {
        return Ok(Some(value(text)));
    }
    let items = node.items().iter().map(Yaml::text);
    let items: Option<Vec<&str>> = items.collect();
    match (items, &node.kind) {
        (Some(items), NodeKind::List(_)) => Ok(Some(value(&items.join(", ")))),
        _ => Err(()),
    }
}
