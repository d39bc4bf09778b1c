//! Texts that look like the name of an image but are not, each with its reason.

use std::collections::BTreeMap;

use super::document::NotImage;
use super::reader::RecipeReader;

/// The key of these texts in a recipe.
pub const KEY: &str = "not-images";

/// Returns the reasons by text.
pub(super) fn read(reader: &mut RecipeReader, listed: Vec<NotImage>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (index, item) in listed.into_iter().enumerate() {
        let path = format!("{KEY}[{index}].text");
        if found.contains_key(&item.text) {
            reader.problem(
                &path,
                format!("{:?} is listed twice", item.text),
                "remove one",
            );
        }
        found.insert(item.text, item.why);
    }
    found
}
