//! Merges of dictionaries as Salt's `dictupdate` makes them, in place where Salt's are.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::error::invalid;
use super::lists::{List, is_list, list};
use super::values::{Dict, deep_copy, dictionary, has_pillar_keys};

/// Deepest nesting of values that are merged.
const MAX_DEPTH: usize = 100;

/// The form of a merge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Dictionaries inside are merged too; otherwise they are replaced.
    pub recursive: bool,
    /// Lists are joined, without duplicates; otherwise they are replaced.
    pub lists: bool,
}

impl Form {
    /// Salt's usual form: dictionaries deeply, everything else replaced.
    pub(super) const DEEP: Self = Self {
        recursive: true,
        lists: false,
    };
}

/// A copy of `base` into which `over` is merged.
///
/// # Errors
/// One of them is not a dictionary.
pub(super) fn merged(base: &Value, over: &Value, form: Form) -> Result<Value, Error> {
    let copy = deep_copy(base);
    into(&copy, over, form)?;
    Ok(copy)
}

/// Merges `over` into the dictionary `base` itself: every name of it sees the change.
///
/// # Errors
/// One of them is not a dictionary; `base` cannot be changed; it would contain itself.
pub(super) fn into(base: &Value, over: &Value, form: Form) -> Result<(), Error> {
    merge(base, over, form, 0)
}

fn merge(base: &Value, over: &Value, form: Form, depth: usize) -> Result<(), Error> {
    if base.kind() != ValueKind::Map || over.kind() != ValueKind::Map {
        return Err(invalid(format!(
            "only dictionaries can be merged, not {} and {}",
            base.kind(),
            over.kind()
        )));
    }
    if depth > MAX_DEPTH {
        return Err(invalid(format!(
            "more than {MAX_DEPTH} dictionaries in one another"
        )));
    }
    share_keys(base, over);
    // As many keys as there are now: `over` may be a part of `base`.
    let keys: Vec<Value> = over.try_iter()?.collect();
    for key in keys {
        let new = over.get_item(&key)?;
        let old = base.get_item(&key)?;
        if form.recursive && old.kind() == ValueKind::Map && new.kind() == ValueKind::Map {
            merge(&old, &new, form, depth + 1)?;
        } else if form.recursive && form.lists && is_list(&old) && is_list(&new) {
            set(base, &key, joined(&old, &new)?)?;
        } else {
            set(base, &key, new)?;
        }
    }
    Ok(())
}

/// Lets `base` take 80 and `'80'` as one key if `over` is of the pillar, which does not say whether
/// a key was in quotes.
pub(super) fn share_keys(base: &Value, over: &Value) {
    if has_pillar_keys(over)
        && let Ok(dict) = changeable(base)
    {
        dict.take_pillar_keys();
    }
}

/// Sets a key of a dictionary in place.
pub(super) fn set(base: &Value, key: &Value, value: Value) -> Result<(), Error> {
    let dict = changeable(base)?;
    if holds(&value, base) {
        return Err(invalid("a dictionary cannot contain itself"));
    }
    dict.set(key, value);
    Ok(())
}

/// The dictionary of a value that a template may change.
pub(super) fn changeable(base: &Value) -> Result<&Dict, Error> {
    let remedy = "use the result instead: `slsutil.merge`, or `defaults.merge` with \
                  `in_place=False`";
    match base.downcast_object_ref::<Dict>() {
        Some(dict) if dict.is_data() => Err(invalid(format!(
            "the pillar and the grains cannot be changed in a template; {remedy}, or \
             `defaults.deepcopy` first"
        ))),
        Some(dict) => Ok(dict),
        None => Err(invalid(format!(
            "this dictionary cannot be changed in place; {remedy}"
        ))),
    }
}

/// Both lists joined, without duplicates.
pub(super) fn joined(one: &Value, two: &Value) -> Result<Value, Error> {
    let mut items: Vec<Value> = one.try_iter()?.map(|item| deep_copy(&item)).collect();
    for item in two.try_iter()? {
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Ok(list(items))
}

/// Tests whether a value is, or holds, this very dictionary or list.
pub(super) fn holds(value: &Value, wanted: &Value) -> bool {
    contains(value, wanted, 0)
}

fn contains(value: &Value, wanted: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    let within = |items: Vec<Value>| items.iter().any(|item| contains(item, wanted, depth + 1));
    if let Some(dict) = value.downcast_object_ref::<Dict>() {
        let itself = wanted.downcast_object_ref::<Dict>();
        return itself.is_some_and(|wanted| std::ptr::eq(dict, wanted)) || within(dict.values());
    }
    if let Some(list) = value.downcast_object_ref::<List>() {
        let itself = wanted.downcast_object_ref::<List>();
        return itself.is_some_and(|wanted| std::ptr::eq(list, wanted)) || within(list.items());
    }
    match value.kind() {
        ValueKind::Seq => value
            .try_iter()
            .is_ok_and(|mut items| items.any(|item| contains(&item, wanted, depth + 1))),
        ValueKind::Map => value.try_iter().is_ok_and(|mut keys| {
            keys.any(|key| {
                value
                    .get_item(&key)
                    .is_ok_and(|item| contains(&item, wanted, depth + 1))
            })
        }),
        _ => false,
    }
}

/// Merges by one of the strategies of `slsutil.merge`.
///
/// # Errors
/// The strategy does not exist.
pub(super) fn by_strategy(
    base: &Value,
    over: &Value,
    strategy: &str,
    lists: bool,
) -> Result<Value, Error> {
    const STRATEGIES: [&str; 5] = ["smart", "recurse", "none", "list", "overwrite"];
    let form = Form {
        lists,
        ..Form::DEEP
    };
    match strategy {
        "smart" | "recurse" => merged(base, over, form),
        "none" => merged(base, over, Form::DEEP),
        "list" => {
            let mut entries = Vec::new();
            let copy = (has_pillar_keys(base) && !has_pillar_keys(over)).then(|| deep_copy(over));
            let over = copy.as_ref().unwrap_or(over);
            share_keys(over, base);
            for key in base.try_iter()? {
                let (old, new) = (base.get_item(&key)?, over.get_item(&key)?);
                let value = if new.is_undefined() {
                    old
                } else {
                    list([old, new])
                };
                entries.push((key, value));
            }
            let both = dictionary(entries);
            share_keys(&both, over);
            Ok(both)
        }
        "overwrite" => {
            share_keys(base, over);
            let keys: Vec<Value> = over.try_iter()?.collect();
            for key in keys {
                if !base.get_item(&key)?.is_undefined() {
                    set(base, &key, over.get_item(&key)?)?;
                }
            }
            merged(base, over, form)
        }
        _ => {
            let hint = halite_document::did_you_mean(strategy, STRATEGIES).map_or_else(
                || format!("there are {}", STRATEGIES.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            Err(invalid(format!(
                "there is no merge strategy `{strategy}`: {hint}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::trace::Recorder;
    use super::super::values::recorded;
    use super::*;

    #[test]
    fn a_number_and_its_text_are_one_key_if_one_is_of_the_pillar() {
        let recorder = Arc::new(Recorder::default());
        let pillar = recorded(&json!({"80": "pillar"}), "/pillar/custom", &recorder);
        for key in [Value::from(80), Value::from("80")] {
            let plain = dictionary([(key.clone(), Value::from("plain"))]);
            for strategy in ["recurse", "list", "overwrite"] {
                let plain = deep_copy(&plain);
                let merged = by_strategy(&plain, &pillar, strategy, false).unwrap();
                assert_eq!(merged.len(), Some(1), "{merged}");
                for key in [Value::from(80), Value::from("80")] {
                    let value = merged.get_item(&key).unwrap().to_string();
                    assert!(value.contains("pillar"), "{merged}");
                }
            }
            let merged = merged(&pillar, &plain, Form::DEEP).unwrap();
            assert_eq!(merged.to_string(), "{80: 'plain'}");
            let listed = by_strategy(&pillar, &plain, "list", false).unwrap();
            assert_eq!(listed.to_string(), "{80: ['pillar', 'plain']}");
        }
    }
}
