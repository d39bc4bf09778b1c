//! Environments of the template engine: the language, the functions that a template can call, and
//! the data of a minion.

use std::sync::Arc;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::error::{caused, invalid};
use super::files::Files;
use super::guard::Purpose;
use super::prepare::{Prepared, prepare};
use super::values::dictionary;
use super::{comparisons, guard, imports, lines, lists, methods, percent, print, salt, variadic};

/// The most steps that one template may take: enough for thousands of objects, and an end to
/// endless loops.
const FUEL: u64 = 2_000_000;

/// Environments for the text, for the text with line marks, and for a rendering that refuses to
/// compare secrets.
pub(super) struct Environments {
    pub plain: Environment<'static>,
    pub marked: Environment<'static>,
    pub guarded: Environment<'static>,
}

/// The form of the templates in an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Marked,
    Guarded,
}

impl Environments {
    pub(super) fn new(files: &Arc<Files>, purpose: Purpose) -> Self {
        Self {
            plain: environment(files, purpose, Form::Plain),
            marked: environment(files, purpose, Form::Marked),
            guarded: environment(files, purpose, Form::Guarded),
        }
    }

    /// Sets the data of a minion. Compiled templates are kept.
    pub(super) fn set_minion(&mut self, values: &Arc<salt::MinionValues>) {
        for env in [&mut self.plain, &mut self.marked, &mut self.guarded] {
            env.add_global("salt", Value::from_object(salt::Salt(values.clone())));
            env.add_global("pillar", values.pillar.clone());
            env.add_global("grains", values.grains.clone());
            env.add_global("opts", values.opts.clone());
        }
    }
}

fn environment(files: &Arc<Files>, purpose: Purpose, form: Form) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(print::formatter);
    env.set_debug(true);
    // What is rendered with guards was rendered without them before.
    env.set_fuel((form != Form::Guarded).then_some(FUEL));
    env.set_recursion_limit(100);
    // The engine calls its loader once for each file, but this callback at each import.
    let named = files.clone();
    env.set_path_join_callback(move |name, parent| {
        let path = resolve(name, parent);
        named.record(&path);
        path.into()
    });
    guard::add(&mut env, purpose);
    env.set_unknown_method_callback(|state, value, method, args| {
        guard::guard_method(method, value, args)?;
        methods::call(state, value, method, args)
    });
    let loaded = files.clone();
    env.set_loader(move |path| {
        let (Some(source), Some(number)) = (loaded.text(path), loaded.number(path)) else {
            return match loaded.unusable(path) {
                Some(why) => Err(caused(format!("cannot load `{path}`"), why)),
                None => Ok(None),
            };
        };
        let Prepared { text, .. } = prepare(path, source).map_err(|error| {
            Error::new(ErrorKind::SyntaxError, format!("cannot load `{path}`")).with_source(error)
        })?;
        Ok(Some(match form {
            Form::Plain => text,
            Form::Marked => lines::mark(&text, number),
            Form::Guarded => comparisons::guarded(&text),
        }))
    });
    env.add_global("saltenv", "base");
    imports::add(&mut env);
    comparisons::add(&mut env);
    variadic::add(&mut env);
    env.add_function("__dictionary", |literal: &Value| -> Result<Value, Error> {
        let keys: Vec<Value> = literal.try_iter()?.collect();
        let entries: Result<Vec<(Value, Value)>, Error> = keys
            .into_iter()
            .map(|key| Ok((key.clone(), lists::own(&literal.get_item(&key)?)?)))
            .collect();
        Ok(dictionary(entries?))
    });
    env.add_function("__list", |literal: &Value| -> Result<Value, Error> {
        let items: Result<Vec<Value>, Error> =
            literal.try_iter()?.map(|item| lists::own(&item)).collect();
        Ok(lists::list(items?))
    });
    env.add_function("__own", lists::own);
    env.add_function(
        "__format_text",
        move |_: &mut State, format: &Value, values: &Value| {
            percent::format_text(format, values, purpose)
        },
    );
    env.add_function("raise", |message: &str| -> Result<Value, Error> {
        Err(invalid(message))
    });
    env
}

/// The path of an imported template: `./x` and `../x` are relative to the importing file, all other
/// names to the root.
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
