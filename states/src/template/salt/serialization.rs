//! `slsutil.serialize`: data as JSON or YAML.

use std::collections::BTreeMap;
use std::ptr;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::super::error::{caused, invalid};
use super::super::lists::List;
use super::super::values::Dict;
use super::arguments::Arguments;
use crate::serialized::{Data, JsonForm, YamlForm};

/// Deepest nesting of data.
const MAX_DEPTH: usize = 100;

/// The longest indentation of JSON.
const MAX_INDENT: i64 = 100;

/// A form of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serializer {
    Json,
    Yaml,
}

impl Serializer {
    fn from_arguments(name: &str, args: &Arguments) -> Result<Self, Error> {
        match args.required_text("serializer")?.as_str() {
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => Err(invalid(format!(
                "salt['{name}'] has no serializer `{other}`: there are json, yaml"
            ))),
        }
    }

    /// Arguments of `slsutil.serialize` that are for the form.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["indent", "separators", "sort_keys", "ensure_ascii"],
            Self::Yaml => &[
                "indent",
                "width",
                "sort_keys",
                "allow_unicode",
                "default_flow_style",
            ],
        }
    }
}

/// `slsutil.serialize(serializer, obj, **options)`.
pub(super) fn serialize(name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["serializer", "obj"];
    let mut all = Serializer::Yaml.options().to_vec();
    all.extend(["separators", "ensure_ascii"]);
    let bound = Arguments::bind_keywords(name, &parameters, &all, args)?;
    let serializer = Serializer::from_arguments(name, &bound)?;
    let args = Arguments::bind_keywords(name, &parameters, serializer.options(), args)?;
    let args = args.without_secrets()?;
    let mut reader = DataReader {
        // JSON has no aliases.
        seen: (serializer == Serializer::Yaml).then(BTreeMap::new),
    };
    let data = reader.data(&args.required("obj")?, 0)?;
    let written = match serializer {
        Serializer::Json => json_form(&args)?.write(&data),
        Serializer::Yaml => yaml_form(&args)?.write(&data),
    };
    let text =
        written.map_err(|error| caused(format!("salt['{name}'] cannot write the data"), error))?;
    Ok(text.into())
}

fn json_form(args: &Arguments) -> Result<JsonForm, Error> {
    let indent = match given(args, "indent") {
        None => None,
        Some(indent) if indent.kind() == ValueKind::String => Some(indent.to_string()),
        Some(_) => {
            let blanks = whole(args, "indent")?.unwrap_or_default();
            if blanks > MAX_INDENT {
                return Err(invalid(format!("`indent` is at most {MAX_INDENT}")));
            }
            Some(" ".repeat(usize::try_from(blanks).unwrap_or_default()))
        }
    };
    Ok(JsonForm {
        indent,
        separators: separators(args)?,
        sort_keys: args.switch("sort_keys", false),
        ascii: args.switch("ensure_ascii", false),
    })
}

fn yaml_form(args: &Arguments) -> Result<YamlForm, Error> {
    let form = YamlForm {
        flow: given(args, "default_flow_style").map(|value| value.is_true()),
        sort_keys: args.switch("sort_keys", true),
        unicode: args.switch("allow_unicode", false),
        ..YamlForm::default()
    };
    Ok(form.sized(whole(args, "indent")?, whole(args, "width")?))
}

/// An argument that is not `None`.
fn given(args: &Arguments, parameter: &str) -> Option<Value> {
    args.optional(parameter).filter(|value| !value.is_none())
}

/// A whole number, if the argument is given.
fn whole(args: &Arguments, parameter: &str) -> Result<Option<i64>, Error> {
    let Some(value) = given(args, parameter) else {
        return Ok(None);
    };
    let number = value.as_i64().filter(|_| value.is_integer());
    number
        .map(Some)
        .ok_or_else(|| invalid(format!("`{parameter}` takes a whole number, not `{value}`")))
}

/// The texts between items, and between a key and its value.
fn separators(args: &Arguments) -> Result<Option<(String, String)>, Error> {
    let Some(value) = given(args, "separators") else {
        return Ok(None);
    };
    let items: Vec<Value> = match value.kind() {
        ValueKind::Seq => value.try_iter()?.collect(),
        _ => Vec::new(),
    };
    match items.as_slice() {
        [items, keys] if items.as_str().is_some() && keys.as_str().is_some() => {
            Ok(Some((items.to_string(), keys.to_string())))
        }
        _ => Err(invalid(format!(
            "`separators` takes two texts, not `{value}`"
        ))),
    }
}

/// Reads template values as data.
struct DataReader {
    /// The lists and dictionaries so far, by their addresses. Each is kept, so that no later one has
    /// its address. `None` if the same one may occur again.
    seen: Option<BTreeMap<usize, Value>>,
}

impl DataReader {
    fn data(&mut self, value: &Value, depth: usize) -> Result<Data, Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!(
                "the data have more than {MAX_DEPTH} levels"
            )));
        }
        Ok(match value.kind() {
            ValueKind::Undefined => {
                return Err(Error::new(
                    ErrorKind::UndefinedError,
                    "a part of the data is undefined",
                ));
            }
            ValueKind::None => Data::Null,
            ValueKind::Bool => Data::Bool(value.is_true()),
            ValueKind::Number if value.is_integer() => Data::Int(i128::try_from(value.clone())?),
            ValueKind::Number => Data::Float(f64::try_from(value.clone())?),
            ValueKind::String => Data::Text(value.to_string()),
            ValueKind::Map => {
                self.record(value)?;
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    entries.push((self.data(&key, depth + 1)?, self.data(&item, depth + 1)?));
                }
                Data::Map(entries)
            }
            ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
                self.record(value)?;
                let items = value.try_iter()?.map(|item| self.data(&item, depth + 1));
                Data::List(items.collect::<Result<_, _>>()?)
            }
            other => return Err(invalid(format!("a value of type {other} is not data"))),
        })
    }

    fn record(&mut self, value: &Value) -> Result<(), Error> {
        // Equal empty tuples are the same one in Python, and written without an alias.
        let is_exempt = value.is_tuple() && value.len() == Some(0);
        let (Some(seen), Some(address), false) = (&mut self.seen, address(value), is_exempt) else {
            return Ok(());
        };
        if seen.insert(address, value.clone()).is_some() {
            return Err(invalid(
                "the data have the same list or dictionary twice, which Salt may write as an alias; use a copy: \
                 `salt['defaults.deepcopy'](x)`",
            ));
        }
        Ok(())
    }
}

/// The place in memory of a list or dictionary.
fn address(value: &Value) -> Option<usize> {
    fn address_of<T: 'static>(value: &Value) -> Option<usize> {
        let object = value.downcast_object_ref::<T>()?;
        Some(ptr::from_ref(object).addr())
    }
    address_of::<Dict>(value)
        .or_else(|| address_of::<List>(value))
        .or_else(|| address_of::<Vec<Value>>(value))
        .or_else(|| address_of::<Tuple>(value))
}

#[cfg(test)]
mod tests {
    use super::super::super::lists::list;
    use super::super::super::values::dictionary;
    use super::*;

    fn call(serializer: &str, data: Value) -> String {
        serialize("slsutil.serialize", &[serializer.into(), data])
            .map_or_else(|error| error.to_string(), |text| text.to_string())
    }

    #[test]
    fn the_same_list_twice_would_be_an_alias_in_yaml() {
        let one = list([1.into()]);
        let twice = list([one.clone(), one.clone()]);
        assert!(call("yaml", twice.clone()).contains("the same list or dictionary twice"));
        assert_eq!(call("json", twice), "[[1], [1]]");
        let copies = list([one, list([1.into()])]);
        assert_eq!(call("yaml", copies), "- [1]\n- [1]");
        let data = Value::from(vec![Value::from(1)]);
        let twice = dictionary([("a".into(), data.clone()), ("b".into(), data)]);
        assert!(call("yaml", twice).contains("the same list or dictionary twice"));
    }
}
