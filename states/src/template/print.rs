//! Printed values, as Salt's templates print them: what `{{ … }}` writes.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Output, State, Value, escape_formatter};

use super::values::Secret;

/// Writes a value. A text in a dictionary that has lines or tabs is in double quotes, so that YAML
/// reads it unchanged (Salt issue 30690); all else is printed as Python prints it.
pub(super) fn formatter(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    match special(value) {
        Some(Special::Lines) => out.write_str(&printed(value)).map_err(Error::from),
        Some(Special::Undefined) => Err(Error::new(
            ErrorKind::UndefinedError,
            "a part of the printed value is undefined",
        )),
        None => escape_formatter(out, state, value),
    }
}

/// The parts of a printed list or dictionary that need special treatment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Special {
    /// A dictionary with a text of several lines.
    Lines,
    /// A value that is not defined.
    Undefined,
}

fn special(value: &Value) -> Option<Special> {
    let items = || value.try_iter().into_iter().flatten();
    let inside = |item: &Value| {
        if item.is_undefined() {
            return Some(Special::Undefined);
        }
        special(item)
    };
    match value.kind() {
        ValueKind::Map => items()
            .filter_map(|key| {
                let item = value.get_item(&key).ok()?;
                is_of_lines(&item)
                    .then_some(Special::Lines)
                    .max(inside(&item))
            })
            .max(),
        ValueKind::Seq => items().filter_map(|item| inside(&item)).max(),
        _ => None,
    }
}

fn is_of_lines(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.contains(['\n', '\r', '\t']))
}

fn printed(value: &Value) -> String {
    if let Some(secret) = value.downcast_object_ref::<Secret>() {
        return secret.text();
    }
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Map => {
            let entries: Vec<String> = items()
                .map(|key| {
                    let item = value.get_item(&key).unwrap_or_default();
                    let item = if is_of_lines(&item) {
                        serde_json::Value::from(item.to_string()).to_string()
                    } else {
                        printed(&item)
                    };
                    format!("{key:?}: {item}")
                })
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        ValueKind::Seq => {
            let items: Vec<String> = items().map(|item| printed(&item)).collect();
            match items.as_slice() {
                [one] if value.is_tuple() => format!("({one},)"),
                _ if value.is_tuple() => format!("({})", items.join(", ")),
                _ => format!("[{}]", items.join(", ")),
            }
        }
        _ => format!("{value:?}"),
    }
}
