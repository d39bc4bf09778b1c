//! Tests of the values of templates.

use std::sync::Arc;

use minijinja::Value;
use serde_json::json;

use super::trace::{MinionData, PILLAR, Recorder};
use super::values::{deep_copy, dictionary, from_json, holds_secret, recorded, to_json};

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
fn keys_of_the_operators_pillar_have_a_type() {
    let recorder = Arc::new(Recorder::default());
    let pillar = json!({"halite": {"nodes": {"42": 1}}, "custom": {
        "80": "a", "0x50": "b", "0644": "c", "1.3": 1, "1.30": 2, "no": 3, "x": [{"7": 1}]}});
    let value = recorded(&pillar, PILLAR, &recorder);
    assert_eq!(
        value.to_string(),
        "{'halite': {'nodes': {'42': 1}}, 'custom': {80: 'a', '0x50': 'b', '0644': 'c', \
         '1.3': 1, '1.30': 2, 'no': 3, 'x': [{7: 1}]}}"
    );
    let custom = value.get_attr("custom").unwrap();
    let copy = deep_copy(&custom);
    for key in [Value::from("80"), Value::from(80), Value::from(80.0)] {
        assert_eq!(custom.get_item(&key).unwrap(), Value::from("a"));
        assert_eq!(copy.get_item(&key).unwrap(), Value::from("a"));
    }
    assert!(
        dictionary([(Value::from(80), Value::from(1))])
            .get_item(&Value::from("80"))
            .unwrap()
            .is_undefined()
    );
}

#[test]
fn an_access_has_the_name_in_the_data() {
    let recorder = Arc::new(Recorder::default());
    let data = MinionData::new("web-1", &json!({"custom": {"80": "a"}}), &json!({}));
    let custom = recorded(data.at("/pillar/custom"), "/pillar/custom", &recorder);
    custom.get_item(&Value::from(80.0)).unwrap();
    assert_eq!(recorder.take().pillar(&data), ["custom.80"]);
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
