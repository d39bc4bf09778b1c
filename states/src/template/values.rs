//! Pillar, grains and other data as values of the template engine. Dictionaries keep their order
//! and record accesses; secrets can only be passed on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use halite_document::yaml::{KEY_MARK, Node, NodeKind, scalar};
use halite_secrets::reference;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::{Map, Number, Value as Json};

use super::lists::list;
use super::trace::{Access, PILLAR, Recorder, below};

/// A dictionary.
pub(crate) struct Dict {
    /// A lock, because `defaults.merge` changes a dictionary in place. It is never held while
    /// another one is taken.
    entries: RwLock<Entries>,
    /// Its place in the data, and the recorder of accesses.
    origin: Option<(String, Arc<Recorder>)>,
    /// It is in a list of the data.
    is_in_data: bool,
}

/// One key of a dictionary with its value.
#[derive(Clone)]
struct Entry {
    key: Value,
    value: Value,
}

/// The keys and values of a dictionary, in their order. As in Python, `80` and `'80'` are different
/// keys, and `1`, `1.0` and `True` are the same.
#[derive(Default)]
struct Entries {
    list: Vec<Entry>,
    texts: HashMap<String, usize>,
    /// Keys that are not texts, by [`identity`].
    others: HashMap<String, usize>,
    /// A text finds the number that it reads as, and a number its text: the pillar does not say
    /// whether a key was in quotes.
    is_pillar: bool,
}

/// A text that is the same for equal keys that are not texts.
fn identity(key: &Value) -> String {
    let number = match key.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(key.is_true()))),
        ValueKind::Number => f64::try_from(key.clone()).ok(),
        _ => None,
    };
    match number {
        // Whole numbers beyond the precision of a float are their own text.
        Some(number) if !key.is_integer() || number.abs() < 1e15 => format!("{number:?}"),
        _ => format!("{key:?}"),
    }
}

impl Entries {
    fn find(&self, key: &Value) -> Option<usize> {
        let text = |text: &str| self.texts.get(text).copied();
        let other = |key: &Value| self.others.get(&identity(key)).copied();
        match key.as_str() {
            Some(name) if self.is_pillar => text(name).or_else(|| other(&pillar_key(name))),
            Some(name) => text(name),
            None if self.is_pillar => other(key).or_else(|| text(&name_in_data(key))),
            None => other(key),
        }
    }

    fn set(&mut self, key: &Value, value: Value) {
        if let Some(place) = self.find(key).and_then(|at| self.list.get_mut(at)) {
            place.value = value;
            return;
        }
        let at = self.list.len();
        match key.as_str() {
            Some(text) => self.texts.insert(text.to_owned(), at),
            None => self.others.insert(identity(key), at),
        };
        let key = key.clone();
        self.list.push(Entry { key, value });
    }

    fn remove(&mut self, key: &Value) -> Option<Value> {
        let at = self.find(key)?;
        let removed = self.list.remove(at);
        for places in [&mut self.texts, &mut self.others] {
            places.retain(|_, place| *place != at);
            for place in places.values_mut().filter(|place| **place > at) {
                *place -= 1;
            }
        }
        Some(removed.value)
    }
}

impl Dict {
    fn record(&self, access: Access) {
        if let Some((pointer, recorder)) = &self.origin {
            recorder.record(pointer.clone(), access);
        }
    }

    fn entries(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its place in the data, if that is known.
    pub(crate) fn place(&self) -> Option<&str> {
        self.origin.as_ref().map(|(place, _)| place.as_str())
    }

    /// Tests whether it is a part of the pillar or the grains, which templates do not change.
    pub(crate) fn is_data(&self) -> bool {
        self.is_in_data || self.origin.is_some()
    }

    /// Tests whether its keys are those of the pillar, which do not say whether they were in
    /// quotes.
    pub(crate) fn has_pillar_keys(&self) -> bool {
        self.entries().is_pillar
    }

    /// From now on, the number 80 and the text `80` are one key.
    pub(crate) fn take_pillar_keys(&self) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.is_pillar = true;
    }

    /// Its values; the access is not recorded.
    pub(crate) fn values(&self) -> Vec<Value> {
        let entries = self.entries();
        entries
            .list
            .iter()
            .map(|entry| entry.value.clone())
            .collect()
    }

    /// Sets the value of a key in place. Every name of this dictionary sees the change.
    pub(crate) fn set(&self, key: &Value, value: Value) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.set(key, value);
    }

    /// Removes a key in place, and returns its value.
    pub(crate) fn remove(&self, key: &Value) -> Option<Value> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.remove(key)
    }
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.entries().list.clone();
        f.debug_map()
            .entries(list.iter().map(|entry| (&entry.key, &entry.value)))
            .finish()
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let entries = self.entries();
        let found = entries.find(key).and_then(|at| entries.list.get(at));
        if let Some((pointer, recorder)) = &self.origin {
            let name = found.map_or_else(|| name_in_data(key), |entry| key_text(&entry.key));
            recorder.record(below(pointer, &name), Access::Lookup);
        }
        found.map(|entry| entry.value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.record(Access::Whole);
        let entries = self.entries();
        Enumerator::Values(entries.list.iter().map(|entry| entry.key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.record(Access::Length);
        Some(self.entries().list.len())
    }

    fn custom_cmp(self: &Arc<Self>, _: &DynObject) -> Option<std::cmp::Ordering> {
        None
    }
}

/// A reference to a secret. A template can print it, join it to texts and pass it on, nothing else.
pub(crate) struct Secret {
    path: String,
}

impl Secret {
    pub(crate) fn text(&self) -> String {
        reference::for_path(&self.path)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Object for Secret {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// JSON as a template value.
pub(crate) fn from_json(json: &Json) -> Value {
    convert_with(json, "", None, Typed::default())
}

/// The value at a place of the data, with accesses by templates recorded.
pub(crate) fn recorded(json: &Json, pointer: &str, recorder: &Arc<Recorder>) -> Value {
    let typed = Typed {
        keys: has_typed_keys(pointer),
        is_data: true,
    };
    convert_with(json, pointer, Some(recorder), typed)
}

/// YAML as a template value; keys keep their type.
pub(crate) fn from_node(node: &Node) -> Value {
    match &node.kind {
        NodeKind::List(items) => list(items.iter().map(from_node)),
        NodeKind::Map(entries) => dictionary(
            entries
                .iter()
                .map(|(key, value)| (from_node(key), from_node(value))),
        ),
        _ => from_json(&node.to_json()),
    }
}

/// The place in the pillar of Halite's own values, whose keys are texts: names of nodes, for
/// example.
const OWN: &str = "/pillar/halite";

/// The data below a place has the operator's own keys, whose type is that of the YAML scalar.
fn has_typed_keys(pointer: &str) -> bool {
    let is_below = |place: &str| {
        let rest = pointer.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_below(PILLAR) && !is_below(OWN)
}

/// The key that YAML reads from a text without quotes.
pub(crate) fn typed_key(raw: &str) -> Value {
    match scalar::resolve(raw) {
        NodeKind::Bool(value) => Value::from(value),
        NodeKind::Int(value) => Value::from(value),
        NodeKind::Float(value) => Value::from(value),
        NodeKind::Null if !raw.is_empty() => Value::from(()),
        _ => Value::from(raw),
    }
}

/// A key of the pillar: a number if the text is exactly how this whole number is written (`80`),
/// otherwise the text. `080`, `1.30` and `no` may have been in quotes.
fn pillar_key(raw: &str) -> Value {
    match raw.parse::<i64>() {
        Ok(number) if number.to_string() == raw => Value::from(number),
        _ => Value::from(raw),
    }
}

/// The name in the data of the key that a template asks for: `80` for 80 and 80.0.
fn name_in_data(key: &Value) -> String {
    i64::try_from(key.clone()).map_or_else(|_| key_text(key), |number| number.to_string())
}

/// The kind of values that JSON becomes.
#[derive(Debug, Clone, Copy, Default)]
struct Typed {
    /// Keys have the type of the YAML scalar.
    keys: bool,
    /// They are of the pillar or the grains, which templates do not change.
    is_data: bool,
}

fn convert_with(
    json: &Json,
    pointer: &str,
    recorder: Option<&Arc<Recorder>>,
    typed: Typed,
) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => number
            .as_i64()
            .map(Value::from)
            .or_else(|| number.as_u64().map(Value::from))
            .unwrap_or_else(|| Value::from(number.as_f64().unwrap_or(f64::NAN))),
        Json::String(text) => match reference::path(text) {
            Some(path) => Value::from_object(Secret {
                path: path.to_owned(),
            }),
            None => Value::from(text.as_str()),
        },
        // Accesses inside a list are not recorded: the list counts as one value.
        Json::Array(items) => {
            let items = items.iter().map(|item| convert_with(item, "", None, typed));
            if typed.is_data {
                items.collect::<Vec<Value>>().into()
            } else {
                list(items)
            }
        }
        Json::Object(map) => {
            let mut entries = Entries {
                is_pillar: typed.keys,
                ..Entries::default()
            };
            for (name, value) in map {
                let place = recorder.map_or_else(String::new, |_| below(pointer, name));
                let typed = Typed {
                    keys: if recorder.is_some() {
                        has_typed_keys(&place)
                    } else {
                        typed.keys
                    },
                    ..typed
                };
                let value = convert_with(value, &place, recorder, typed);
                let key = match name.strip_prefix(KEY_MARK) {
                    Some(marked) => typed_key(marked),
                    None if typed.keys => pillar_key(name),
                    None => Value::from(name.as_str()),
                };
                entries.set(&key, value);
            }
            Value::from_object(Dict {
                entries: RwLock::new(entries),
                origin: recorder.map(|recorder| (pointer.to_owned(), recorder.clone())),
                is_in_data: typed.is_data,
            })
        }
    }
}

/// A dictionary that templates may change.
pub(crate) fn dictionary(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    new_dictionary(false, entries)
}

/// A dictionary that templates may change; `is_pillar` as in the one that its keys are from.
pub(crate) fn new_dictionary(
    is_pillar: bool,
    entries: impl IntoIterator<Item = (Value, Value)>,
) -> Value {
    let mut listed = Entries {
        is_pillar,
        ..Entries::default()
    };
    for (key, value) in entries {
        listed.set(&key, value);
    }
    Value::from_object(Dict {
        entries: RwLock::new(listed),
        origin: None,
        is_in_data: false,
    })
}

/// Tests whether a value is a dictionary with the keys of the pillar.
pub(crate) fn has_pillar_keys(value: &Value) -> bool {
    value
        .downcast_object_ref::<Dict>()
        .is_some_and(Dict::has_pillar_keys)
}

/// A copy whose dictionaries and lists are its own.
pub(crate) fn deep_copy(value: &Value) -> Value {
    match value.kind() {
        _ if value.is_tuple() => value.clone(),
        ValueKind::Map => match value.try_iter() {
            Ok(keys) => {
                let entries = keys.map(|key| {
                    let item = value.get_item(&key).unwrap_or_default();
                    (key, deep_copy(&item))
                });
                new_dictionary(has_pillar_keys(value), entries)
            }
            Err(_) => value.clone(),
        },
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => match value.try_iter() {
            Ok(items) => list(items.map(|item| deep_copy(&item))),
            Err(_) => value.clone(),
        },
        _ => value.clone(),
    }
}

/// A key as JSON writes it.
pub(crate) fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::Bool if key.is_true() => "true".to_owned(),
        ValueKind::Bool => "false".to_owned(),
        ValueKind::None => "null".to_owned(),
        _ => key.to_string(),
    }
}

/// A template value as JSON. Keys become texts, secrets become references.
///
/// # Errors
/// A value that has no JSON form: undefined, a function, a macro.
pub(crate) fn to_json(value: &Value) -> Result<Json, Error> {
    if let Some(secret) = value.downcast_object_ref::<Secret>() {
        return Ok(Json::from(secret.text()));
    }
    Ok(match value.kind() {
        ValueKind::Undefined => {
            return Err(Error::new(
                ErrorKind::UndefinedError,
                "an undefined value cannot be passed on",
            ));
        }
        ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => {
            if value.is_integer() {
                match value.as_i64() {
                    Some(number) => Json::from(number),
                    None => u64::try_from(value.clone())
                        .map_or_else(|_| Json::from(value.to_string()), Json::from),
                }
            } else {
                Number::from_f64(f64::try_from(value.clone())?).map_or(Json::Null, Json::Number)
            }
        }
        ValueKind::String | ValueKind::Bytes => Json::from(value.to_string()),
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()?
            .map(|item| to_json(&item))
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        ValueKind::Map => {
            let mut map = Map::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                map.insert(key_text(&key), to_json(&item)?);
            }
            Json::Object(map)
        }
        other => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value of type {other} is not data"),
            ));
        }
    })
}

/// Tests whether a value is, or holds, a reference to a secret.
pub(crate) fn holds_secret(value: &Value) -> bool {
    holds(value, 0)
}

fn holds(value: &Value, depth: usize) -> bool {
    if value.downcast_object_ref::<Secret>().is_some() {
        return true;
    }
    match value.kind() {
        ValueKind::String => value.as_str().is_some_and(reference::mentions),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
            if depth < 16 && value.len().is_some() =>
        {
            let is_map = value.kind() == ValueKind::Map;
            if let Some(dict) = value.downcast_object_ref::<Dict>() {
                dict.record(Access::Secret);
                return dict.values().iter().any(|item| holds(item, depth + 1));
            }
            value.try_iter().is_ok_and(|mut items| {
                items.any(|item| {
                    holds(&item, depth + 1)
                        || is_map
                            && value
                                .get_item(&item)
                                .is_ok_and(|item| holds(&item, depth + 1))
                })
            })
        }
        _ => false,
    }
}
