//! Templates: Jinja as Salt's users write it, on minijinja. Pure: a template can compute with
//! pillar and grains and read files of the state tree, nothing else.

mod dump;
mod environment;
mod files;
mod filters;
mod guard;
pub(crate) mod lines;
mod methods;
mod network;
mod prepare;
mod salt;
mod trace;
pub(crate) mod values;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use environment::Pair;
use files::Files;
use halite_document::yaml::Node;
use halite_document::{Position, Problem};
use halite_secrets::yaml;
use lines::LineMap;
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;
use trace::{GRAINS, Memory, OPTS, PILLAR, Recorder, Trace, World};
use values::{from_json, recorded};

use crate::tree::Tree;

pub(crate) use guard::Purpose;

/// A rendered text.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub text: String,
    pub map: LineMap,
    /// Files that were read for it, itself first.
    pub files: Vec<String>,
    /// Pillar paths that it read.
    pub pillar: Vec<String>,
    /// What [`Self::node`] and [`Self::documents`] made of it.
    node: RefCell<Option<Rc<Node>>>,
    documents: RefCell<Option<Rc<Vec<Json>>>>,
}

impl Rendered {
    /// The text, which has one document, as the YAML that it is; places are those in the templates.
    pub(crate) fn node(&self) -> Result<Rc<Node>, Problem> {
        kept(&self.node, || {
            yaml::parse_located(self.path(), &self.text, &|position| {
                self.map.locate(position)
            })
        })
    }

    /// The documents of the text that have any content.
    pub(crate) fn documents(&self) -> Result<Rc<Vec<Json>>, Problem> {
        kept(&self.documents, || {
            let locate = |position: &mut Position| self.map.locate(position);
            Ok(with_content(&yaml::parse_all_located(
                self.path(),
                &self.text,
                &locate,
            )?))
        })
    }

    fn path(&self) -> &str {
        self.files.first().map_or("", String::as_str)
    }
}

fn with_content(nodes: &[Node]) -> Vec<Json> {
    nodes
        .iter()
        .map(Node::to_json)
        .filter(|node| !node.is_null())
        .collect()
}

/// What is there from the last time, or what is made now.
fn kept<T>(
    place: &RefCell<Option<Rc<T>>>,
    make: impl FnOnce() -> Result<T, Problem>,
) -> Result<Rc<T>, Problem> {
    if let Some(there) = &*place.borrow() {
        return Ok(there.clone());
    }
    let made = Rc::new(make()?);
    *place.borrow_mut() = Some(made.clone());
    Ok(made)
}

/// What a text is rendered from besides the data of a minion: for what, which file, and the
/// variables as JSON.
type Key = (Purpose, String, String);

/// What was asked for, and what came out for the minion of that time.
#[derive(Debug)]
pub(crate) struct Asked {
    key: Key,
    rendered: Rc<Rendered>,
}

impl Asked {
    /// What came out.
    pub(crate) fn rendered(&self) -> &Rc<Rendered> {
        &self.rendered
    }
}

/// What was rendered, each with what it found.
type Versions = Vec<(Trace, Rc<Rendered>)>;

/// Renders templates of one state tree, for one minion after the other. What was rendered for one
/// is not rendered again for the next for whom nothing differs that the template looked at.
pub(crate) struct Renderer {
    files: Arc<Files>,
    recorder: Arc<Recorder>,
    world: World,
    sls: Pair,
    file: Pair,
    rendered: RefCell<HashMap<Key, Versions>>,
    memory: RefCell<Memory>,
    /// Documents of files that are no templates.
    plain: RefCell<HashMap<String, Rc<Vec<Json>>>>,
}

impl Renderer {
    /// A renderer that knows no minion yet.
    pub(crate) fn new(tree: &dyn Tree) -> Self {
        let files = Arc::new(Files::new(tree));
        Self {
            sls: Pair::new(&files, Purpose::Sls),
            file: Pair::new(&files, Purpose::File),
            files,
            recorder: Arc::default(),
            world: World::default(),
            rendered: RefCell::default(),
            memory: RefCell::default(),
            plain: RefCell::default(),
        }
    }

    /// From now on it renders for this minion.
    pub(crate) fn about(&mut self, minion: &str, pillar: &Json, grains: &Json) {
        self.world = World::new(minion, pillar, grains);
        self.memory.get_mut().forget();
        let [pillar, grains, opts] = [PILLAR, GRAINS, OPTS]
            .map(|place| recorded(self.world.at(place), place, &self.recorder));
        let known = Arc::new(salt::Known {
            pillar,
            grains,
            opts,
        });
        self.sls.about(&known);
        self.file.about(&known);
    }

    /// The text of a file of the tree.
    pub(crate) fn source(&self, path: &str) -> Option<Arc<str>> {
        self.files.text(path).cloned()
    }

    /// The documents of a file of the tree that is no template, if there is such a text file.
    pub(crate) fn documents(&self, path: &str) -> Option<Result<Rc<Vec<Json>>, Problem>> {
        if let Some(there) = self.plain.borrow().get(path) {
            return Some(Ok(there.clone()));
        }
        let documents = yaml::parse_all(path, self.files.text(path)?).map(|nodes| {
            let documents = Rc::new(with_content(&nodes));
            self.plain
                .borrow_mut()
                .insert(path.to_owned(), documents.clone());
            documents
        });
        Some(documents)
    }

    /// Renders a file of the tree with further variables.
    pub(crate) fn render(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rc<Rendered>, Problem> {
        Ok(self.ask(purpose, path, variables)?.rendered)
    }

    /// As [`Self::render`], for [`Self::is_same`].
    pub(crate) fn ask(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Asked, Problem> {
        let told = serde_json::to_string(variables).unwrap_or_default();
        let key = (purpose, path.to_owned(), told);
        if let Some(rendered) = self.kept(&key) {
            return Ok(Asked { key, rendered });
        }
        let (rendered, trace) = self.render_anew(purpose, path, variables)?;
        let rendered = Rc::new(rendered);
        self.rendered
            .borrow_mut()
            .entry(key.clone())
            .or_default()
            .push((trace, rendered.clone()));
        Ok(Asked { key, rendered })
    }

    /// Whether the same comes out for the present minion; if not for sure, then not.
    pub(crate) fn is_same(&self, asked: &Asked) -> bool {
        self.kept(&asked.key)
            .is_some_and(|rendered| Rc::ptr_eq(&rendered, &asked.rendered))
    }

    fn kept(&self, key: &Key) -> Option<Rc<Rendered>> {
        let rendered = self.rendered.borrow();
        let mut memory = self.memory.borrow_mut();
        let mut versions = rendered.get(key)?.iter();
        versions
            .find(|(trace, _)| memory.holds(trace, &self.world))
            .map(|(_, same)| same.clone())
    }

    fn render_anew(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<(Rendered, Trace), Problem> {
        let (Some(source), Some(number)) = (self.source(path), self.files.number(path)) else {
            return Err(Problem::in_file(
                path,
                "there is no such text file in the state tree",
            ));
        };
        let prepared = prepare::prepare(path, &source).map_err(|message| {
            Problem {
                line: 1,
                column: 1,
                ..Problem::in_file(path, message)
            }
            .excerpt_from(&source)
        })?;
        let mut rendered = Rendered {
            text: prepared.text,
            map: LineMap::default(),
            files: vec![path.to_owned()],
            pillar: Vec::new(),
            node: RefCell::default(),
            documents: RefCell::default(),
        };
        let sources = self.files.sources().clone();
        if !prepared.template {
            rendered.map = LineMap::new(sources, number, &rendered.text, None);
            return Ok((rendered, Trace::default()));
        }
        // A collected iterator of pairs would be a sequence.
        let context = from_json(&Json::Object(variables.clone().into_iter().collect()));
        let pair = match purpose {
            Purpose::Sls => &self.sls,
            Purpose::File => &self.file,
        };
        self.files.take();
        self.recorder.take();
        rendered.text = pair
            .plain
            .get_template(path)
            .and_then(|template| template.render(context.clone()))
            .map_err(|error| self.explain(&error, path))?;
        rendered
            .files
            .extend(self.files.take().into_iter().filter(|name| name != path));
        let mut looks = self.recorder.take();
        rendered.pillar = looks.pillar(&self.world);
        let marked = pair
            .marked
            .get_template(path)
            .and_then(|template| template.render(context))
            .ok();
        looks.join(self.recorder.take());
        rendered.map = LineMap::new(sources, number, &rendered.text, marked.as_deref());
        let trace = self.memory.borrow_mut().trace(looks, &self.world);
        Ok((rendered, trace))
    }

    /// The innermost place of an error and its cause, in words.
    fn explain(&self, error: &Error, path: &str) -> Problem {
        let mut place = (path.to_owned(), 0, None);
        let mut cause = error;
        let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = at {
            if let Some(error) = current.downcast_ref::<Error>() {
                if let (Some(name), Some(line)) = (error.name(), error.line())
                    && self.files.number(name).is_some()
                {
                    place = (name.to_owned(), line, error.range());
                }
                if !matches!(error.kind(), ErrorKind::BadInclude | ErrorKind::EvalBlock) {
                    cause = error;
                }
            }
            at = current.source();
        }
        let (file, line, range) = place;
        let source = self.source(&file).unwrap_or_default();
        let mut problem = Problem {
            line: u32::try_from(line).unwrap_or(0),
            ..Problem::in_file(&file, message(cause))
        };
        problem.column = range
            .and_then(|range| column(&file, &source, range.start, line))
            .unwrap_or(0);
        problem.hint = hint(cause);
        problem.excerpt_from(&source)
    }
}

/// The column of an offset in the prepared text, where that line ends as it does in the source (the
/// first line got a head that the source does not have).
fn column(file: &str, source: &str, offset: usize, line: usize) -> Option<u32> {
    let prepared = prepare::prepare(file, source).ok()?.text;
    let start = prepared.get(..offset)?.rfind('\n').map_or(0, |at| at + 1);
    let here = prepared[start..].lines().next()?;
    let head = here.strip_suffix(source.lines().nth(line.checked_sub(1)?)?)?;
    let column = offset.checked_sub(start + head.len())?;
    u32::try_from(here[head.len()..].get(..column)?.chars().count() + 1).ok()
}

fn message(error: &Error) -> String {
    let detail = error.detail().map(str::to_owned);
    match (error.kind(), detail) {
        (ErrorKind::UndefinedError, Some(detail)) => detail,
        (ErrorKind::UndefinedError, None) => "a value that is not defined is used".to_owned(),
        (ErrorKind::OutOfFuel, _) => {
            "the template takes too many steps; is there an endless loop?".to_owned()
        }
        (ErrorKind::TemplateNotFound, Some(detail)) => format!("{detail} in the state tree"),
        (ErrorKind::InvalidOperation | ErrorKind::UnknownFunction, Some(detail)) => detail,
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}

fn hint(error: &Error) -> String {
    match error.kind() {
        ErrorKind::UndefinedError => {
            "give a default, `{{ x | default('…') }}` or `salt['pillar.get']('a:b', '…')`, or test it with `is defined`"
        }
        ErrorKind::UnknownFilter => "docs/coming-from-salt.md lists the filters that there are",
        ErrorKind::OutOfFuel => "move large data into the pillar or into files",
        _ => "",
    }
    .to_owned()
}

#[cfg(test)]
mod tests;
