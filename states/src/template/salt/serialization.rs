//! `slsutil.serialize`: data as JSON or YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;

use halite_secrets::reference;
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::super::error::{caused, invalid};
use super::super::lists::List;
use super::super::values::{Dict, Secret};
use super::arguments::{Arguments, has_secret};
use crate::serialized::{Data, JsonForm, YamlForm};

/// Deepest nesting of data.
const MAX_DEPTH: usize = 100;

/// The longest indentation and separator of JSON, in bytes.
const MAX_INDENT: usize = 100;

/// The most values of the data, as in a document of YAML.
const MAX_VALUES: usize = 200_000;

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
    let mut reader = DataReader {
        name,
        count: 0,
        // JSON has no aliases.
        seen: (serializer == Serializer::Yaml).then(Seen::default),
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
        Some(indent) if indent.kind() == ValueKind::String => Some(short("indent", &indent)?),
        Some(_) => {
            let blanks = whole(args, "indent")?.unwrap_or_default();
            let blanks = usize::try_from(blanks).unwrap_or_default();
            if blanks > MAX_INDENT {
                return Err(invalid(format!("`indent` is at most {MAX_INDENT}")));
            }
            Some(" ".repeat(blanks))
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

/// A text that is written many times.
fn short(parameter: &str, value: &Value) -> Result<String, Error> {
    let text = value.to_string();
    if text.len() > MAX_INDENT || reference::mentions(&text) {
        return Err(invalid(format!(
            "`{parameter}` takes a text of at most {MAX_INDENT} bytes that is not a secret"
        )));
    }
    Ok(text)
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
        [items, keys] if items.as_str().is_some() && keys.as_str().is_some() => Ok(Some((
            short("separators", items)?,
            short("separators", keys)?,
        ))),
        _ => Err(invalid(format!(
            "`separators` takes two texts, not `{value}`"
        ))),
    }
}

/// Reads template values as data.
struct DataReader<'a> {
    /// The function, for errors.
    name: &'a str,
    /// The number of values so far.
    count: usize,
    /// `None` if the same list or dictionary may occur again.
    seen: Option<Seen>,
}

/// The lists and dictionaries so far.
#[derive(Default)]
struct Seen {
    /// By their addresses. Each is kept, so that no later one has its address.
    places: BTreeMap<usize, Value>,
    /// Python may make one tuple of equal ones.
    tuples: BTreeSet<Value>,
}

impl DataReader<'_> {
    fn data(&mut self, value: &Value, depth: usize) -> Result<Data, Error> {
        self.count += 1;
        if depth > MAX_DEPTH || self.count > MAX_VALUES {
            return Err(invalid(format!(
                "the data have more than {MAX_DEPTH} levels or {MAX_VALUES} values"
            )));
        }
        let is_reference = value.as_str().is_some_and(reference::mentions);
        if is_reference || value.downcast_object_ref::<Secret>().is_some() {
            return Err(has_secret(self.name));
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
            // In Python, `range(3)` and `d.keys()` are not lists.
            ValueKind::Seq | ValueKind::Iterable if address(value).is_some() => {
                self.record(value)?;
                let items = value.try_iter()?.map(|item| self.data(&item, depth + 1));
                Data::List(items.collect::<Result<_, _>>()?)
            }
            other => return Err(invalid(format!("a value of type {other} is not data"))),
        })
    }

    /// Refuses a list or dictionary of which Salt may write an alias.
    fn record(&mut self, value: &Value) -> Result<(), Error> {
        // Equal empty tuples are the same one in Python, and written without an alias.
        let is_exempt = value.is_tuple() && value.len() == Some(0);
        let (Some(seen), false) = (&mut self.seen, is_exempt) else {
            return Ok(());
        };
        let Some(address) = address(value) else {
            return Err(invalid(
                "the data have a dictionary of `dict(…)`; write it as `{…}`",
            ));
        };
        let is_known = seen.places.insert(address, value.clone()).is_some();
        if is_known || value.is_tuple() && !seen.tuples.insert(value.clone()) {
            return Err(invalid(
                "the data have the same list, tuple or dictionary twice, which Salt may write as an alias; write the second \
                 one out",
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
        assert!(call("yaml", twice.clone()).contains("the same list, tuple or dictionary twice"));
        assert_eq!(call("json", twice), "[[1], [1]]");
        let copies = list([one, list([1.into()])]);
        assert_eq!(call("yaml", copies), "- [1]\n- [1]");
        let data = Value::from(vec![Value::from(1)]);
        let twice = dictionary([("a".into(), data.clone()), ("b".into(), data)]);
        assert!(call("yaml", twice).contains("the same list, tuple or dictionary twice"));
    }

    #[test]
    fn equal_tuples_and_dictionaries_of_the_engine_may_be_aliases() {
        let tuple = || Value::from(Tuple::from([Value::from(1), Value::from(2)]));
        let twice = list([tuple(), tuple()]);
        assert!(call("yaml", twice.clone()).contains("the same list, tuple or dictionary twice"));
        assert_eq!(call("json", twice), "[[1, 2], [1, 2]]");
        let engine = Value::from(BTreeMap::from([("a", 1)]));
        assert!(call("yaml", engine.clone()).contains("`dict(…)`"));
        assert_eq!(call("json", engine), "{\"a\": 1}");
    }

    #[test]
    fn the_work_and_the_text_are_limited() {
        let mut doubled = list([Value::from(1)]);
        for _ in 0..60 {
            doubled = list([doubled.clone(), doubled]);
        }
        assert!(call("json", doubled).contains("200000 values"));
        assert!(short("indent", &Value::from("x".repeat(MAX_INDENT + 1))).is_err());
    }

    #[test]
    fn a_secret_is_found_in_keys_and_at_any_depth() {
        let secret = "halite-secret::key::";
        let mut deep = Value::from(secret);
        for _ in 0..40 {
            deep = list([deep]);
        }
        for data in [dictionary([(secret.into(), 1.into())]), deep] {
            assert!(call("json", data).contains("cannot be used on a secret"));
        }
    }
}
