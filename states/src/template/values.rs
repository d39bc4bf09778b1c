//! Pillar, grains and other data as values of the template engine. Dictionaries keep their order
//! and record accesses; secrets can only be passed on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use halite_secrets::reference;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::{Map, Number, Value as Json};

use super::trace::{Access, Recorder, below};

/// A dictionary.
pub(crate) struct Dict {
    /// A lock, because `defaults.merge` changes a dictionary in place. It is never held while
    /// another one is taken.
    entries: RwLock<Entries>,
    /// Its place in the data, and the recorder of accesses.
    origin: Option<(String, Arc<Recorder>)>,
}

/// The keys and values of a dictionary, in their order.
#[derive(Default)]
struct Entries {
    list: Vec<(Value, Value)>,
    index: HashMap<String, usize>,
}

impl Entries {
    fn get(&self, key: &str) -> Option<&Value> {
        self.list.get(*self.index.get(key)?).map(|(_, value)| value)
    }

    fn set(&mut self, name: &str, key: &Value, value: Value) {
        match self.index.get(name).and_then(|at| self.list.get_mut(*at)) {
            Some((_, place)) => *place = value,
            None => {
                self.index.insert(name.to_owned(), self.list.len());
                self.list.push((key.clone(), value));
            }
        }
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

    /// Tests whether it is a part of the pillar or the grains, which templates do not change.
    pub(crate) fn is_data(&self) -> bool {
        self.origin.is_some()
    }

    /// The value of a key; the access is not recorded.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.entries().get(key).cloned()
    }

    /// Its values; the access is not recorded.
    pub(crate) fn values(&self) -> Vec<Value> {
        let entries = self.entries();
        entries
            .list
            .iter()
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// Sets the value of a key in place; `name` is the key as text. Every name of this dictionary
    /// sees the change.
    pub(crate) fn set(&self, name: &str, key: &Value, value: Value) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.set(name, key, value);
    }
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.entries().list.clone();
        f.debug_map()
            .entries(list.iter().map(|(key, value)| (key, value)))
            .finish()
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let text;
        let key = match key.as_str() {
            Some(key) => key,
            None => {
                text = key.to_string();
                &text
            }
        };
        if let Some((pointer, recorder)) = &self.origin {
            recorder.record(below(pointer, key), Access::Lookup);
        }
        self.get(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.record(Access::Whole);
        let entries = self.entries();
        Enumerator::Values(entries.list.iter().map(|(key, _)| key.clone()).collect())
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
    convert(json, "", None)
}

/// The value at a place of the data, with accesses by templates recorded.
pub(crate) fn recorded(json: &Json, pointer: &str, recorder: &Arc<Recorder>) -> Value {
    convert(json, pointer, Some(recorder))
}

fn convert(json: &Json, pointer: &str, recorder: Option<&Arc<Recorder>>) -> Value {
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
        Json::Array(items) => items
            .iter()
            .map(|item| convert(item, "", None))
            .collect::<Vec<Value>>()
            .into(),
        Json::Object(map) => dict(
            map.iter().map(|(key, value)| {
                let place = recorder.map_or_else(String::new, |_| below(pointer, key));
                (Value::from(key.as_str()), convert(value, &place, recorder))
            }),
            recorder.map(|recorder| (pointer.to_owned(), recorder.clone())),
        ),
    }
}

/// A dictionary that templates may change.
pub(crate) fn dictionary(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    dict(entries.into_iter(), None)
}

/// A copy whose dictionaries and lists are its own.
pub(crate) fn deep_copy(value: &Value) -> Value {
    match value.kind() {
        _ if value.is_tuple() => value.clone(),
        ValueKind::Map => match value.try_iter() {
            Ok(keys) => dictionary(keys.map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                (key, deep_copy(&item))
            })),
            Err(_) => value.clone(),
        },
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => match value.try_iter() {
            Ok(items) => items
                .map(|item| deep_copy(&item))
                .collect::<Vec<_>>()
                .into(),
            Err(_) => value.clone(),
        },
        _ => value.clone(),
    }
}

fn dict(
    entries: impl Iterator<Item = (Value, Value)>,
    origin: Option<(String, Arc<Recorder>)>,
) -> Value {
    let mut listed = Entries::default();
    for (key, value) in entries {
        match key.as_str() {
            Some(name) => listed.set(name, &key, value),
            None => listed.set(&key.to_string(), &key, value),
        }
    }
    Value::from_object(Dict {
        entries: RwLock::new(listed),
        origin,
    })
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
                map.insert(key.to_string(), to_json(&item)?);
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

/// Tests whether a value is a list: not a tuple, but also a sum or slice that the engine evaluates
/// only when it is read.
pub(crate) fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => !value.is_tuple(),
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::trace::{MinionData, PILLAR};
    use super::*;

    #[test]
    fn json_survives_and_keeps_its_order() {
        let json = json!({"z": 1, "a": [true, null, 1.5, "x"], "m": {"k": "halite-secret::a.b::"}});
        let value = from_json(&json);
        assert_eq!(
            serde_json::to_string(&to_json(&value).unwrap()).unwrap(),
            serde_json::to_string(&json).unwrap()
        );
        assert!(holds_secret(&value));
        assert_eq!(
            value.to_string(),
            "{'z': 1, 'a': [True, None, 1.5, 'x'], 'm': {'k': halite-secret::a.b::}}"
        );
    }

    #[test]
    fn accesses_are_recorded() {
        let recorder = Arc::new(Recorder::default());
        let pillar = json!({"a": {"b": {"c": 1}, "d": 2}, "nodes": {"x": {"ip": 1}}});
        let data = MinionData::new("web-1", &pillar, &json!({}));
        let pillar = recorded(data.at(PILLAR), PILLAR, &recorder);
        pillar
            .get_attr("a")
            .unwrap()
            .get_attr("b")
            .unwrap()
            .get_attr("c")
            .unwrap();
        assert!(pillar.get_attr("nothing").unwrap().is_undefined());
        let nodes = pillar.get_attr("nodes").unwrap();
        assert_eq!(nodes.try_iter().unwrap().count(), 1);
        assert_eq!(recorder.take().pillar(&data), ["a.b.c", "nodes"]);
        assert!(recorder.take().pillar(&data).is_empty());
    }
}
