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
    use halite_document::schema::questions::{SchemaQuestion, questions};

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

    #[test]
    fn the_questions_are_the_minimum_that_a_site_decides() {
        let paths = |schema| -> Vec<String> {
            let questions = questions(schema).into_iter();
            questions.map(|question| question.path).collect()
        };
        let expected = [
            "metadata.name",
            "networks.controlPlane.cidrs",
            "networks.workloadPlane.cidrs",
            "networks.pods",
            "networks.services",
            "apiServer.vip",
            "apiServer.keepalived",
            "kubernetes.version",
            "addons.metricsServer",
            "addons.localPath",
            "host.manageTime",
            "time.servers",
        ];
        assert_eq!(paths(cluster()), expected);
        assert_eq!(paths(node()), ["metadata.name", "roles", "address"]);
    }

    #[test]
    fn every_question_can_be_answered_on_a_line_and_depends_on_an_earlier_one() {
        for schema in [cluster(), node()] {
            let questions = questions(schema);
            for (at, question) in questions.iter().enumerate() {
                let schema = question.schema;
                let is_line = |schema: &Value| {
                    let text = schema["type"].to_string();
                    !schema["type"].is_null() && !text.contains("object")
                };
                let is_list = schema["type"].to_string().contains("array");
                assert!(
                    is_line(schema) && (!is_list || is_line(&schema["items"])),
                    "{}: {schema}",
                    question.path
                );
                let earlier = |path: &str| questions[..at].iter().any(|other| other.path == path);
                assert!(
                    question.condition().is_none_or(earlier),
                    "{}",
                    question.path
                );
                assert!(
                    question.condition().is_none() || !question.is_required,
                    "{}: it would be missing",
                    question.path
                );
            }
            let required: Vec<&SchemaQuestion> = questions
                .iter()
                .filter(|question| question.is_required)
                .collect();
            assert!(!required.is_empty());
        }
    }
}
