//! Templates: Jinja as Salt's users write it, on minijinja. Pure: a template can compute with pillar and grains and read
//! files of the state tree, nothing else.

mod dump;
mod filters;
mod guard;
pub(crate) mod lines;
mod methods;
mod network;
mod prepare;
mod salt;
pub(crate) mod values;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use serde_json::Value as Json;

pub(crate) use guard::Purpose;
use lines::{LineMap, Source};
use prepare::Prepared;
use values::{Recorder, from_json};

use crate::problem::Problem;
use crate::tree::Tree;

/// Steps that one template may take; enough for thousands of objects, too little for an endless loop.
const FUEL: u64 = 2_000_000;

/// Largest file that templates may import, in bytes.
const MAX_TEMPLATE: usize = 1024 * 1024;

/// A rendered text.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub text: String,
    pub map: LineMap,
    /// Files that were read for it, itself first.
    pub files: Vec<String>,
    /// Pillar paths that it read.
    pub pillar: Vec<String>,
}

/// The text files of a state tree, with what was read of them.
#[derive(Debug, Default)]
struct Files {
    texts: HashMap<String, Arc<str>>,
    read: Mutex<Vec<String>>,
    /// Numbers in line marks.
    numbers: Mutex<Vec<String>>,
}

impl Files {
    fn get(&self, path: &str) -> Option<Arc<str>> {
        let found = self.texts.get(path)?.clone();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.iter().any(|known| known == path) {
            read.push(path.to_owned());
        }
        Some(found)
    }

    fn number(&self, path: &str) -> usize {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().position(|known| known == path).unwrap_or_else(|| {
            numbers.push(path.to_owned());
            numbers.len() - 1
        })
    }

    fn sources(&self) -> Vec<Source> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers
            .iter()
            .map(|name| Source {
                name: name.clone(),
                text: self.texts.get(name).cloned().unwrap_or_default(),
            })
            .collect()
    }
}

/// Renders templates for one minion.
pub(crate) struct Renderer {
    files: Arc<Files>,
    recorder: Arc<Recorder>,
    sls: Pair,
    file: Pair,
}

/// The same environment twice: for the text, and for the text with line marks.
struct Pair {
    plain: Environment<'static>,
    marked: Environment<'static>,
}

impl Renderer {
    pub(crate) fn new(tree: &dyn Tree, minion: &str, pillar: &Json, grains: &Json) -> Self {
        let mut texts = HashMap::new();
        for path in tree.list() {
            if let Some(content) = tree.read(&path)
                && content.len() <= MAX_TEMPLATE
                && let Ok(text) = String::from_utf8(content)
            {
                texts.insert(path, Arc::from(text));
            }
        }
        let files = Arc::new(Files { texts, ..Files::default() });
        let recorder = Arc::new(Recorder::default());
        let known = Arc::new(salt::Known {
            minion: minion.to_owned(),
            pillar: values::recorded(pillar, &recorder),
            grains: from_json(grains),
        });
        let pair = |purpose| Pair {
            plain: environment(&files, &known, purpose, false),
            marked: environment(&files, &known, purpose, true),
        };
        Self { sls: pair(Purpose::Sls), file: pair(Purpose::File), files, recorder }
    }

    /// The text of a file of the tree.
    pub(crate) fn source(&self, path: &str) -> Option<Arc<str>> {
        self.files.texts.get(path).cloned()
    }

    /// Renders a file of the tree with further variables.
    pub(crate) fn render(
        &self,
        purpose: Purpose,
        path: &str,
        variables: &BTreeMap<String, Json>,
    ) -> Result<Rendered, Problem> {
        let Some(source) = self.source(path) else {
            return Err(Problem::in_file(path, "there is no such text file in the state tree"));
        };
        let prepared = prepare::prepare(path, &source).map_err(|message| {
            Problem { line: 1, column: 1, ..Problem::in_file(path, message) }.excerpt_from(&source)
        })?;
        self.files.read.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.files.numbers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.recorder.take();
        let number = self.files.number(path);
        let mut rendered = Rendered {
            text: prepared.text.clone(),
            map: LineMap::default(),
            files: vec![path.to_owned()],
            pillar: Vec::new(),
        };
        if !prepared.template {
            rendered.map = LineMap::new(self.files.sources(), &prepared.text, None);
            return Ok(rendered);
        }
        // A collected iterator of pairs would be a sequence.
        let context = from_json(&Json::Object(variables.clone().into_iter().collect()));
        let pair = match purpose {
            Purpose::Sls => &self.sls,
            Purpose::File => &self.file,
        };
        let text = pair
            .plain
            .template_from_named_str(path, &prepared.text)
            .and_then(|template| template.render(context.clone()))
            .map_err(|error| self.explain(&error, path))?;
        rendered.pillar = self.recorder.take();
        let read = self.files.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rendered.files.extend(read.into_iter().filter(|name| name != path));
        let marked = lines::mark(&prepared.text, number);
        let marked = pair
            .marked
            .template_from_named_str(path, &marked)
            .and_then(|template| template.render(context))
            .ok();
        self.recorder.take();
        rendered.map = LineMap::new(self.files.sources(), &text, marked.as_deref());
        rendered.text = text;
        Ok(rendered)
    }

    /// The innermost place of an error and its cause, in words.
    fn explain(&self, error: &Error, path: &str) -> Problem {
        let mut place = (path.to_owned(), 0, None);
        let mut cause = error;
        let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = at {
            if let Some(error) = current.downcast_ref::<Error>() {
                if let (Some(name), Some(line)) = (error.name(), error.line())
                    && self.files.texts.contains_key(name)
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
        let mut problem =
            Problem { line: u32::try_from(line).unwrap_or(0), ..Problem::in_file(&file, message(cause)) };
        problem.column = range.and_then(|range| column(&file, &source, range.start, line)).unwrap_or(0);
        problem.hint = hint(cause);
        problem.excerpt_from(&source)
    }
}

/// The column of an offset in the prepared text, where that line ends as it does in the source (the first line got a
/// head that the source does not have).
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

fn environment(
    files: &Arc<Files>,
    known: &Arc<salt::Known>,
    purpose: Purpose,
    marked: bool,
) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_debug(true);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(100);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        env.set_syntax(syntax);
    }
    env.set_path_join_callback(|name, parent| resolve(name, parent).into());
    guard::add(&mut env, purpose);
    env.set_unknown_method_callback(|state, value, method, args| {
        guard::guard_method(method, value, args)?;
        methods::call(state, value, method, args)
    });
    let loaded = files.clone();
    env.set_loader(move |path| {
        let Some(source) = loaded.get(path) else { return Ok(None) };
        let Prepared { text, .. } = prepare::prepare(path, &source)
            .map_err(|message| Error::new(ErrorKind::SyntaxError, format!("{path}: {message}")))?;
        Ok(Some(if marked { lines::mark(&text, loaded.number(path)) } else { text }))
    });
    env.add_global("salt", Value::from_object(salt::Salt(known.clone())));
    env.add_global("pillar", known.pillar.clone());
    env.add_global("grains", known.grains.clone());
    env.add_global("saltenv", "base");
    env.add_global("opts", from_json(&serde_json::json!({"id": known.minion, "saltenv": "base"})));
    env.add_function("import_yaml", |state: &mut State, path: &str| -> Result<Value, Error> {
        let text = imported(state, path)?;
        let node = crate::yaml::parse(path, &text)
            .map_err(|problem| Error::new(ErrorKind::InvalidOperation, problem.to_string()))?;
        Ok(from_json(&node.to_json()))
    });
    env.add_function("import_json", |state: &mut State, path: &str| -> Result<Value, Error> {
        let json: Json = serde_json::from_str(&imported(state, path)?).map_err(|error| {
            Error::new(ErrorKind::InvalidOperation, format!("{path} is not JSON: {error}"))
        })?;
        Ok(from_json(&json))
    });
    env.add_function("import_text", |state: &mut State, path: &str| imported(state, path));
    env.add_function("raise", |message: &str| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
    });
    env
}

/// A file of the tree, rendered.
fn imported(state: &mut State, path: &str) -> Result<String, Error> {
    let template = state.get_template(path)?;
    Ok(lines::strip(&template.render(Value::from(()))?))
}

/// The path of an imported template: `./x` and `../x` are relative to the importing file, all else to the root.
fn resolve(name: &str, parent: &str) -> String {
    let name = name.strip_prefix("salt://").unwrap_or(name);
    if !name.starts_with("./") && !name.starts_with("../") {
        return name.trim_start_matches('/').to_owned();
    }
    let mut parts: Vec<&str> = parent.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests;
