//! Generates the references of the documents and events (docs/reference/output.md, events.md) from
//! the types.

mod events;

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::*;

const HEAD: &str = "# Output\n\n\
    Generated from the types in `lib/api/src`; a test compares them. This is what `ctl -o json` and `-o yaml` print, and what \
    the master sends. [Events](events.md) have their own page.\n\n\
    - Each document is an object with `apiVersion`, which is `halite/v1`, and `kind`. Within one version, fields and words are \
    only added. `CHANGELOG.md` has the changes.\n\
    - A field without a value is left out. Ignore fields and words that you do not know.\n\
    - Times are RFC 3339 in UTC with milliseconds. Ids of jobs and runs have 20 digits.\n\
    - A table names the fields of an object; a heading such as `nodes[]` is about each element of a list, `minions.NAME` about \
    each value of a mapping.\n";

/// The JSON Schema of a type, without references.
fn schema<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A description on one line.
fn description(schema: &Value) -> String {
    text(schema, "description")
        .replace('\n', " ")
        .replace('|', "\\|")
}

/// The kinds of value that a schema allows, as text.
fn words(schema: &Value) -> String {
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let kind = kinds.iter().find(|kind| **kind != "null");
    let below = |key: &str| schema.get(key).map(words).unwrap_or_default();
    let is_map = schema
        .get("additionalProperties")
        .is_some_and(Value::is_object);
    match kind.copied() {
        Some("object") if is_map => format!("mapping of name to {}", below("additionalProperties")),
        Some("object") => "object".to_owned(),
        Some("array") => format!("list of {}", below("items")),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("number") => "number".to_owned(),
        Some("string") if text(schema, "format") == "date-time" => "time".to_owned(),
        Some("string") => "text".to_owned(),
        _ => match schema.get("anyOf").and_then(Value::as_array) {
            Some(options) => options.first().map(words).unwrap_or_default(),
            None => "any value".to_owned(),
        },
    }
}

/// The objects with known fields that a value is or contains, with their paths.
fn objects<'a>(schema: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    if schema.get("properties").is_some() {
        found.push((path.to_owned(), schema));
    }
    if let Some(items) = schema.get("items") {
        found.extend(objects(items, &format!("{path}[]")));
    }
    if let Some(values) = schema.get("additionalProperties") {
        found.extend(objects(values, &format!("{path}.NAME")));
    }
    for option in schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        found.extend(objects(option, path));
    }
    found
}

/// Writes the table of an object's fields, then the sections below it.
fn table(schema: &Value, path: &str, out: &mut String) {
    out.push_str("\n| field | value | meaning |\n|---|---|---|\n");
    let mut below = Vec::new();
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} |",
            words(field),
            description(field)
        );
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        below.extend(objects(field, &path));
    }
    for (path, schema) in below {
        // `health` of the status is a document of its own.
        let _ = write!(out, "\n#### `{path}`\n");
        table(schema, &path, out);
    }
}

/// Writes the section of a type. The example is a real one, which the tests of the contract have
/// written.
fn section<T: JsonSchema>(name: &str, example: Option<&str>, out: &mut String) {
    let schema = schema::<T>();
    let _ = write!(out, "\n### {name}\n\n{}\n", text(&schema, "description"));
    table(&schema, "", out);
    let Some(example) = example else {
        return;
    };
    let example = example_text(example);
    let _ = write!(out, "\nExample:\n\n```json\n{}\n```\n", example.trim_end());
}

/// A stored document of the contract.
fn example_text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("contract/{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn reference() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\n## Documents\n");
    let o = &mut out;
    section::<ClusterStatus>("ClusterStatus", Some("status"), o);
    section::<BootstrapPlan>("BootstrapPlan", Some("bootstrap-plan"), o);
    section::<NewNodes>("NewNodes", Some("new-nodes"), o);
    section::<NodeList>("NodeList", Some("nodes"), o);
    section::<NodeStatus>("NodeStatus", Some("node"), o);
    section::<Health>("Health", Some("health"), o);
    section::<CertificateList>("CertificateList", Some("certificates"), o);
    section::<CaRequest>("CaRequest", Some("ca-request"), o);
    section::<PreparedCa>("PreparedCa", Some("prepared-ca"), o);
    section::<EtcdStatus>("EtcdStatus", Some("etcd"), o);
    section::<MasterList>("MasterList", Some("masters"), o);
    section::<JobOutcome>("JobOutcome", Some("job-outcome"), o);
    section::<RunOutcome>("RunOutcome", Some("run-outcome"), o);
    section::<RunOutcomes>("RunOutcomes", Some("run-outcomes"), o);
    section::<JobList>("JobList", Some("jobs"), o);
    section::<Job>("Job", Some("job"), o);
    section::<JobCancellation>("JobCancellation", Some("job-cancellation"), o);
    section::<HostJournal>("HostJournal", Some("journal"), o);
    section::<RunList>("RunList", Some("runs"), o);
    section::<Run>("Run", Some("run"), o);
    section::<RunCancellation>("RunCancellation", Some("run-cancellation"), o);
    section::<KeyList>("KeyList", Some("keys"), o);
    section::<KeyChange>("KeyChange", Some("key-change"), o);
    section::<NewToken>("NewToken", Some("new-token"), o);
    section::<TokenList>("TokenList", Some("tokens"), o);
    section::<TokenRevocation>("TokenRevocation", Some("token-revocation"), o);
    section::<NewOperator>("NewOperator", Some("new-operator"), o);
    section::<OperatorList>("OperatorList", Some("operators"), o);
    section::<OperatorRevocation>("OperatorRevocation", Some("operator-revocation"), o);
    section::<KubeconfigFile>("KubeconfigFile", Some("kubeconfig-file"), o);
    section::<KubeconfigList>("KubeconfigList", Some("kubeconfigs"), o);
    section::<AuditLog>("AuditLog", Some("audit"), o);
    section::<SinkList>("SinkList", Some("sinks"), o);
    section::<SinkTests>("SinkTests", Some("sink-tests"), o);
    section::<Notification>("Notification", Some("notification"), o);
    section::<MinionPillar>("MinionPillar", Some("pillar"), o);
    section::<Grains>("Grains", Some("grains"), o);
    section::<TopStates>("TopStates", Some("top"), o);
    section::<RenderedFiles>("RenderedFiles", Some("files"), o);
    section::<RenderedLow>("RenderedLow", Some("low"), o);
    section::<UpgradePlan>("UpgradePlan", Some("upgrade"), o);
    section::<UpgradeStatus>("UpgradeStatus", Some("upgrade-status"), o);
    section::<LeavingHost>("LeavingHost", Some("leaving"), o);
    section::<MasterMove>("MasterMove", Some("master-move"), o);
    section::<DeclarationCheck>("DeclarationCheck", Some("declaration-check"), o);
    section::<DisplayedDeclaration>("DisplayedDeclaration", Some("displayed-declaration"), o);
    section::<LocalOutcome>("LocalOutcome", Some("local-outcome"), o);
    section::<SupportArchive>("SupportArchive", Some("support-archive"), o);
    section::<SecretList>("SecretList", Some("secrets"), o);
    section::<SecretRecipients>("SecretRecipients", Some("secret-recipients"), o);
    section::<BundleList>("BundleList", Some("bundles"), o);
    section::<AddedBundle>("AddedBundle", Some("added-bundle"), o);
    section::<CopiedBundle>("CopiedBundle", Some("copied-bundle"), o);
    section::<RemovedBundle>("RemovedBundle", Some("removed-bundle"), o);
    section::<UsedBundle>("UsedBundle", Some("used-bundle"), o);
    section::<BundleDiff>("BundleDiff", Some("bundle-diff"), o);
    section::<RefusedBundle>("RefusedBundle", Some("refused-bundle"), o);
    section::<BundleContent>("BundleContent", Some("bundle-content"), o);
    section::<VerifiedBundle>("VerifiedBundle", Some("verified-bundle"), o);
    section::<PackedBundle>("PackedBundle", Some("packed-bundle"), o);
    section::<ExportedDelta>("ExportedDelta", Some("exported-delta"), o);
    section::<NewSigningKey>("NewSigningKey", Some("new-signing-key"), o);
    section::<ImageList>("ImageList", Some("images"), o);
    section::<BackupList>("BackupList", Some("backups"), o);
    section::<MadeBackup>("MadeBackup", Some("made-backup"), o);
    section::<VerifiedBackup>("VerifiedBackup", Some("verified-backup"), o);
    section::<CopiedBackup>("CopiedBackup", Some("copied-backup"), o);
    section::<RegistryBackupList>("RegistryBackupList", Some("registry-backups"), o);
    section::<MadeRegistryBackup>("MadeRegistryBackup", Some("made-registry-backup"), o);
    section::<VerifiedRegistryBackup>(
        "VerifiedRegistryBackup",
        Some("verified-registry-backup"),
        o,
    );
    section::<RestoredRegistry>("RestoredRegistry", Some("restored-registry"), o);
    section::<Versions>("Versions", Some("versions"), o);
    section::<ContextList>("ContextList", Some("contexts"), o);
    out
}

#[test]
fn the_reference_in_docs_is_current() {
    halite_golden::check_reference("output.md", &reference());
}
