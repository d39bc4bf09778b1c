//! `config.option`: an entry of the grains or the pillar by its name, or one of Salt's defaults.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use serde_json::{Map, Value as Json};

use super::super::error::{caused, invalid};
use super::super::values::{dictionary, from_json};
use super::MinionValues;
use super::arguments::Arguments;
use crate::target::pattern::Glob;

/// The options that a minion of Salt 3008.3 always has. They hide grains and pillar entries of the
/// same name.
const MINION_OPTIONS: &str = include_str!("minion_options.txt");

/// The values of options that Salt 3008.3 has without a configuration.
const DEFAULTS: &str = include_str!("option_defaults.json");

/// The only option that minions have here.
const ID: &str = "id";

/// The data that the arguments of a call leave.
struct Sources<'a> {
    has_options: bool,
    has_master: bool,
    /// The grains and the pillar, in this order.
    data: Vec<&'a Value>,
}

/// `config.option(value, default=None, omit_opts=False, omit_grains=False, omit_pillar=False,
/// omit_master=False, omit_all=False, wildcard=False)`.
pub(super) fn option(known: &MinionValues, name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = [
        "value",
        "default",
        "omit_opts",
        "omit_grains",
        "omit_pillar",
        "omit_master",
        "omit_all",
        "wildcard",
    ];
    let args = Arguments::bind(name, &parameters, args)?;
    let has = |switch: &str| !args.switch("omit_all", false) && !args.switch(switch, false);
    let data = [
        ("omit_grains", &known.grains),
        ("omit_pillar", &known.pillar),
    ];
    let sources = Sources {
        has_options: has("omit_opts"),
        has_master: has("omit_master"),
        data: data
            .into_iter()
            .filter(|(switch, _)| has(switch))
            .map(|(_, data)| data)
            .collect(),
    };
    let default = args.optional("default").filter(|value| !value.is_none());
    if args.switch("wildcard", false) {
        let found = matching(known, &sources, &args.required_text("value")?)?;
        let is_empty = found.len() == Some(0);
        return Ok(default.filter(|_| is_empty).unwrap_or(found));
    }
    let key = args.required("value")?;
    if !matches!(
        key.kind(),
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::String
    ) {
        return Err(invalid(format!(
            "`value` of salt['{name}'] takes a name, not a {}",
            key.kind()
        )));
    }
    let found = find(known, &sources, &key)?.or(default);
    Ok(found.unwrap_or_else(|| Value::from("")))
}

/// The first value of this name.
fn find(known: &MinionValues, sources: &Sources<'_>, key: &Value) -> Result<Option<Value>, Error> {
    let text = key.as_str();
    if sources.has_options && text == Some(ID) {
        return Ok(Some(known.opts.get_attr(ID)?));
    }
    if sources.has_options && MINION_OPTIONS.lines().any(|option| text == Some(option)) {
        return Err(not_here(&key.to_string()));
    }
    for data in &sources.data {
        let found = data.get_item(key)?;
        if !found.is_undefined() {
            return Ok(Some(found));
        }
    }
    if sources.has_master
        && let Some(master) = master(&known.pillar)?
    {
        let found = master.get_item(key)?;
        if !found.is_undefined() {
            return Ok(Some(found));
        }
    }
    let default = text.and_then(|text| defaults().get(text).map(from_json));
    Ok(default)
}

/// All values whose names match a shell pattern.
fn matching(known: &MinionValues, sources: &Sources<'_>, pattern: &str) -> Result<Value, Error> {
    let glob = Glob::new(pattern)
        .map_err(|error| caused(format!("`{pattern}` is not a pattern"), error))?;
    let mut found = Vec::new();
    let master = if sources.has_master {
        master(&known.pillar)?
    } else {
        None
    };
    // Later ones replace the values of earlier ones.
    for data in master.iter().chain(sources.data.iter().rev().copied()) {
        for key in data.try_iter()? {
            let Some(text) = key.as_str() else {
                return Err(invalid(format!(
                    "config.option compares names with `{pattern}`, and `{key}` is not a text"
                )));
            };
            if glob.is_match(text) {
                found.push((key.clone(), data.get_item(&key)?));
            }
        }
    }
    if sources.has_options {
        let mut options = MINION_OPTIONS.lines();
        if let Some(option) = options.find(|option| *option != ID && glob.is_match(option)) {
            return Err(not_here(option));
        }
        if glob.is_match(ID) {
            found.push((Value::from(ID), known.opts.get_attr(ID)?));
        }
    }
    for (key, value) in defaults() {
        let key = Value::from(key);
        let is_new = !found.iter().any(|(other, _)| *other == key);
        if is_new && key.as_str().is_some_and(|text| glob.is_match(text)) {
            found.push((key, from_json(&value)));
        }
    }
    Ok(dictionary(found))
}

/// The entry `master` of the pillar, where Salt's master puts its own options (`pillar_opts`).
fn master(pillar: &Value) -> Result<Option<Value>, Error> {
    let master = pillar.get_attr("master")?;
    match master.kind() {
        ValueKind::Undefined => Ok(None),
        ValueKind::Map => Ok(Some(master)),
        other => Err(invalid(format!(
            "config.option reads the pillar `master` as the options of a master, but it has the type {other}; use \
             `omit_master=True`"
        ))),
    }
}

fn not_here(option: &str) -> Error {
    invalid(format!(
        "`{option}` is an option of Salt's minions, which Halite's minions do not have; with `omit_opts=True` config.option reads \
         the grains and the pillar"
    ))
}

/// Salt's values of options that are in no configuration file.
fn defaults() -> Map<String, Json> {
    serde_json::from_str(DEFAULTS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_those_of_salt() {
        assert_eq!(defaults().len(), 36);
        assert_eq!(defaults()["virt"]["images"], "/srv/salt-images");
        assert!(MINION_OPTIONS.lines().any(|option| option == ID));
        assert!(MINION_OPTIONS.lines().is_sorted());
    }
}
