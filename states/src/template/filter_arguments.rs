//! Arguments of filters: by place or by name, as Python takes them and the engine does not; and
//! values that Python does not put in an order.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};

use super::error::invalid;

/// Filters whose arguments the engine takes by name only.
const NAMED: &[(&str, &[&str])] = &[
    ("dictsort", &["case_sensitive", "by", "reverse"]),
    ("sort", &["reverse", "case_sensitive", "attribute"]),
];

/// Filters whose arguments are taken by place only.
const PLACED: &[(&str, &[&str])] = &[
    ("batch", &["linecount", "fill_with"]),
    ("d", &["default_value", "boolean"]),
    ("default", &["default_value", "boolean"]),
    ("join", &["d"]),
    ("replace", &["old", "new", "count"]),
    ("slice", &["slices", "fill_with"]),
    ("traverse", &["key", "default", "delimiter"]),
];

/// The arguments of a filter, its value first, in the form that it takes.
///
/// # Errors
/// An argument is given twice, or has no such parameter.
pub(super) fn arranged(name: &str, args: Vec<Value>) -> Result<Vec<Value>, Error> {
    let of = |table: &[(&str, &'static [&'static str])]| {
        let found = table.iter().find(|(known, _)| *known == name);
        found.map(|(_, parameters)| *parameters)
    };
    if let Some(parameters) = of(NAMED) {
        return named(parameters, args);
    }
    match of(PLACED) {
        Some(parameters) => placed(name, parameters, args),
        None => Ok(args),
    }
}

fn named(parameters: &[&str], mut args: Vec<Value>) -> Result<Vec<Value>, Error> {
    if args.get(1).is_none_or(Value::is_kwargs) {
        return Ok(args);
    }
    let named = args.pop_if(|last| last.is_kwargs());
    let positional = args.split_off(1);
    if positional.len() > parameters.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut all: Vec<(String, Value)> = Vec::new();
    if let Some(named) = named {
        for key in named.try_iter()? {
            all.push((key.to_string(), named.get_item(&key)?));
        }
    }
    for (key, value) in parameters.iter().zip(positional) {
        if all.iter().any(|(known, _)| known == key) {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        all.push(((*key).to_owned(), value));
    }
    args.push(all.into_iter().collect::<Kwargs>().into());
    Ok(args)
}

fn placed(name: &str, parameters: &[&str], mut args: Vec<Value>) -> Result<Vec<Value>, Error> {
    let Some(named) = args.pop_if(|last| last.is_kwargs()) else {
        return Ok(args);
    };
    let mut places: Vec<Option<Value>> = args.drain(1..).map(Some).collect();
    for key in named.try_iter()? {
        let key_text = key.to_string();
        let at = parameters.iter().position(|known| **known == key_text);
        let at = at.ok_or_else(|| {
            invalid(format!(
                "`{name}` has no argument `{key_text}`: there are {}",
                parameters.join(", ")
            ))
        })?;
        if places.len() <= at {
            places.resize(at + 1, None);
        }
        if places[at].replace(named.get_item(&key)?).is_some() {
            return Err(invalid(format!("`{key_text}` of `{name}` is given twice")));
        }
    }
    for (place, parameter) in places.into_iter().zip(parameters) {
        // The parameters before one that was named have their defaults.
        args.push(match (place, *parameter) {
            (Some(value), _) => value,
            (None, "default_value") => Value::from(""),
            (None, "default") => Value::from(()),
            (None, _) => return Err(invalid(format!("`{name}` needs `{parameter}`"))),
        });
    }
    Ok(args)
}

/// Refuses to sort values of different types: the engine puts them in an order, Python does not.
pub(super) fn refuse_unordered(name: &str, args: &[Value]) -> Result<(), Error> {
    if !matches!(name, "sort" | "min" | "max" | "dictsort" | "groupby") {
        return Ok(());
    }
    let Some(items) = args.first().filter(|items| items.len().is_some()) else {
        return Ok(());
    };
    let named = |key: &str| -> Option<Value> {
        let named = args.last().filter(|last| last.is_kwargs())?;
        named.get_attr(key).ok()
    };
    let text = |value: Value| value.as_str().map(str::to_owned);
    let default = named("default").filter(|value| name == "groupby" && !value.is_none());
    let path = named("attribute").and_then(text).or_else(|| {
        let path = args.get(1).filter(|_| name == "groupby");
        path.and_then(Value::as_str).map(str::to_owned)
    });
    let by_value = name == "dictsort" && named("by").is_some_and(|by| by.as_str() == Some("value"));
    let of = |at: Value, part: &str| at.get_attr(part).unwrap_or_default();
    let mut kinds = Vec::new();
    for item in items.try_iter()? {
        let item = match &path {
            Some(path) => path.split('.').fold(item, of),
            None if by_value => items.get_item(&item)?,
            None => item,
        };
        let item = match &default {
            Some(default) if item.is_undefined() => default.clone(),
            _ => item,
        };
        if !kinds.contains(&item.kind()) {
            kinds.push(item.kind());
        }
    }
    match kinds.as_slice() {
        [one, other, ..] => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!(
                "`{name}` cannot put {one} and {other} in an order; convert them to one type first"
            ),
        )),
        _ => Ok(()),
    }
}
