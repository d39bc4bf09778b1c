//! Generates the references of the documents (docs/reference/cluster.md, node.md) from the schemas.

use std::collections::BTreeSet;

use halite_document::schema::DocumentReference;
use halite_golden::check_reference;
use serde_json::Value;

use crate::load::{Text, Texts, load};
use crate::validate::Context;
use crate::{formats, schema};

/// Formats in words, for the column of values.
const FORMATS: &[(&str, &str)] = &[
    ("absolute-path", "absolute path"),
    ("age-recipient", "public key of age"),
    ("auto", "`auto`"),
    ("batch", "whole number or percentage"),
    ("bundle-version", "version of a bundle"),
    ("certificate-name", "DNS name or address"),
    ("certificates-name", "name"),
    ("day-of-week", "`Mon` … `Sun`, `daily`, `never`"),
    ("dns-subdomain", "name (RFC 1123)"),
    ("etcd-endpoint", "https URL with a port"),
    ("etcd-id", "hexadecimal number"),
    ("feature-gate", "feature gate"),
    ("flag-name", "flag"),
    ("header-name", "name of a header"),
    ("interval", "duration"),
    ("ipv4-address", "IPv4 address"),
    ("ipv4-network", "IPv4 network"),
    ("kubernetes-version", "version"),
    ("label-key", "label key"),
    ("label-value", "label value"),
    ("module-name", "name of a module"),
    ("no-proxy", "name, address or network"),
    ("package-name", "name of a package"),
    ("percent", "percentage from `1%` to `99%`"),
    ("registry-host", "HOST or HOST:PORT"),
    ("secret-name", "name of a secret"),
    ("sink-name", "name of a sink"),
    ("sysctl-key", "kernel parameter"),
    ("time-of-day", "time of day"),
    ("time-server", "DNS name or address"),
    ("times-of-day", "times of day"),
    ("user-name", "name of a user"),
    ("weekly", "time of the week or day, `never`"),
];

const CLUSTER_EXAMPLES: &str = include_str!("reference_tests/cluster_examples.yaml");
const NODE_EXAMPLES: &str = include_str!("reference_tests/node_examples.yaml");
/// The document of the first host, without which no other node can be declared.
const FIRST_HOST: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-1}\n\
    roles: [bootstrap, registry, etcd, control-plane]\naddress: 10.0.0.11\n";
/// The documents' formats of numbers, which have no words.
const NUMBERS: [&str; 3] = ["uint8", "uint16", "uint32"];

/// The examples of a file, by the path of their section.
fn examples(file: &str) -> Vec<(&str, &str)> {
    let parts = file.split("--- #").skip(1);
    parts
        .map(|part| part.split_once('\n').unwrap())
        .map(|(path, example)| (path.trim(), example))
        .collect()
}

fn check(page: &str, head: &str, schema: &Value, file: &str) {
    let reference = DocumentReference {
        formats: FORMATS,
        examples: &examples(file),
    };
    let text = reference.markdown(schema);
    for (path, example) in examples(file) {
        assert!(text.contains(example), "{page} has no section {path:?}");
    }
    check_reference(page, &format!("{head}{text}"));
}

#[test]
fn the_references_in_docs_are_current() {
    check(
        "cluster.md",
        include_str!("reference_tests/cluster_head.txt"),
        schema::cluster(),
        CLUSTER_EXAMPLES,
    );
    check(
        "node.md",
        include_str!("reference_tests/node_head.txt"),
        schema::node(),
        NODE_EXAMPLES,
    );
}

/// The first part of each section's path: mappings with fields at the top of a document.
fn sections(schema: &Value) -> BTreeSet<&str> {
    let fields = schema["properties"].as_object().unwrap();
    let is_section = |field: &Value| {
        [field, &field["items"], &field["additionalProperties"]]
            .iter()
            .any(|value| value["properties"].is_object())
    };
    let found = fields.iter().filter(|(_, field)| is_section(field));
    found.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_section_has_an_example() {
    for (schema, file) in [
        (schema::cluster(), CLUSTER_EXAMPLES),
        (schema::node(), NODE_EXAMPLES),
    ] {
        let shown: BTreeSet<&str> = examples(file)
            .iter()
            .map(|(path, _)| path.split(['.', '[']).next().unwrap_or_default())
            .filter(|path| !path.is_empty())
            .collect();
        assert_eq!(shown, sections(schema));
    }
}

/// An example with real certificates and a key in place of `…`.
fn complete(example: &str) -> String {
    let certificate: String = include_str!("example-ca.pem")
        .lines()
        .filter(|line| !line.starts_with('-'))
        .map(|line| format!("      {line}\n"))
        .collect();
    example
        .replace(
            "CERTIFICATE-----\n      …\n",
            &format!("CERTIFICATE-----\n{certificate}"),
        )
        .replace("KEY-----\n      …\n", "KEY-----\n      bm9uZQ==\n")
}

/// A whole document, with an example in place of the fields that both have.
fn document(whole: &str, example: &str) -> String {
    let example = complete(example);
    let fields: BTreeSet<&str> = example
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(field, _)| field)
        .collect();
    let mut is_replaced = false;
    let mut text = String::new();
    for line in whole.lines() {
        if !line.starts_with(' ') {
            let field = line.split(':').next().unwrap_or_default();
            is_replaced = fields.contains(field);
        }
        if !is_replaced {
            text.push_str(&format!("{line}\n"));
        }
    }
    text + &example
}

#[test]
fn the_examples_are_valid() {
    let text = |file: &str, text: String| Text {
        file: file.to_owned(),
        text,
    };
    let (clusters, nodes) = (examples(CLUSTER_EXAMPLES), examples(NODE_EXAMPLES));
    let (cluster, node) = (clusters[0].1, nodes[0].1);
    let clusters = clusters.iter().map(|(path, example)| (path, *example, ""));
    let nodes = nodes.iter().map(|(path, example)| (path, "", *example));
    for (path, of_cluster, of_node) in clusters.chain(nodes) {
        let mut texts = Texts {
            cluster: text("cluster.yaml", document(cluster, of_cluster)),
            ..Texts::default()
        };
        // The nodes that an example of the cluster names do not exist.
        if !of_node.is_empty() {
            let of_node = document(node, of_node);
            texts.nodes = vec![
                text("nodes/cp-1.yaml", FIRST_HOST.to_owned()),
                text("nodes/worker-1.yaml", of_node),
            ];
        }
        if let Err(problems) = load(&texts, &Context::default()) {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            panic!("{path:?}: {}", problems.join("\n"));
        }
    }
}

/// The formats that a schema names.
fn named<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(format) if name == "format" => drop(found.insert(format)),
                    _ => named(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named(item, found)),
        _ => {}
    }
}

#[test]
fn every_format_has_words() {
    let mut found = BTreeSet::new();
    for schema in [schema::cluster(), schema::node()] {
        named(schema, &mut found);
    }
    found.retain(|format| !NUMBERS.contains(format));
    let worded: BTreeSet<&str> = FORMATS.iter().map(|(format, _)| *format).collect();
    assert_eq!(worded, found);
    // Each of them is also checked.
    for format in worded {
        assert!(formats::check(format, "\u{7}").is_err(), "{format}");
    }
}
