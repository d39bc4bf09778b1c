//! Python's methods that change a list or a dictionary in place.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::error::invalid;
use super::filter_arguments::refuse_unordered;
use super::lists::{List, own};
use super::merge::{changeable, holds, set, share_keys};

/// Methods that change a dictionary.
const OF_DICTIONARIES: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];

/// Methods that change a list.
const OF_LISTS: &[&str] = &[
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];

/// Calls a method that changes a dictionary; `None` if there is no such method.
pub(super) fn dict(value: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    OF_DICTIONARIES
        .contains(&method)
        .then(|| change_dict(value, method, args))
}

fn change_dict(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let dict = changeable(value)?;
    let (positional, named) = split(args)?;
    if method != "update" && named.is_some() {
        return Err(no_keywords(method));
    }
    match (method, positional) {
        ("update", [] | [_]) => {
            if let Some(over) = positional.first() {
                update(value, over)?;
            }
            for name in named.iter().flat_map(Kwargs::args) {
                let item: Option<Value> = named.as_ref().map(|all| all.get(name)).transpose()?;
                set(value, &Value::from(name), own(&item.unwrap_or_default())?)?;
            }
            Ok(Value::from(()))
        }
        ("setdefault", [key] | [key, _]) => {
            let there = value.get_item(key)?;
            if !there.is_undefined() {
                return Ok(there);
            }
            let default = positional.get(1).map_or(Ok(Value::from(())), own)?;
            set(value, key, default.clone())?;
            Ok(default)
        }
        ("pop", [key] | [key, _]) => match (dict.remove(key), positional.get(1)) {
            (Some(there), _) => Ok(there),
            (None, Some(default)) => Ok(default.clone()),
            (None, None) => Err(invalid(format!("the dictionary has no key {key:?}"))),
        },
        ("popitem", []) => {
            let last = value.try_iter()?.last();
            let key = last.ok_or_else(|| invalid("`popitem` of an empty dictionary"))?;
            let item = dict.remove(&key).unwrap_or_default();
            Ok(Value::from(minijinja::value::Tuple::from(vec![key, item])))
        }
        ("clear", []) => {
            for key in value.try_iter()? {
                dict.remove(&key);
            }
            Ok(Value::from(()))
        }
        _ => Err(Error::from(ErrorKind::TooManyArguments)),
    }
}

/// `update` with a dictionary, or with pairs.
fn update(base: &Value, over: &Value) -> Result<(), Error> {
    let is_map = over.kind() == ValueKind::Map;
    if is_map {
        share_keys(base, over);
    }
    if over.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if !is_map && over.kind() == ValueKind::String {
        return Err(invalid("`update` takes a dictionary, or a list of pairs"));
    }
    let entries: Vec<Value> = over.try_iter()?.collect();
    for entry in entries {
        if is_map {
            set(base, &entry, over.get_item(&entry)?)?;
            continue;
        }
        match entry.try_iter()?.collect::<Vec<_>>().as_slice() {
            [key, item] => set(base, key, own(item)?)?,
            _ => {
                return Err(invalid("`update` takes a dictionary, or a list of pairs"));
            }
        }
    }
    Ok(())
}

/// Calls a method that changes a list; `None` if there is no such method.
pub(super) fn list(value: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    (OF_LISTS.contains(&method) && !value.is_tuple()).then(|| change_list(value, method, args))
}

fn change_list(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let list = value.downcast_object_ref::<List>().ok_or_else(|| {
        invalid(format!(
            "`{method}`: a list of the pillar or the grains, or one without a name, cannot be changed in a template; \
             change a copy: `{{% set l = l | list %}}`"
        ))
    })?;
    let (positional, named) = split(args)?;
    if method == "sort" {
        return sort(value, list, positional, named);
    }
    if named.is_some() {
        return Err(no_keywords(method));
    }
    let none = Value::from(());
    for new in positional {
        if new.is_undefined() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
        if holds(new, value) && method != "extend" {
            return Err(invalid("a list cannot contain itself"));
        }
    }
    match (method, positional) {
        ("append", [item]) => {
            let item = own(item)?;
            list.edit(|items| items.push(item))?;
        }
        ("extend", [more]) => {
            let more: Vec<Value> = more.try_iter()?.collect();
            list.edit(|items| items.extend(more))?;
        }
        ("insert", [at, item]) => {
            let (at, item) = (i64::try_from(at.clone())?, own(item)?);
            list.edit(|items| items.insert(place(at, items.len()), item))?;
        }
        ("remove", [item]) => {
            let at = list.items().iter().position(|there| there == item);
            let at = at.ok_or_else(|| invalid(format!("{item:?} is not in the list")))?;
            list.change(|items| Ok(items.remove(at)))?;
        }
        ("pop", [] | [_]) => {
            let at = positional
                .first()
                .map_or(Ok(-1), |at| i64::try_from(at.clone()))?;
            return list.change(|items| {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if at < 0 { at + length } else { at };
                match usize::try_from(at).ok().filter(|at| *at < items.len()) {
                    Some(at) => Ok(items.remove(at)),
                    None => Err(invalid("`pop`: the list has no such item")),
                }
            });
        }
        ("reverse", []) => list.edit(|items| items.reverse())?,
        ("clear", []) => list.edit(Vec::clear)?,
        _ => return Err(Error::from(ErrorKind::TooManyArguments)),
    }
    Ok(none)
}

/// The place of `insert`: negative from the end, and never outside of the list.
fn place(at: i64, length: usize) -> usize {
    let wanted = if at < 0 {
        length.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(at).unwrap_or(usize::MAX)
    };
    wanted.min(length)
}

/// `sort(reverse=False)`; a `key` would be a function, which templates do not have.
fn sort(
    value: &Value,
    list: &List,
    positional: &[Value],
    named: Option<Kwargs>,
) -> Result<Value, Error> {
    if !positional.is_empty() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut backwards = false;
    if let Some(named) = named {
        backwards = named.get::<Option<bool>>("reverse")?.unwrap_or(false);
        named.assert_all_used()?;
    }
    refuse_unordered("sort", std::slice::from_ref(value))?;
    list.change(|items| {
        // Equal values keep their order, also backwards.
        items.sort_by(|one, two| {
            if backwards {
                two.cmp(one)
            } else {
                one.cmp(two)
            }
        });
        Ok(Value::from(()))
    })
}

fn split(args: &[Value]) -> Result<(&[Value], Option<Kwargs>), Error> {
    Ok(match args.split_last() {
        Some((last, before)) if last.is_kwargs() => (before, Some(Kwargs::try_from(last.clone())?)),
        _ => (args, None),
    })
}

fn no_keywords(method: &str) -> Error {
    invalid(format!("`{method}` takes no keyword arguments"))
}
