//! Texts that look like the name of an image but are not, each with its reason.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::Reader;

/// The key of these texts in a recipe.
pub const KEY: &str = "not-images";

/// Reads the map of text to reason, which is optional.
pub fn read(reader: &mut Reader, value: Option<&Value>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (index, item) in value
        .map_or(&[][..], |value| reader.list(KEY, Some(value)))
        .iter()
        .enumerate()
    {
        let path = format!("{KEY}[{index}]");
        let Some(map) = reader.map(&path, Some(item), &["text", "why"]) else {
            continue;
        };
        let text = reader.text(&format!("{path}.text"), map.get("text"));
        let why = reader.text(&format!("{path}.why"), map.get("why"));
        if found.insert(text.clone(), why).is_some() && !text.is_empty() {
            reader.problem(&path, &format!("{text:?} is there twice"));
        }
    }
    found
}
