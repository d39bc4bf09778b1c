//! JSON Schema of the documents, generated from their types; the same schema drives the reader.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::node::Node;

static CLUSTER: LazyLock<Value> = LazyLock::new(generate::<Cluster>);
static NODE: LazyLock<Value> = LazyLock::new(generate::<Node>);

fn generate<T: schemars::JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// The schema of `kind: Cluster` (JSON Schema, draft 2020-12).
#[must_use]
pub fn cluster() -> &'static Value {
    &CLUSTER
}

/// The schema of `kind: Node` (JSON Schema, draft 2020-12).
#[must_use]
pub fn node() -> &'static Value {
    &NODE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keywords that the reader implements; it would ignore any other.
    const KNOWN: [&str; 18] = [
        "$schema",
        "title",
        "description",
        "default",
        "type",
        "format",
        "const",
        "enum",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "items",
        "minItems",
        "minimum",
        "maximum",
        "examples",
        "writeOnly",
    ];

    fn words(schema: &Value, path: &str) {
        let Some(map) = schema.as_object() else {
            return;
        };
        for (word, value) in map {
            assert!(
                KNOWN.contains(&word.as_str()),
                "{path}: the reader does not know {word:?}"
            );
            match word.as_str() {
                "properties" => {
                    for (key, below) in value.as_object().into_iter().flatten() {
                        assert!(
                            below.get("description").is_some() || path.contains("custom"),
                            "{path}.{key}: undocumented"
                        );
                        words(below, &format!("{path}.{key}"));
                    }
                }
                "additionalProperties" | "items" | "propertyNames" => {
                    words(value, &format!("{path}.{word}"))
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_reader_knows_every_word_of_the_schemas() {
        words(cluster(), "cluster");
        words(node(), "node");
    }

    #[test]
    fn unknown_keys_are_refused_everywhere_but_in_free_mappings() {
        assert_eq!(cluster()["additionalProperties"], false);
        assert_eq!(
            cluster()["properties"]["networks"]["additionalProperties"],
            false
        );
        assert_eq!(
            cluster()["required"],
            serde_json::json!(["apiVersion", "kind", "metadata", "networks", "kubernetes"])
        );
    }
}
