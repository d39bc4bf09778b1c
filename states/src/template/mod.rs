//! Templates: Jinja as Salt's users write it, on minijinja. Pure: a template can compute with
//! pillar and grains and read files of the state tree, nothing else.

mod comparisons;
mod dump;
mod environment;
mod error;
mod expression;
mod files;
mod filter_arguments;
mod filters;
mod guard;
mod imports;
pub(crate) mod lines;
mod lists;
mod merge;
mod methods;
mod mutators;
mod network;
mod objects;
mod patch;
mod percent;
mod prepare;
mod print;
mod salt;
mod serialize;
mod tags;
mod trace;
pub(crate) mod values;
mod variadic;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use environment::Environments;
use files::{Files, Unusable};
use halite_document::yaml::Node;
use halite_document::{Position, Problem};
use halite_secrets::{reference, yaml};
use lines::LineMap;
use minijinja::{Environment, Error, ErrorKind, Value};
use prepare::HeaderError;
use serde_json::Value as Json;
use trace::{GRAINS, MinionData, OPTS, Observations, PILLAR, Recorder, Trace};
use values::{dictionary, from_json, recorded};

use crate::tree::Tree;

pub(crate) use guard::Purpose;

/// A rendered template.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub text: String,
    pub map: LineMap,
    /// Files that were read for it, the template first.
    pub files: Vec<String>,
    /// Pillar paths that it read.
    pub pillar: Vec<String>,
    /// Cached results of [`Self::node`] and [`Self::documents`].
    node: RefCell<Option<Rc<Node>>>,
    documents: RefCell<Option<Rc<Vec<Json>>>>,
}

impl Rendered {
    /// The text parsed as one YAML document; positions are those in the templates.
    pub(crate) fn node(&self) -> Result<Rc<Node>, Problem> {
        get_or_make(&self.node, || {
            yaml::parse_located(self.path(), &self.text, &|position| {
                self.map.locate(position)
            })
        })
    }

    /// The Kubernetes objects of the text's YAML documents.
    pub(crate) fn documents(&self) -> Result<Rc<Vec<Json>>, Problem> {
        get_or_make(&self.documents, || {
            let locate = |position: &mut Position| self.map.locate(position);
            objects::objects(&yaml::parse_all_located(self.path(), &self.text, &locate)?)
        })
    }

    /// Tests whether another text of the same template has the same lines, files and pillar paths.
    fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
            && self.map.is_same(&other.map)
            && self.files == other.files
            && self.pillar == other.pillar
    }

    fn path(&self) -> &str {
        self.files.first().map_or("", String::as_str)
    }
}

/// The cached value, or a new one, which is then cached.
fn get_or_make<T>(
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

/// Purpose, path and variables (as JSON): together with the data of a minion they determine a text.
type Key = (Purpose, String, String);

/// A text that was rendered for one minion, with its key, to ask later whether it still holds.
#[derive(Debug)]
pub(crate) struct Rendering {
    key: Key,
    rendered: Rc<Rendered>,
}

impl Rendering {
    /// The rendered text.
    pub(crate) fn rendered(&self) -> &Rc<Rendered> {
        &self.rendered
    }
}

/// In front of a text that takes the place of a path.
const TEXT: &str = "\0";

/// Rendered texts of one key, each with the trace of its accesses.
type Versions = Vec<(Trace, Rc<Rendered>)>;

/// Renders templates of one state tree, for one minion after the other. A text is reused for the
/// next minion if every access of its template finds the same there.
pub(crate) struct Renderer {
    files: Arc<Files>,
    recorder: Arc<Recorder>,
    data: MinionData,
    sls: Environments,
    file: Environments,
    rendered: RefCell<HashMap<Key, Versions>>,
    observations: RefCell<Observations>,
    /// Documents of files that are not templates.
    plain: RefCell<HashMap<String, Rc<Vec<Json>>>>,
    /// Cached results of [`Self::asks_for_order`].
    orders: RefCell<HashMap<String, bool>>,
}

impl Renderer {
    /// A renderer without a minion; call [`Self::set_minion`] next.
    pub(crate) fn new(tree: &dyn Tree) -> Self {
        let files = Arc::new(Files::new(tree));
        Self {
            sls: Environments::new(&files, Purpose::Sls),
            file: Environments::new(&files, Purpose::File),
            files,
            recorder: Arc::default(),
            data: MinionData::default(),
            rendered: RefCell::default(),
            observations: RefCell::default(),
            plain: RefCell::default(),
            orders: RefCell::default(),
        }
    }

    /// Selects the minion for which templates are rendered.
    pub(crate) fn set_minion(&mut self, minion: &str, pillar: &Json, grains: &Json) {
        self.data = MinionData::new(minion, pillar, grains);
        self.observations.get_mut().reset();
        let [pillar, grains, opts] = [PILLAR, GRAINS, OPTS]
            .map(|place| recorded(self.data.at(place), place, &self.recorder));
        let values = Arc::new(salt::MinionValues {
            files: Arc::clone(&self.files),
            pillar,
            grains,
            opts,
        });
        self.sls.set_minion(&values);
        self.file.set_minion(&values);
    }

    /// The text of a file of the tree.
    pub(crate) fn source(&self, path: &str) -> Option<Arc<str>> {
        self.files.text(path).cloned()
    }

    /// Tests whether the tree has a file or a directory of this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.has(path)
    }

    /// The reason why a file of the tree has no text; `None` if there is no such file.
    pub(crate) fn unusable(&self, path: &str) -> Option<Unusable> {
        self.files.unusable(path)
    }

    /// The Kubernetes objects of a file of the tree that is not a template; `None` if there is no
    /// such text file.
    pub(crate) fn documents(&self, path: &str) -> Option<Result<Rc<Vec<Json>>, Problem>> {
        if let Some(there) = self.plain.borrow().get(path) {
            return Some(Ok(there.clone()));
        }
        let text = self.files.text(path)?;
        let read = yaml::parse_all(path, text).and_then(|nodes| {
            objects::objects(&nodes).map_err(|problem| problem.excerpt_from(text))
        });
        Some(read.map(|documents| {
            let documents = Rc::new(documents);
            self.plain
                .borrow_mut()
                .insert(path.to_owned(), documents.clone());
            documents
        }))
    }

    /// Renders a file of the tree with additional variables.
    pub(crate) fn render(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rc<Rendered>, Problem> {
        Ok(self.rendering(purpose, path, variables)?.rendered)
    }

    /// As [`Self::render`], with the key that [`Self::is_unchanged`] needs.
    pub(crate) fn rendering(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rendering, Problem> {
        self.cached_or(purpose, path, variables)
    }

    fn cached_or(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rendering, Problem> {
        let variables_json = serde_json::to_string(variables).unwrap_or_default();
        let key = (purpose, path.to_owned(), variables_json);
        if let Some(rendered) = self.cached(&key) {
            return Ok(Rendering { key, rendered });
        }
        let (rendered, trace) = self.render_uncached(purpose, path, variables)?;
        let mut cache = self.rendered.borrow_mut();
        let versions = cache.entry(key.clone()).or_default();
        // Other accesses often have the same text, whose declarations and calls are cached by
        // object.
        let same = versions.iter().find(|(_, known)| known.is_same(&rendered));
        let rendered = same.map_or_else(|| Rc::new(rendered), |(_, known)| known.clone());
        versions.push((trace, rendered.clone()));
        Ok(Rendering { key, rendered })
    }

    /// As [`Self::rendering`], of a text that is not a file of the tree.
    pub(crate) fn rendering_text(
        &self,
        purpose: Purpose,
        text: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rendering, Problem> {
        self.cached_or(purpose, &format!("{TEXT}{text}"), variables)
    }

    /// Tests whether the text is known to be the same for the present minion. `false` may also mean
    /// that this is unknown.
    pub(crate) fn is_unchanged(&self, rendering: &Rendering) -> bool {
        self.cached(&rendering.key)
            .is_some_and(|rendered| Rc::ptr_eq(&rendered, &rendering.rendered))
    }

    fn cached(&self, key: &Key) -> Option<Rc<Rendered>> {
        let rendered = self.rendered.borrow();
        let mut observations = self.observations.borrow_mut();
        let mut versions = rendered.get(key)?.iter();
        versions
            .find(|(trace, _)| observations.holds(trace, &self.data))
            .map(|(_, same)| same.clone())
    }

    fn render_uncached(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<(Rendered, Trace), Problem> {
        if let Some(text) = path.strip_prefix(TEXT) {
            return self.render_text(purpose, text, variables);
        }
        let (Some(source), Some(number)) = (self.source(path), self.files.number(path)) else {
            return Err(match self.files.unusable(path) {
                Some(why) => Problem::in_file(path, format!("cannot render this file: {why}")),
                None => Problem::in_file(path, "the state tree has no such file"),
            });
        };
        let prepared = prepare::prepare(path, &source).map_err(|error| {
            let options = matches!(error, HeaderError::Options) && source.starts_with("#!");
            Problem {
                line: if options { 2 } else { 1 },
                column: 1,
                ..Problem::in_file(path, error.to_string())
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
        let environments = match purpose {
            Purpose::Sls => &self.sls,
            Purpose::File => &self.file,
        };
        self.files.take();
        self.recorder.take();
        let text = |environment: &Environment| {
            let template = environment.get_template(path)?;
            // A context for each rendering, because a template can change its variables.
            let mut text = template.render(context(path, variables))?;
            // Like Jinja, the engine drops a newline at the end; Salt restores that of the file
            // itself.
            if source.ends_with('\n') {
                text.push('\n');
            }
            Ok(text)
        };
        rendered.text = text(&environments.plain).map_err(|error| self.explain(&error, path))?;
        rendered
            .files
            .extend(self.files.take().into_iter().filter(|name| name != path));
        let mut accesses = self.recorder.take();
        rendered.pillar = accesses.pillar(&self.data);
        let marked = text(&environments.marked).ok();
        accesses.join(self.recorder.take());
        let has_secret =
            accesses.read_secret(&self.data) || variables.values().any(reference::is_in);
        if has_secret || rendered.files.iter().any(|path| self.asks_for_order(path)) {
            text(&environments.guarded).map_err(|error| self.explain(&error, path))?;
            accesses.join(self.recorder.take());
        }
        rendered.map = LineMap::new(sources, number, &rendered.text, marked.as_deref());
        let trace = self.observations.borrow_mut().trace(accesses, &self.data);
        Ok((rendered, trace))
    }

    /// Renders a text that is not a file of the tree. Its lines have no places.
    fn render_text(
        &self,
        purpose: Purpose,
        text: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<(Rendered, Trace), Problem> {
        let prepared = prepare::prepare("", text)
            .map_err(|error| Problem::in_file("", error.to_string()))?
            .text;
        let environments = match purpose {
            Purpose::Sls => &self.sls,
            Purpose::File => &self.file,
        };
        self.files.take();
        self.recorder.take();
        let render = |environment: &Environment, prepared: &str| {
            let template = environment.template_from_str(prepared)?;
            let mut rendered = template.render(context("", variables))?;
            if text.ends_with('\n') {
                rendered.push('\n');
            }
            Ok(rendered)
        };
        let rendered =
            render(&environments.plain, &prepared).map_err(|error| self.explain(&error, ""))?;
        let mut files = vec![String::new()];
        files.extend(self.files.take());
        let mut accesses = self.recorder.take();
        let pillar = accesses.pillar(&self.data);
        let guarded = comparisons::guarded(&prepared);
        render(&environments.guarded, &guarded).map_err(|error| self.explain(&error, ""))?;
        accesses.join(self.recorder.take());
        let rendered = Rendered {
            map: LineMap::default(),
            text: rendered,
            files,
            pillar,
            node: RefCell::default(),
            documents: RefCell::default(),
        };
        let trace = self.observations.borrow_mut().trace(accesses, &self.data);
        Ok((rendered, trace))
    }

    /// Tests whether a file compares values by their order.
    fn asks_for_order(&self, path: &str) -> bool {
        if let Some(known) = self.orders.borrow().get(path) {
            return *known;
        }
        let source = self.files.text(path);
        let asks = source.is_some_and(|source| comparisons::asks_for_order(source));
        self.orders.borrow_mut().insert(path.to_owned(), asks);
        asks
    }

    /// The problem for an error: its innermost place in the tree, and its cause in words.
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
            ..Problem::in_file(&file, error::message(cause))
        };
        problem.column = range
            .and_then(|range| column(&file, &source, range.start, line))
            .unwrap_or(0);
        problem.hint = error::hint(cause);
        problem.excerpt_from(&source)
    }
}

/// The variables of a template: those given, its place, and all of them under one name.
fn context(path: &str, variables: &BTreeMap<String, Json>) -> Value {
    let mut context: serde_json::Map<String, Json> = variables.clone().into_iter().collect();
    for (name, value) in [
        ("tplfile", path),
        ("tplpath", path),
        ("tpldir", prepare::directory(path)),
    ] {
        context.entry(name).or_insert_with(|| Json::from(value));
    }
    let all = from_json(&Json::Object(context));
    let mut named: Vec<(Value, Value)> = Vec::new();
    for name in all.try_iter().into_iter().flatten() {
        let value = all.get_item(&name).unwrap_or_default();
        named.push((name, value));
    }
    named.push((Value::from(imports::VARIABLES), all));
    dictionary(named)
}

/// The column of an offset in the prepared text, if the line ends there as it does in the source
/// (preparing puts a head in front of the first line).
fn column(file: &str, source: &str, offset: usize, line: usize) -> Option<u32> {
    let prepared = prepare::prepare(file, source).ok()?.text;
    let start = prepared.get(..offset)?.rfind('\n').map_or(0, |at| at + 1);
    let here = prepared[start..].lines().next()?;
    let head = here.strip_suffix(source.lines().nth(line.checked_sub(1)?)?)?;
    let column = offset.checked_sub(start + head.len())?;
    u32::try_from(here[head.len()..].get(..column)?.chars().count() + 1).ok()
}

#[cfg(test)]
#[path = "../../tests/common/differences.rs"]
mod differences;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;
