//! `pillar.get`, `grains.get` and `config.get`.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::super::filters::traverse;
use super::super::merge;
use super::super::merge::Form;
use super::MinionValues;
use super::arguments::Arguments;

/// `pillar.get(key, default='', merge=False, merge_nested_lists=False, delimiter=':')`; with
/// `merge` the value is merged over the default.
pub(super) fn pillar(pillar: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["key", "default", "merge", "merge_nested_lists", "delimiter"];
    let args = Arguments::bind(name, &parameters, args)?;
    let Some(found) = find(pillar, &args)? else {
        return Ok(default(&args));
    };
    let default = default(&args);
    match (default.kind(), found.kind()) {
        _ if !args.switch("merge", false) => Ok(found),
        (ValueKind::Map, ValueKind::Map) => {
            let form = Form {
                lists: args.switch("merge_nested_lists", false),
                ..Form::DEEP
            };
            merge::merged(&default, &found, form)
        }
        (ValueKind::Seq | ValueKind::Iterable, ValueKind::Seq) => merge::joined(&default, &found),
        _ => Ok(found),
    }
}

/// `grains.get(key, default='', delimiter=':', ordered=True)`.
pub(super) fn grains(grains: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Arguments::bind(name, &["key", "default", "delimiter", "ordered"], args)?;
    Ok(find(grains, &args)?.unwrap_or_else(|| default(&args)))
}

/// `config.get(key, default='', delimiter=':')`: a grain, or else a pillar.
pub(super) fn config(known: &MinionValues, name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Arguments::bind(name, &["key", "default", "delimiter"], args)?;
    let found = match find(&known.grains, &args)? {
        Some(found) => Some(found),
        None => find(&known.pillar, &args)?,
    };
    Ok(found.unwrap_or_else(|| default(&args)))
}

fn find(data: &Value, args: &Arguments) -> Result<Option<Value>, Error> {
    let delimiter = args.text("delimiter")?;
    let key = args.required_text("key")?;
    traverse(data, &key, delimiter.as_deref().unwrap_or(":"))
}

fn default(args: &Arguments) -> Value {
    args.optional("default").unwrap_or_else(|| Value::from(""))
}
