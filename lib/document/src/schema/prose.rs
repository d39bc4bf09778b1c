//! Descriptions in schemas: doc comments of types, with the line breaks of their source.

use serde_json::Value;

/// The description of a schema, one line for each paragraph; empty if it has none.
#[must_use]
pub fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let paragraphs = text.split("\n\n").map(|part| part.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// The first sentence of a description.
#[must_use]
pub fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ")
        .map_or(line, |(sentence, _)| &line[..=sentence.len()])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_is_paragraphs_of_sentences() {
        let schema = json!({"description": "Networks such as\n`10.0.0.0/24`. In\norder.\n\nMore."});
        let text = description(&schema);
        assert_eq!(text, "Networks such as `10.0.0.0/24`. In order.\nMore.");
        assert_eq!(first_sentence(&text), "Networks such as `10.0.0.0/24`.");
        assert_eq!(first_sentence("One."), "One.");
        assert_eq!(first_sentence(&description(&json!({}))), "");
    }
}
