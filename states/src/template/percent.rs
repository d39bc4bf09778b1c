//! `'%s' % x`: Python's formatting of texts.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::error::invalid;
use super::guard::{Purpose, guard};

/// Formats a text with one value, the values of a tuple, or the entries of a dictionary by name.
///
/// # Errors
/// A value is undefined, a secret, superfluous, missing, or of another kind than the text requires.
pub(super) fn format_text(text: &Value, values: &Value, purpose: Purpose) -> Result<Value, Error> {
    guard("format", &[text.clone(), values.clone()], purpose)?;
    let text = text.to_string();
    let arguments: Vec<Value> = if values.is_tuple() {
        values.try_iter()?.collect()
    } else if values.kind() == ValueKind::Map && text.contains("%(") {
        let named: Kwargs = values
            .try_iter()?
            .filter_map(|key| Some((key.to_string(), values.get_item(&key).ok()?)))
            .collect();
        vec![named.into()]
    } else {
        vec![values.clone()]
    };
    if arguments.iter().any(Value::is_undefined) {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            "a value that `%` formats is undefined",
        ));
    }
    let wanted = conversions(&text);
    let counted = values.is_tuple() || !matches!(values.kind(), ValueKind::Map | ValueKind::Seq);
    if counted && arguments.len() > wanted {
        return Err(invalid(format!(
            "the text takes {wanted} values, and `%` has {} for it",
            arguments.len()
        )));
    }
    Ok(Value::from(format(FormatStyle::Printf, &text, &arguments)?))
}

/// The number of values that a text takes.
fn conversions(text: &str) -> usize {
    text.replace("%%", "").matches('%').count()
}

#[cfg(test)]
mod tests {
    use minijinja::value::Tuple;
    use serde_json::json;

    use super::super::values::from_json;
    use super::*;

    fn formatted(text: &str, values: &Value) -> String {
        format_text(&Value::from(text), values, Purpose::Sls)
            .map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    #[test]
    fn no_secret_is_formatted() {
        let secret = from_json(&json!({"k": "halite-secret::x::"}));
        for values in [&secret, &secret.get_attr("k").unwrap()] {
            let out = formatted("%s", values);
            assert!(out.contains("`format` cannot be used on a secret"), "{out}");
        }
    }

    #[test]
    fn every_value_has_its_place() {
        let out = formatted("%s", &Value::from(Tuple::from([1.into(), 2.into()])));
        assert!(
            out.contains("the text takes 1 values, and `%` has 2 for it"),
            "{out}"
        );
        let out = formatted("100%%", &Value::from(1));
        assert!(out.contains("takes 0 values"), "{out}");
        assert_eq!(formatted("%s", &Value::from(vec![1, 2])), "[1, 2]");
    }
}
