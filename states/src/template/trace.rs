//! Traces of templates: the data that a template accessed, with what it found. If all accesses find
//! the same again, the rendered text is the same too.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use halite_secrets::reference;
use serde_json::{Map, Value as Json, json};

/// Place of the pillar in the data.
pub(crate) const PILLAR: &str = "/pillar";
/// Place of the grains in the data.
pub(crate) const GRAINS: &str = "/grains";
/// Place of the minion's options (`id`, `saltenv`) in the data.
pub(crate) const OPTS: &str = "/opts";

/// The data of one minion that templates see.
#[derive(Debug, Default)]
pub(crate) struct MinionData(Json);

impl MinionData {
    pub(crate) fn new(minion: &str, pillar: &Json, grains: &Json) -> Self {
        Self(json!({"pillar": pillar, "grains": grains, "opts": {"id": minion, "saltenv": "base"}}))
    }

    /// The value at a place; null if there is none.
    pub(crate) fn at(&self, pointer: &str) -> &Json {
        self.0.pointer(pointer).unwrap_or(&Json::Null)
    }
}

/// The kind of an access: how much of a value the template saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Access {
    /// A lookup: whether the value exists, and the value itself unless it is a dictionary.
    Lookup,
    /// The whole value (iterated, printed).
    Whole,
    /// The number of its entries.
    Length,
    /// `true` if it contains a secret.
    Secret,
}

/// Records accesses: places (RFC 6901) with the kind of access.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<BTreeSet<(String, Access)>>);

impl Recorder {
    pub(crate) fn record(&self, pointer: String, access: Access) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((pointer, access));
    }

    /// The accesses since the last call.
    pub(crate) fn take(&self) -> Accesses {
        Accesses(std::mem::take(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

/// Recorded accesses.
#[derive(Debug, Default)]
pub(crate) struct Accesses(BTreeSet<(String, Access)>);

impl Accesses {
    /// The pillar paths that were read, dotted: leaves, and dictionaries read as a whole.
    pub(crate) fn pillar(&self, data: &MinionData) -> Vec<String> {
        let below = |pointer: &str| {
            pointer
                .strip_prefix(PILLAR)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let read: Vec<(&str, Access)> = self
            .0
            .iter()
            .filter(|(_, access)| matches!(access, Access::Lookup | Access::Whole))
            .filter(|(pointer, _)| below(pointer) && data.0.pointer(pointer).is_some())
            .map(|(pointer, access)| (pointer.as_str(), *access))
            .collect();
        // They are sorted, so the places below another one follow each other.
        let passed_through = |pointer: &str| {
            let below = format!("{pointer}/");
            let first = read.partition_point(|(other, _)| *other < below.as_str());
            read.get(first)
                .is_some_and(|(other, _)| other.starts_with(&below))
        };
        let mut paths: Vec<String> = read
            .iter()
            .filter(|(pointer, access)| *access == Access::Whole || !passed_through(pointer))
            .map(|(pointer, _)| dotted(&pointer[PILLAR.len() + 1..]))
            .collect();
        paths.dedup();
        paths
    }

    /// Tests whether a value that was read holds a secret.
    pub(crate) fn read_secret(&self, data: &MinionData) -> bool {
        self.0.iter().any(|(pointer, access)| {
            let value = data.0.pointer(pointer);
            value.is_some_and(|value| match access {
                Access::Lookup => !value.is_object() && reference::is_in(value),
                Access::Whole | Access::Secret => reference::is_in(value),
                Access::Length => false,
            })
        })
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Accesses with what they found, as numbers given by [`Observations`].
#[derive(Debug, Default)]
pub(crate) struct Trace(Vec<(usize, usize)>);

/// An access, and every value that it has found.
#[derive(Debug)]
struct Observed {
    pointer: String,
    access: Access,
    values: Vec<Option<Json>>,
}

/// All accesses of a compiler's life, and all values found by them. Both are numbered, so that a
/// place is looked up once for each minion however many texts depend on it.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    numbers: HashMap<(String, Access), usize>,
    observed: Vec<Observed>,
    /// For each access the number of the value in the present data, if already looked up.
    now: Vec<Option<usize>>,
}

impl Observations {
    /// Forgets the present data; the next lookups are of other data.
    pub(crate) fn reset(&mut self) {
        self.now.fill(None);
    }

    /// The trace of accesses in the present data.
    pub(crate) fn trace(&mut self, accesses: Accesses, data: &MinionData) -> Trace {
        let numbered = |access: (String, Access)| {
            let number = *self.numbers.entry(access.clone()).or_insert_with(|| {
                let (pointer, access) = access;
                self.observed.push(Observed {
                    pointer,
                    access,
                    values: Vec::new(),
                });
                self.now.push(None);
                self.now.len() - 1
            });
            (number, self.found(number, data))
        };
        Trace(accesses.0.into_iter().map(numbered).collect())
    }

    /// Tests whether all accesses of a trace find the same in the present data.
    pub(crate) fn holds(&mut self, trace: &Trace, data: &MinionData) -> bool {
        trace
            .0
            .iter()
            .all(|(access, then)| self.found(*access, data) == *then)
    }

    /// The number of the value that an access finds; the access is named by its number.
    fn found(&mut self, access: usize, data: &MinionData) -> usize {
        if let Some(found) = self.now[access] {
            return found;
        }
        let Observed {
            pointer,
            access: kind,
            values,
        } = &mut self.observed[access];
        let value = data.0.pointer(pointer);
        let same = |then: &Option<Json>| match (then, value) {
            (Some(then), Some(now)) => is_seen(then, now, *kind),
            (then, now) => then.is_none() && now.is_none(),
        };
        let found = values.iter().position(same).unwrap_or_else(|| {
            values.push(value.map(|value| seen(value, *kind)));
            values.len() - 1
        });
        self.now[access] = Some(found);
        found
    }
}

/// The part of a value that an access sees.
fn seen(value: &Json, access: Access) -> Json {
    match (access, value) {
        (Access::Lookup, Json::Object(_)) => Json::Object(Map::new()),
        (Access::Length, Json::Object(map)) => Json::from(map.len()),
        (Access::Secret, value) => Json::from(reference::is_in(value)),
        (_, value) => value.clone(),
    }
}

/// Tests whether an access to this value sees the same as then.
fn is_seen(then: &Json, now: &Json, access: Access) -> bool {
    match (access, now) {
        (Access::Lookup, Json::Object(_)) => then.is_object(),
        (Access::Length, Json::Object(map)) => then.as_u64() == u64::try_from(map.len()).ok(),
        (Access::Secret, now) => then.as_bool() == Some(reference::is_in(now)),
        (_, now) => alike(then, now),
    }
}

/// Tests whether values are equal, with dictionaries in the same order, because templates see the
/// order.
fn alike(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|((a, x), (b, y))| a == b && alike(x, y))
        }
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(x, y)| alike(x, y))
        }
        (one, other) => one == other,
    }
}

/// The place of an entry.
pub(crate) fn below(pointer: &str, key: &str) -> String {
    if key.contains(['~', '/']) {
        format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
    } else {
        format!("{pointer}/{key}")
    }
}

fn dotted(pointer: &str) -> String {
    pointer
        .replace('/', ".")
        .replace("~1", "/")
        .replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pillar: &Json) -> MinionData {
        MinionData::new("web-1", pillar, &json!({"id": "web-1"}))
    }

    /// Tests whether accesses find the same in both.
    fn same(accesses: &[(&str, Access)], one: &Json, other: &Json) -> bool {
        let recorder = Recorder::default();
        for (key, access) in accesses {
            recorder.record(format!("{PILLAR}{key}"), *access);
        }
        let mut observations = Observations::default();
        let trace = observations.trace(recorder.take(), &data(one));
        observations.reset();
        observations.holds(&trace, &data(other))
    }

    #[test]
    fn an_access_sees_its_part_of_a_value_and_no_more() {
        use Access::{Length, Lookup, Secret, Whole};
        let all = [Lookup, Whole, Length, Secret];
        let secret = json!({"d": {"k": "halite-secret::x::"}});
        for (one, other, key, seen_by) in [
            (
                json!({"d": {"k": 1}}),
                json!({"d": {"k": 2}}),
                "/d",
                &[Whole][..],
            ),
            (
                json!({"d": {"k": 1}}),
                json!({"d": {"k": 1, "l": 1}}),
                "/d",
                &[Whole, Length],
            ),
            (
                json!({"d": {"a": 1, "b": 2}}),
                json!({"d": {"b": 2, "a": 1}}),
                "/d",
                &[Whole],
            ),
            (json!({"d": {"k": "x"}}), secret, "/d", &[Whole, Secret]),
            (json!({"d": {"k": 1}}), json!({}), "/d", &all),
            (json!({}), json!({"d": null}), "/d", &all),
            (
                json!({"d": [1, {"k": 1}]}),
                json!({"d": [1, {"k": 2}]}),
                "/d",
                &[Lookup, Whole, Length],
            ),
            (
                json!({"a/b": {"c~d": 1}}),
                json!({"a/b": {"c~d": 2}}),
                "/a~1b/c~0d",
                &[Lookup, Whole, Length],
            ),
            (
                json!({"d": {"k": 1}, "e": 1}),
                json!({"d": {"k": 1}, "e": 2}),
                "/d",
                &[],
            ),
        ] {
            for access in all {
                assert!(
                    same(&[(key, access)], &one, &one),
                    "{access:?} at {key}: {one}"
                );
                let differs = !same(&[(key, access)], &one, &other);
                assert_eq!(
                    differs,
                    seen_by.contains(&access),
                    "{access:?} at {key}: {one} and {other}"
                );
            }
        }
    }

    #[test]
    fn places_of_keys_with_special_characters_differ() {
        assert_eq!(below(PILLAR, "a.b"), "/pillar/a.b");
        assert_eq!(below(PILLAR, "node-role/x~y"), "/pillar/node-role~1x~0y");
        assert_eq!(dotted("a/node-role~1x~0y"), "a.node-role/x~y");
    }
}
