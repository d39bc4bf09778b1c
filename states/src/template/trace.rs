//! What a template looked up of the data that it was given, and whether it would find the same
//! again: then its text is the same, too.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use halite_secrets::reference;
use serde_json::{Map, Value as Json, json};

/// Where the pillar stands in the data.
pub(crate) const PILLAR: &str = "/pillar";
/// Where the grains stand in it.
pub(crate) const GRAINS: &str = "/grains";
/// Where stands what the minion is started with.
pub(crate) const OPTS: &str = "/opts";

/// Everything that templates are told of one minion.
#[derive(Debug, Default)]
pub(crate) struct World(Json);

impl World {
    pub(crate) fn new(minion: &str, pillar: &Json, grains: &Json) -> Self {
        Self(json!({"pillar": pillar, "grains": grains, "opts": {"id": minion, "saltenv": "base"}}))
    }

    /// What stands at a place; null where there is nothing.
    pub(crate) fn at(&self, pointer: &str) -> &Json {
        self.0.pointer(pointer).unwrap_or(&Json::Null)
    }
}

/// How something was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Look {
    /// It was looked up: whether it is there, and what it is unless it is a dictionary.
    Value,
    /// All of it was read (iterated, printed).
    Whole,
    /// How many entries it has.
    Length,
    /// Whether there is a secret in it.
    Secret,
}

/// Remembers what was looked at: places (RFC 6901), and how.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<BTreeSet<(String, Look)>>);

impl Recorder {
    pub(crate) fn note(&self, pointer: String, look: Look) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((pointer, look));
    }

    /// What was looked at since the last call.
    pub(crate) fn take(&self) -> Looks {
        Looks(std::mem::take(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

/// What was looked at.
#[derive(Debug, Default)]
pub(crate) struct Looks(BTreeSet<(String, Look)>);

impl Looks {
    /// The pillar paths that were read, dotted: leaves, and dictionaries that were read as a whole.
    pub(crate) fn pillar(&self, world: &World) -> Vec<String> {
        let below = |pointer: &str| {
            pointer
                .strip_prefix(PILLAR)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let read: Vec<(&str, Look)> = self
            .0
            .iter()
            .filter(|(_, look)| matches!(look, Look::Value | Look::Whole))
            .filter(|(pointer, _)| below(pointer) && world.0.pointer(pointer).is_some())
            .map(|(pointer, look)| (pointer.as_str(), *look))
            .collect();
        let passed_through = |pointer: &str| {
            read.iter().any(|(other, _)| {
                other
                    .strip_prefix(pointer)
                    .is_some_and(|rest| rest.starts_with('/'))
            })
        };
        let mut paths: Vec<String> = read
            .iter()
            .filter(|(pointer, look)| *look == Look::Whole || !passed_through(pointer))
            .map(|(pointer, _)| dotted(&pointer[PILLAR.len() + 1..]))
            .collect();
        paths.dedup();
        paths
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// What was looked at, and what was found: numbers that a [`Memory`] gives.
#[derive(Debug, Default)]
pub(crate) struct Trace(Vec<(usize, usize)>);

/// A look, and all that it ever showed.
#[derive(Debug)]
struct Shown {
    pointer: String,
    look: Look,
    values: Vec<Option<Json>>,
}

/// Everything that was ever looked at, and everything that was ever found there. Both are numbered,
/// so that a place is looked up once for each minion however many texts depend on it.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    looks: HashMap<(String, Look), usize>,
    shown: Vec<Shown>,
    /// Of each look what it shows in the present data, as far as somebody asked.
    now: Vec<Option<usize>>,
}

impl Memory {
    /// From now on there is other data.
    pub(crate) fn forget(&mut self) {
        self.now.fill(None);
    }

    /// The looks with what they show.
    pub(crate) fn trace(&mut self, looks: Looks, world: &World) -> Trace {
        let numbered = |look: (String, Look)| {
            let number = *self.looks.entry(look.clone()).or_insert_with(|| {
                let (pointer, look) = look;
                self.shown.push(Shown {
                    pointer,
                    look,
                    values: Vec::new(),
                });
                self.now.push(None);
                self.now.len() - 1
            });
            (number, self.found(number, world))
        };
        Trace(looks.0.into_iter().map(numbered).collect())
    }

    /// Whether all looks show what they showed then.
    pub(crate) fn holds(&mut self, trace: &Trace, world: &World) -> bool {
        trace
            .0
            .iter()
            .all(|(look, then)| self.found(*look, world) == *then)
    }

    /// What a look shows, by its number.
    fn found(&mut self, look: usize, world: &World) -> usize {
        if let Some(found) = self.now[look] {
            return found;
        }
        let Shown {
            pointer,
            look: how,
            values,
        } = &mut self.shown[look];
        let value = world.0.pointer(pointer);
        let same = |then: &Option<Json>| match (then, value) {
            (Some(then), Some(now)) => is_seen(then, now, *how),
            (then, now) => then.is_none() && now.is_none(),
        };
        let found = values.iter().position(same).unwrap_or_else(|| {
            values.push(value.map(|value| seen(value, *how)));
            values.len() - 1
        });
        self.now[look] = Some(found);
        found
    }
}

/// As much of a value as a look shows.
fn seen(value: &Json, look: Look) -> Json {
    match (look, value) {
        (Look::Value, Json::Object(_)) => Json::Object(Map::new()),
        (Look::Length, Json::Object(map)) => Json::from(map.len()),
        (Look::Secret, value) => Json::from(reference::is_in(value)),
        (_, value) => value.clone(),
    }
}

/// Whether a look at this value shows the same.
fn is_seen(then: &Json, now: &Json, look: Look) -> bool {
    match (look, now) {
        (Look::Value, Json::Object(_)) => then.is_object(),
        (Look::Length, Json::Object(map)) => then.as_u64() == u64::try_from(map.len()).ok(),
        (Look::Secret, now) => then.as_bool() == Some(reference::is_in(now)),
        (_, now) => alike(then, now),
    }
}

/// Equal, entries of dictionaries in the same order: templates see it.
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

    fn world(pillar: &Json) -> World {
        World::new("web-1", pillar, &json!({"id": "web-1"}))
    }

    /// Whether what was found in the one is found in the other.
    fn same(looks: &[(&str, Look)], one: &Json, other: &Json) -> bool {
        let recorder = Recorder::default();
        for (key, look) in looks {
            recorder.note(format!("{PILLAR}{key}"), *look);
        }
        let mut memory = Memory::default();
        let trace = memory.trace(recorder.take(), &world(one));
        memory.forget();
        memory.holds(&trace, &world(other))
    }

    #[test]
    fn each_look_sees_what_it_shows_and_no_more() {
        use Look::{Length, Secret, Value, Whole};
        let all = [Value, Whole, Length, Secret];
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
                &[Value, Whole, Length],
            ),
            (
                json!({"a/b": {"c~d": 1}}),
                json!({"a/b": {"c~d": 2}}),
                "/a~1b/c~0d",
                &[Value, Whole, Length],
            ),
            (
                json!({"d": {"k": 1}, "e": 1}),
                json!({"d": {"k": 1}, "e": 2}),
                "/d",
                &[],
            ),
        ] {
            for look in all {
                assert!(same(&[(key, look)], &one, &one), "{look:?} at {key}: {one}");
                let differs = !same(&[(key, look)], &one, &other);
                assert_eq!(
                    differs,
                    seen_by.contains(&look),
                    "{look:?} at {key}: {one} and {other}"
                );
            }
        }
    }

    #[test]
    fn places_of_odd_keys_are_told_apart() {
        assert_eq!(below(PILLAR, "a.b"), "/pillar/a.b");
        assert_eq!(below(PILLAR, "node-role/x~y"), "/pillar/node-role~1x~0y");
        assert_eq!(dotted("a/node-role~1x~0y"), "a.node-role/x~y");
    }
}
