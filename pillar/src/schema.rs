//! JSON Schema of the documents, generated from their types; the same schema drives the reader.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::host_list::HostList;
use crate::node::Node;

static CLUSTER: LazyLock<Value> = LazyLock::new(generate::<Cluster>);
static NODE: LazyLock<Value> = LazyLock::new(generate::<Node>);
static HOST_LIST: LazyLock<Value> = LazyLock::new(generate::<HostList>);

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

/// The schema of `kind: HostList` (JSON Schema, draft 2020-12).
#[must_use]
pub fn host_list() -> &'static Value {
    &HOST_LIST
}

#[cfg(test)]
mod tests {
    use halite_document::schema::flaws;

    use super::*;

    #[test]
    fn the_reader_knows_every_word_of_the_schemas() {
        for schema in [cluster(), node(), host_list()] {
            let flaws: Vec<String> = flaws(schema)
                .into_iter()
                .filter(|flaw| !flaw.starts_with("custom"))
                .collect();
            assert!(flaws.is_empty(), "{flaws:#?}");
        }
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
