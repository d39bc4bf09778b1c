//! Data as JSON and YAML texts, byte for byte as Salt's serializers write them (Python's `json`,
//! and PyYAML with libyaml): for `file.serialize`, and `slsutil.serialize` in templates.

mod emitter;
mod json;
mod scalar;
mod yaml;

use halite_document::yaml::KEY_MARK;
use serde_json::Value;

pub(crate) use json::JsonForm;
pub(crate) use yaml::YamlForm;

/// Data to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Data>),
    /// In their order; keys are scalars.
    Map(Vec<(Data, Data)>),
}

/// Data that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SerializeError {
    /// A key of a document.
    #[error("a key that is not a text")]
    Key,
    #[error("a key that is a list or a mapping")]
    CollectionKey,
    #[error("more than 8 MiB")]
    TooLarge,
    /// Python refuses to sort them.
    #[error("keys of several kinds, which have no order")]
    Order,
}

type Written<T> = Result<T, SerializeError>;

impl Data {
    /// The data of a document, whose keys are texts.
    ///
    /// # Errors
    /// A key is not a text.
    pub(crate) fn from_json(value: &Value) -> Written<Self> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Self::Int(whole.into()),
                (None, Some(whole)) => Self::Int(whole.into()),
                (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => {
                Self::List(items.iter().map(Self::from_json).collect::<Written<_>>()?)
            }
            Value::Object(map) => {
                let mut entries = Vec::new();
                for (key, value) in map {
                    if key.starts_with(KEY_MARK) {
                        return Err(SerializeError::Key);
                    }
                    entries.push((Self::Text(key.clone()), Self::from_json(value)?));
                }
                Self::Map(entries)
            }
        })
    }

    /// Tests whether it is a list or a mapping.
    fn is_collection(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_))
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number; Python's booleans are numbers.
    fn whole(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(value) => Some((*value).into()),
            _ => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            // A text is read as the nearest float.
            _ => self.whole()?.to_string().parse().ok(),
        }
    }
}

/// Entries in the order of their keys, as Python sorts them; `None` if the keys have no order.
fn sorted(entries: &[(Data, Data)]) -> Option<Vec<&(Data, Data)>> {
    let mut sorted: Vec<&(Data, Data)> = entries.iter().collect();
    let all = |is_kind: fn(&Data) -> bool| entries.iter().all(|(key, _)| is_kind(key));
    if all(|key| key.text().is_some()) {
        sorted.sort_by(|(one, _), (other, _)| one.text().cmp(&other.text()));
    } else if all(|key| key.whole().is_some()) {
        sorted.sort_by_key(|(key, _)| key.whole());
    } else if all(|key| key.number().is_some()) {
        let number = |key: &Data| key.number().unwrap_or_default();
        sorted.sort_by(|(one, _), (other, _)| number(one).total_cmp(&number(other)));
    } else if entries.len() > 1 {
        return None;
    }
    Some(sorted)
}

/// A float as Python's `repr` writes it, with the fewest digits that read as the same number.
pub(crate) fn float(number: f64) -> String {
    let written = format!("{number:?}");
    // Rust changes to an exponent where Python does, and writes the same digits.
    let Some((digits, exponent)) = written.split_once('e') else {
        return written.replace("NaN", "nan");
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests;
