//! Sources of calls: files of the state tree become text or blob, files of the bundle a digest. So
//! the program that runs the low state requests no file by name.

use std::collections::BTreeMap;
use std::rc::Rc;

use halite_document::{Problem, did_you_mean};
use halite_secrets::reference;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::input::Input;
use super::load::variables;
use super::{alternatives, contents};
use crate::archive;
use crate::pattern::PathPattern;
use crate::template::{Purpose, Rendered, Renderer, Rendering};
use crate::tree::{is_plain_path, sha256};

/// Largest text that is part of the low state, in bytes; larger ones are blobs.
const MAX_TEXT: usize = 256 * 1024;

/// Resolves the source of one call, and marks the call if it contains a secret. The result depends
/// on the call, the tree and `renderings` only.
pub(super) fn resolve(
    input: &Input,
    renderer: &Renderer,
    call: &mut Call,
    renderings: &mut Vec<Rendering>,
    problems: &mut Vec<Problem>,
) {
    let mut resolver = Resolver {
        input,
        renderer,
        renderings,
    };
    let result = match (call.chunk.state.as_str(), call.chunk.fun.as_str()) {
        ("file", "managed") => resolver.managed(call),
        ("file", "recurse") => resolver.recurse(call),
        ("file", "serialize") => contents::serialize(renderer, call, resolver.renderings),
        ("kubernetes", "manifest") => resolver.manifest(call),
        ("archive", "extracted") => resolver.archive(call),
        _ => Ok(()),
    };
    if let Err(problem) = result {
        problems.push(*problem);
    }
    mark_secrets(call, problems);
}

type Outcome<T> = Result<T, Box<Problem>>;

struct Resolver<'a> {
    input: &'a Input<'a>,
    renderer: &'a Renderer,
    renderings: &'a mut Vec<Rendering>,
}

/// Content of a file of the state tree, in its form in a low state.
enum Content {
    Text(String),
    Blob(String),
}

impl Resolver<'_> {
    fn managed(&mut self, call: &mut Call) -> Outcome<()> {
        contents::from_pillar(self.renderer, call, self.renderings)?;
        let Some(source) = alternatives::source(self.input, self.renderer, call)? else {
            if call.chunk.args.contains_key("contents") && self.has_engine(call)? {
                return contents::render(self.renderer, call, self.renderings);
            }
            for name in ["template", "context", "defaults"] {
                if call.chunk.args.contains_key(name) {
                    return Err(fail(
                        call,
                        format!("`{name}` needs a `source` or `contents`"),
                    ));
                }
            }
            return Ok(());
        };
        call.chunk.args.insert("source".into(), json!(source));
        if call.chunk.args.contains_key("contents") {
            return Err(fail(call, "`source` and `contents` exclude each other"));
        }
        if source.starts_with('/') {
            return self.no_template(call);
        }
        if let Some(path) = source.strip_prefix("bundle://") {
            self.no_template(call)?;
            let hash = self.bundled(call, path)?;
            call.chunk
                .args
                .insert("source".into(), json!(format!("blob:{hash}")));
            return Ok(());
        }
        let path = tree_path(call, &source)?;
        let own = own_variables(call, &call.chunk.name, &source, "mode");
        let content = self.content(call, &path, &own)?;
        call.chunk.args.retain(|name, _| {
            !matches!(
                name.as_str(),
                "source" | "template" | "context" | "defaults"
            )
        });
        match content {
            Content::Text(text) => {
                // Byte for byte as in the tree: `true` would add a newline, `false` remove all of
                // them.
                let newline = text.is_empty() || text.ends_with('\n');
                call.chunk.args.insert("contents".into(), json!(text));
                call.chunk
                    .args
                    .insert("contents_newline".into(), json!(newline));
            }
            Content::Blob(hash) => {
                call.chunk
                    .args
                    .insert("source".into(), json!(format!("blob:{hash}")));
            }
        }
        Ok(())
    }

    fn recurse(&mut self, call: &mut Call) -> Outcome<()> {
        let Some(source) = alternatives::source(self.input, self.renderer, call)? else {
            return Ok(());
        };
        call.chunk.args.insert("source".into(), json!(source));
        let directory = tree_path(call, source.trim_end_matches('/'))?;
        let prefix = format!("{directory}/");
        let paths: Vec<String> = self
            .input
            .tree
            .list()
            .into_iter()
            .filter(|path| path.starts_with(&prefix))
            .collect();
        if paths.is_empty() {
            return Err(fail(
                call,
                format!("the state tree has no files below `{directory}/`"),
            ));
        }
        let excluded: Vec<PathPattern> = call
            .chunk
            .args
            .get("exclude_pat")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            // Invalid patterns were already refused when the arguments were checked.
            .filter_map(|pattern| PathPattern::new(pattern.as_str()?).ok())
            .collect();
        let mut files = Map::new();
        for path in paths {
            let relative = path[prefix.len()..].to_owned();
            if excluded.iter().any(|pattern| pattern.is_match(&relative)) {
                continue;
            }
            let name = format!("{}/{relative}", call.chunk.name.trim_end_matches('/'));
            let source = format!("salt://{path}?saltenv=base");
            let own = own_variables(call, &name, &source, "file_mode");
            let entry = match self.content(call, &path, &own)? {
                Content::Text(text) => json!({"contents": text}),
                Content::Blob(hash) => json!({"blob": hash}),
            };
            files.insert(relative, entry);
        }
        call.chunk
            .args
            .retain(|name, _| !matches!(name.as_str(), "template" | "context" | "defaults"));
        call.chunk.args.insert("files".into(), Value::Object(files));
        Ok(())
    }

    fn manifest(&mut self, call: &mut Call) -> Outcome<()> {
        let Some(source) = text(&call.chunk.args, "source") else {
            return match call.chunk.args.get("documents") {
                Some(Value::Array(_)) => Ok(()),
                Some(_) => Err(fail(call, "`documents` must be a list of objects")),
                None => Err(fail(
                    call,
                    format!(
                        "kubernetes.manifest in `{}` needs `source` or `documents`",
                        call.chunk.id
                    ),
                )),
            };
        };
        let path = tree_path(call, &source)?;
        let documents = if call.chunk.args.contains_key("template") {
            // The text is parsed before secrets are filled in, like an SLS.
            let own = BTreeMap::new();
            self.render(call, &path, Purpose::Sls, own)?.documents()?
        } else {
            let Some(documents) = self.renderer.documents(&path) else {
                return Err(self.no_text(call, &path));
            };
            note_file(call, &path);
            documents?
        };
        let documents = documents.to_vec();
        call.chunk.args.retain(|name, _| {
            !matches!(
                name.as_str(),
                "source" | "template" | "context" | "defaults"
            )
        });
        call.chunk
            .args
            .insert("documents".into(), Value::Array(documents));
        Ok(())
    }

    fn archive(&mut self, call: &mut Call) -> Outcome<()> {
        let Some(source) = text(&call.chunk.args, "source") else {
            return Ok(());
        };
        let readable = |start: &[u8]| match archive::unsupported(&source, start) {
            None => Ok(()),
            Some(format) => Err(fail(call, format!("`{source}` is {format}"))
                .map_hint("archive.extracted unpacks tar and gzipped tar archives; repack it")),
        };
        readable(b"")?;
        let hash = if source.starts_with('/') {
            return Ok(());
        } else if let Some(path) = source.strip_prefix("bundle://") {
            self.bundled(call, path)?
        } else {
            let path = tree_path(call, &source)?;
            let Some(bytes) = self.input.tree.read(&path) else {
                return Err(missing(self.input, call, &path));
            };
            readable(&bytes)?;
            note_file(call, &path);
            let hash = sha256(&bytes);
            call.blobs.insert(hash.clone(), bytes);
            hash
        };
        call.chunk
            .args
            .insert("source".into(), json!(format!("blob:{hash}")));
        Ok(())
    }

    fn no_template(&self, call: &Call) -> Outcome<()> {
        if call.chunk.args.contains_key("template") {
            return Err(fail(
                call,
                "only files of the state tree (`salt://`) can be templates",
            ));
        }
        Ok(())
    }

    fn bundled(&self, call: &Call, path: &str) -> Outcome<String> {
        (self.input.bundle)(path).ok_or_else(|| {
            fail(call, format!("the bundle has no file `{path}`"))
                .map_hint("`ctl bundle show` lists its files")
        })
    }

    fn content(
        &mut self,
        call: &mut Call,
        path: &str,
        own: &BTreeMap<String, Value>,
    ) -> Outcome<Content> {
        let (bytes, rendered) = if call.chunk.args.contains_key("template") {
            (
                self.render(call, path, Purpose::File, own.clone())?
                    .text
                    .clone()
                    .into_bytes(),
                true,
            )
        } else {
            let Some(bytes) = self.input.tree.read(path) else {
                return Err(missing(self.input, call, path));
            };
            note_file(call, path);
            (bytes, false)
        };
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= MAX_TEXT => Ok(Content::Text(text)),
            Ok(text) if rendered && reference::mentions(&text) => Err(fail(
                call,
                format!("`{path}` contains a secret and has more than {MAX_TEXT} bytes"),
            )
            .map_hint(
                "split it: secrets are filled in when a job is sent, and large files are not part of it",
            )),
            other => {
                let bytes = other.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes);
                let hash = sha256(&bytes);
                call.blobs.insert(hash.clone(), bytes);
                Ok(Content::Blob(hash))
            }
        }
    }

    /// The problem of a file that has no text: it is missing, or cannot be a template.
    fn no_text(&self, call: &Call, path: &str) -> Box<Problem> {
        match self.renderer.unusable(path) {
            Some(why) => fail(call, format!("cannot read `{path}`: {why}")),
            None => missing(self.input, call, path),
        }
    }

    /// Tests whether a call has `template`.
    fn has_engine(&self, call: &Call) -> Outcome<bool> {
        match text(&call.chunk.args, "template") {
            None => Ok(false),
            Some(name) if name == "jinja" => Ok(true),
            Some(other) => Err(fail(
                call,
                format!("there is no template engine `{other}`; use `jinja`"),
            )),
        }
    }

    /// Renders a file of the tree; `own` are the variables of the call itself.
    fn render(
        &mut self,
        call: &mut Call,
        path: &str,
        purpose: Purpose,
        own: BTreeMap<String, Value>,
    ) -> Outcome<Rc<Rendered>> {
        self.has_engine(call)?;
        if self.renderer.source(path).is_none() {
            return Err(self.no_text(call, path));
        }
        let mut all = variables(
            &call.chunk.sls,
            call.provenance.files.first().map_or("", String::as_str),
        );
        all.extend(own);
        for name in ["defaults", "context"] {
            if let Some(Value::Object(given)) = call.chunk.args.get(name) {
                all.extend(
                    given
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
            }
        }
        let rendering = self.renderer.rendering(purpose, path, &all)?;
        let rendered = rendering.rendered().clone();
        self.renderings.push(rendering);
        for file in &rendered.files {
            note_file(call, file);
        }
        for path in &rendered.pillar {
            if !call.provenance.pillar.contains(path) {
                call.provenance.pillar.push(path.clone());
            }
        }
        Ok(rendered)
    }
}

/// The variables that Salt gives the template of a file: what the call says about the file.
fn own_variables(call: &Call, name: &str, source: &str, mode: &str) -> BTreeMap<String, Value> {
    let args = &call.chunk.args;
    let given = |name: &str| args.get(name).cloned().unwrap_or(Value::Null);
    let mode = args.get(mode).and_then(Value::as_u64);
    let mut own: BTreeMap<String, Value> = call.variables.clone().into_iter().collect();
    own.extend([
        ("name".to_owned(), json!(name)),
        ("source".to_owned(), json!(source)),
        ("user".to_owned(), given("user")),
        ("group".to_owned(), given("group")),
        (
            "mode".to_owned(),
            json!(mode.map(|mode| format!("{mode:04o}"))),
        ),
        ("attrs".to_owned(), Value::Null),
    ]);
    own
}

fn text(args: &Map<String, Value>, name: &str) -> Option<String> {
    args.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn note_file(call: &mut Call, path: &str) {
    if !call.provenance.files.iter().any(|known| known == path) {
        call.provenance.files.push(path.to_owned());
    }
}

fn fail(call: &Call, message: impl Into<String>) -> Box<Problem> {
    Box::new(Problem::at(&call.source_argument, message))
}

/// Adds a hint to a boxed problem.
trait MapHint {
    fn map_hint(self, hint: &str) -> Self;
}

impl MapHint for Box<Problem> {
    fn map_hint(mut self, hint: &str) -> Self {
        self.hint = hint.to_owned();
        self
    }
}

/// The path of a `salt://` source.
fn tree_path(call: &Call, source: &str) -> Outcome<String> {
    let Some(path) = source.strip_prefix("salt://") else {
        return Err(fail(call, format!("the source `{source}` has an unknown scheme"))
            .map_hint("use `salt://path` (state tree), `bundle://path`, or an absolute path on the host; nothing is downloaded"));
    };
    if !is_plain_path(path) {
        return Err(fail(
            call,
            format!("`{path}` is not a path in the state tree"),
        ));
    }
    Ok(path.to_owned())
}

fn missing(input: &Input, call: &Call, path: &str) -> Box<Problem> {
    let problem = fail(call, format!("the state tree has no file `{path}`"));
    let paths = input.tree.list();
    match did_you_mean(path, paths.iter().map(String::as_str)) {
        Some(near) => problem.map_hint(&format!("did you mean `salt://{near}`?")),
        None => problem,
    }
}

/// Marks a call that contains a secret. Refuses one that would show it, and a reference that could
/// never be filled in.
fn mark_secrets(call: &mut Call, problems: &mut Vec<Problem>) {
    let chunk = &mut call.chunk;
    let mut broken = false;
    let mut visit = |text: &str| {
        let mentioned = text.matches(reference::PREFIX).count();
        chunk.sensitive |= mentioned > 0;
        broken |= mentioned != reference::paths(text).len();
    };
    for value in chunk.args.values() {
        each_text(value, &mut visit);
    }
    let controls = &chunk.controls;
    let commands = controls
        .unless
        .iter()
        .chain(&controls.onlyif)
        .any(reference::is_in)
        || controls
            .creates
            .iter()
            .chain(&controls.check_cmd)
            .chain(&controls.runas)
            .any(|text| reference::mentions(text));
    if commands || reference::mentions(&chunk.id) || reference::mentions(&chunk.name) {
        problems.push(
            Problem::at(
                &chunk.source,
                "a secret is in an id, a name or a command, which every user of the host can see",
            )
            .hint("pass it in another argument; for a command use `stdin` or `env`"),
        );
    }
    if broken {
        problems.push(
            Problem::at(&chunk.source, format!("an argument of `{}` contains a secret that was taken apart", chunk.id))
                .hint("a secret can be put into a text, but not cut, printed as part of a dictionary, or used as a key"),
        );
    }
}

fn each_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(map) => {
            for (key, value) in map {
                // Secrets in keys are never filled in. The bare prefix counts as a broken
                // reference.
                if reference::mentions(key) {
                    visit(reference::PREFIX);
                }
                each_text(value, visit);
            }
        }
        _ => {}
    }
}
