//! The recipe in the form of its file. The schema, which drives the reader, and the reference
//! (`docs/reference/recipe.md`) are generated from these types.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use halite_names::BundleVersion;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::package::definition;

/// The JSON Schema of a recipe.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<Document>().to_value();
    refuse_empty_texts(&mut schema);
    schema
});

/// Requires that no text is empty: a key without a value must be omitted instead.
fn refuse_empty_texts(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    let is_text = match map.get("type") {
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(many)) => many.contains(&json!("string")),
        _ => false,
    };
    if is_text {
        map.insert("minLength".to_owned(), json!(1));
    }
    for word in ["items", "additionalProperties"] {
        map.get_mut(word).into_iter().for_each(refuse_empty_texts);
    }
    let properties = map.get_mut("properties").and_then(Value::as_object_mut);
    properties
        .into_iter()
        .flat_map(Map::values_mut)
        .for_each(refuse_empty_texts);
}

fn format_one(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "const": 1})
}

fn package_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "package-name"}})
}

fn rpm_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "rpm-name"}})
}

fn made_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": definition::NAMES})
}

fn programs(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "program-name"},
        "additionalProperties": Program::json_schema(generator),
    })
}

fn package_files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "package-path"},
        "additionalProperties": {"type": "string"},
    })
}

fn releases(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "codename"},
        "additionalProperties": DebianRelease::json_schema(generator),
    })
}

fn mirrors(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "array", "null"],
        "format": "mirror",
        "items": {"type": "string", "format": "mirror"},
    })
}

fn registries(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "host"},
        "additionalProperties": Registry::json_schema(generator),
    })
}

fn options(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "string"}},
    })
}

/// A recipe.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Document {
    /// The format of this file.
    #[serde(rename = "format")]
    #[schemars(schema_with = "format_one")]
    _format: u64,
    /// The version of the bundle, which the site sees: letters, digits, `.`, `-`, `_`, `+` and `~`.
    #[schemars(with = "String", extend("format" = "bundle-version"))]
    pub version: BundleVersion,
    /// The version of Kubernetes with its `v`, for example `v1.36.3`. A bundle has exactly one.
    pub kubernetes: String,
    /// The container images: those of the components that every cluster needs, and the site's own.
    pub images: Vec<ImageDocument>,
    /// The packages for the hosts.
    pub packages: Packages,
    /// The programs of Halite in the bundle: each a path or an address.
    pub binaries: Binaries,
    /// The folder of the state tree.
    pub states: String,
    /// The OpenPGP secret key that signs the package repositories; the first build makes it if the
    /// file does not exist. Keep it, and keep it secret.
    pub signing_key: String,
    /// The values that clusters made from the bundle may choose, by field of the cluster document,
    /// for example `{cni.plugin: [flannel]}`. A field that is not listed may have any value; the
    /// bundle must contain everything that any allowed value needs.
    #[serde(default)]
    #[schemars(schema_with = "options")]
    pub options: BTreeMap<String, Vec<String>>,
    /// Texts in the state tree that look like the name of an image but are not.
    #[serde(default)]
    pub not_images: Vec<NotImage>,
    /// The folder in which unchanged parts and downloads are stored between builds. Required if
    /// anything comes from another machine.
    pub cache: Option<String>,
    /// Charts, which Helm renders when they are recorded; the bundle contains the objects.
    #[serde(default)]
    pub charts: Vec<Chart>,
    /// The path of Helm; by default the one on the `PATH`.
    pub helm: Option<String>,
    /// The settings for reaching hosts, by `HOST` or `HOST:PORT`. A host without an entry is
    /// contacted directly, over TLS, without a login.
    #[serde(default)]
    #[schemars(schema_with = "registries")]
    pub registries: BTreeMap<String, Registry>,
    /// The proxy for all hosts, without a login; by default `HTTPS_PROXY` and `HTTP_PROXY` of the
    /// environment.
    pub proxy: Option<String>,
    /// The hosts that are reached without the proxy, as in `NO_PROXY`: `localhost,.example.org`.
    pub no_proxy: Option<String>,
    /// The folder of the documentation as HTML, with an `index.html`: `docs` of a release. The
    /// site serves it to its control-plane and `management` networks.
    pub docs: Option<String>,
    /// A folder with the texts of licences that packages and images do not contain:
    /// `go/MODULE@VERSION/FILE`, `cargo/NAME@VERSION/FILE`, `common/NAME`.
    pub licences: Option<String>,
    /// The file that lists the inputs, with digests, from which the programs of `binaries` were
    /// built.
    pub sbom_inputs: Option<String>,
}

/// A container image.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageDocument {
    /// The name under which the state tree finds it; the site's own images have no component.
    pub component: Option<String>,
    /// Its full name, as in pods: `REGISTRY/NAME:TAG`.
    pub reference: String,
    /// A local OCI layout that contains it; without it, the image is pulled for linux/amd64.
    pub layout: Option<String>,
    /// Its licence as an SPDX expression, if the image states none.
    pub licence: Option<String>,
}

/// The packages for the hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Packages {
    /// `/var/lib/dpkg/status` of a minimal host. Packages that it lacks for those below are added.
    pub base: String,
    /// Packages from the repositories, with everything that they need.
    #[schemars(schema_with = "package_names")]
    pub apt: Vec<String>,
    /// The apt repositories of those packages, in place of this machine's own sources.
    #[serde(default)]
    pub repositories: Vec<AptRepository>,
    /// Further Debian releases of hosts, by codename, for example `trixie`: the packages in `apt`
    /// come from their repositories, too.
    #[serde(default)]
    #[schemars(schema_with = "releases")]
    pub releases: BTreeMap<String, DebianRelease>,
    /// Packages that the build makes: Kubernetes', containerd, runc in place of the distribution's,
    /// and Halite's own.
    pub made: Vec<MadePackage>,
    /// Packages for RPM distributions, if the bundle is for them too.
    pub rpm: Option<Rpm>,
}

/// An apt repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AptRepository {
    /// Its address, above `dists`.
    pub url: String,
    /// The suite, or a path that ends with `/` for a repository without components.
    pub suite: String,
    /// Its components, for example `[main]`; empty for a suite that ends with `/`.
    #[serde(default)]
    pub components: Vec<String>,
    /// The OpenPGP public key that signs it, binary or armoured.
    pub key: String,
}

/// A further Debian release of hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DebianRelease {
    /// `/var/lib/dpkg/status` of a minimal host of this release.
    pub base: String,
    /// The apt repositories of this release.
    pub repositories: Vec<AptRepository>,
}

/// A package that the build makes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MadePackage {
    /// Its name.
    #[schemars(schema_with = "made_name")]
    pub package: String,
    /// Its version with the packaging revision, for example `1.36.3-1`.
    #[schemars(extend("format" = "package-version"))]
    pub version: String,
    /// Its programs by name: each a path, or an address.
    #[schemars(schema_with = "programs")]
    pub programs: BTreeMap<String, Program>,
    /// Other content: a file or a folder by its path in the package, for example
    /// `{usr/share: share/halite-ctl}`.
    #[serde(default)]
    #[schemars(schema_with = "package_files")]
    pub files: BTreeMap<String, String>,
}

/// Packages for RPM distributions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rpm {
    /// The list of the packages of a minimal host.
    pub base: String,
    /// The yum repositories; a package that several have is taken from the first one.
    #[serde(default)]
    pub repositories: Vec<YumRepository>,
    /// The packages to take, with everything that a minimal host lacks for them: `NAME` or
    /// `NAME=VERSION`.
    #[serde(default)]
    #[schemars(schema_with = "rpm_names")]
    pub names: Vec<String>,
}

/// A yum repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct YumRepository {
    /// Its name in messages.
    pub name: String,
    /// Its address, above `repodata`.
    pub url: String,
    /// The OpenPGP public keys that sign its packages and its index.
    pub key: String,
    /// `true` if its index must be signed (`repomd.xml.asc`); if `false`, only the signatures of
    /// the packages are checked.
    #[serde(default = "yes")]
    pub signed_index: bool,
}

const fn yes() -> bool {
    true
}

/// Halite's own programs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Binaries {
    /// The operator's command.
    pub ctl: Program,
    /// The master.
    pub halite_master: Program,
    /// The minion.
    pub halite_minion: Program,
}

/// A program: a path on this machine, or the address from which it is fetched.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Program {
    Path(String),
    Address(Address),
}

impl JsonSchema for Program {
    fn schema_name() -> Cow<'static, str> {
        "Program".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Address::json_schema(generator);
        schema.insert("type".to_owned(), json!(["string", "object"]));
        schema
    }
}

/// A file at an address.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Address {
    /// The address: https, or http with a `sha256`.
    pub url: String,
    /// The expected SHA-256 of the file; without it, the lock records one.
    pub sha256: Option<String>,
    /// The path of the program inside the archive, if the address is an archive's.
    #[serde(default)]
    #[schemars(extend("format" = "archive-member"))]
    pub member: Option<String>,
    /// Its licence as an SPDX expression.
    pub licence: Option<String>,
}

/// A chart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Chart {
    /// The name of the release, by which a cluster document requests it.
    #[schemars(extend("format" = "release-name"))]
    pub name: String,
    /// A folder or an archive on this machine, the address of an archive, or `oci://REGISTRY/NAME`.
    pub source: String,
    /// Its version; required for `oci://`.
    pub version: Option<String>,
    /// The expected SHA-256 of an archive at an address.
    pub sha256: Option<String>,
    /// The namespace of objects without a namespace; by default `default`.
    #[serde(default)]
    #[schemars(extend("format" = "namespace"))]
    pub namespace: Option<String>,
    /// Values for rendering: a mapping, a file, or a list of files; later ones take precedence.
    pub values: Option<Values>,
    /// Names of its Secrets whose contents are public: every client that reaches the bundle can
    /// read them.
    #[serde(default)]
    pub public_secrets: Vec<String>,
    /// Its licence as an SPDX expression, if the chart states none.
    pub licence: Option<String>,
}

/// The values of a chart.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Values {
    File(String),
    Files(Vec<String>),
    Inline(Map<String, Value>),
}

impl JsonSchema for Values {
    fn schema_name() -> Cow<'static, str> {
        "Values".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "array", "object"], "items": {"type": "string"}})
    }
}

/// The settings for reaching a host.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Registry {
    /// Mirrors that are tried first for its images, in order: `HOST`, `HOST:PORT`, or either with a
    /// path. One, or a list.
    #[serde(default)]
    #[schemars(schema_with = "mirrors")]
    pub mirror: Option<Mirrors>,
    /// The authority that signed its certificate (PEM), in addition to the system's.
    pub ca: Option<String>,
    /// `true` if it speaks HTTP without TLS; only a server on this machine may.
    #[serde(default)]
    pub plain: bool,
    /// A file with its login, mode 0600: docker's `config.json`, or a file in the form of `.netrc`.
    pub login: Option<String>,
}

/// One mirror, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Mirrors {
    One(String),
    Several(Vec<String>),
}

/// A text that is not the name of an image.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NotImage {
    /// The text as in the state tree.
    pub text: String,
    /// The reason, which the manifest and `ctl bundle needs` show.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use halite_document::schema::{DocumentReference, flaws};

    use super::*;

    #[test]
    fn the_reader_knows_every_word_of_the_schema() {
        assert_eq!(flaws(&SCHEMA), [""; 0]);
    }

    #[test]
    fn the_reference_in_docs_is_current() {
        let head = include_str!("reference_head.txt");
        let keys = DocumentReference::default().markdown(&SCHEMA);
        halite_golden::check_reference("recipe.md", &format!("{head}{keys}"));
    }
}
