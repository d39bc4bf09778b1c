//! Charts that a recipe names: `{name: web, source: charts/web, namespace: web, values: {replicas:
//! 2}}`. With `public-secrets: [web-defaults]` the objects of kind `Secret` with these names may
//! have contents: every client that reaches the bundle can read them.

use std::path::PathBuf;

use halite_durable::Digest;
use halite_fetch::ImageRef;
use serde_json::Value;

use super::program::SAY;
use super::reader::Reader;

/// A chart, rendered when the bundle is built.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of the release, and of the file `charts/NAME.yaml` in the bundle.
    pub name: String,
    /// Its source.
    pub source: ChartSource,
    /// Its version, if the recipe states it.
    pub version: Option<String>,
    /// The namespace of objects that name none.
    pub namespace: String,
    /// The values for rendering; later ones take precedence.
    pub values: Vec<Values>,
    /// Names of its objects of kind `Secret` whose contents are public.
    pub public_secrets: Vec<String>,
    /// Its licence, if the chart states none.
    pub licence: Option<String>,
}

/// The source of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartSource {
    /// A folder or an archive on this machine.
    Local(PathBuf),
    /// The address of an archive, with its SHA-256 if the recipe states it.
    Archive(String, Option<Digest>),
    /// A chart in a registry of images, under the tag for its version.
    Registry(ImageRef),
}

/// Values for rendering.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// In a file.
    File(PathBuf),
    /// In the recipe.
    Inline(Value),
}

/// Helm's own limit for the name of a release.
const LONGEST: usize = 53;

const KEYS: &[&str] = &[
    "name",
    "source",
    "version",
    "sha256",
    "namespace",
    "values",
    "public-secrets",
    "licence",
];

impl Chart {
    /// Returns true if it comes from another machine.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.source, ChartSource::Local(_))
    }

    /// The files that the recipe names for it.
    pub(super) fn files(&self) -> Vec<(String, PathBuf)> {
        let mut found = Vec::new();
        if let ChartSource::Local(path) = &self.source {
            let file = if path.is_dir() {
                path.join("Chart.yaml")
            } else {
                path.clone()
            };
            found.push((format!("the chart {}", self.name), file));
        }
        for values in &self.values {
            if let Values::File(path) = values {
                found.push((
                    format!("the values of the chart {}", self.name),
                    path.clone(),
                ));
            }
        }
        found
    }
}

/// Reads the charts of a recipe.
pub(super) fn read(reader: &mut Reader, value: Option<&Value>) -> Vec<Chart> {
    let Some(value) = value else {
        return Vec::new();
    };
    let mut found: Vec<Chart> = Vec::new();
    for (index, item) in reader.list("charts", Some(value)).iter().enumerate() {
        let path = format!("charts[{index}]");
        let Some(map) = reader.map(&path, Some(item), KEYS) else {
            continue;
        };
        let given = |key: &str| map.get(key).map(|value| (format!("{path}.{key}"), value));
        let name = reader.text(&format!("{path}.name"), map.get("name"));
        if !name.is_empty() && !is_label(&name, LONGEST) {
            reader.problem(
                &format!("{path}.name"),
                "must be of a-z, 0-9 and -, 53 characters at most",
            );
        }
        if !name.is_empty() && found.iter().any(|chart| chart.name == name) {
            reader.problem(&format!("{path}.name"), &format!("{name:?} is there twice"));
        }
        let version = given("version").map(|(path, value)| reader.text(&path, Some(value)));
        let namespace = match given("namespace") {
            Some((path, value)) => reader.text(&path, Some(value)),
            None => "default".to_owned(),
        };
        if !namespace.is_empty() && !is_label(&namespace, 63) {
            reader.problem(&format!("{path}.namespace"), "is no name of a namespace");
        }
        let public_secrets = match given("public-secrets") {
            Some((path, value)) => reader.texts(&path, Some(value)),
            None => Vec::new(),
        };
        let licence = given("licence").map(|(path, value)| reader.text(&path, Some(value)));
        let text = reader.text(&format!("{path}.source"), map.get("source"));
        let sha256 = given("sha256").and_then(|(path, value)| {
            let text = reader.text(&path, Some(value));
            text.parse::<Digest>()
                .map_err(|why| reader.problem(&path, &why))
                .ok()
        });
        let values = values(reader, &format!("{path}.values"), map.get("values"));
        let source = source(
            reader,
            &format!("{path}.source"),
            &text,
            version.as_deref(),
            sha256,
        );
        if let Some(source) = source {
            found.push(Chart {
                name,
                source,
                version,
                namespace,
                values,
                public_secrets,
                licence,
            });
        }
    }
    found
}

fn source(
    reader: &mut Reader,
    path: &str,
    text: &str,
    version: Option<&str>,
    sha256: Option<Digest>,
) -> Option<ChartSource> {
    if text.is_empty() {
        return None;
    }
    if let Some(name) = text.strip_prefix("oci://") {
        let Some(version) = version else {
            reader.problem(path, "needs a `version` beside it: a registry has many");
            return None;
        };
        // A tag cannot contain a plus sign; Helm replaces it.
        let tagged = format!(
            "{}:{}",
            name.trim_end_matches('/'),
            version.replace('+', "_")
        );
        let reference = ImageRef::parse(&tagged).map_err(|why| reader.problem(path, &why));
        return reference.ok().map(ChartSource::Registry);
    }
    if text.contains("://") {
        reader.address(path, text, sha256.is_some(), SAY);
        return Some(ChartSource::Archive(text.to_owned(), sha256));
    }
    if sha256.is_some() {
        reader.problem(
            path,
            "is on this machine, and `sha256` is for an archive from an address",
        );
    }
    let text = Value::String(text.to_owned());
    Some(ChartSource::Local(reader.path(path, Some(&text))))
}

/// Reads a file, several files, or a map.
fn values(reader: &mut Reader, path: &str, value: Option<&Value>) -> Vec<Values> {
    match value {
        None => Vec::new(),
        Some(Value::Object(_)) => value.cloned().map(Values::Inline).into_iter().collect(),
        Some(Value::Array(files)) => {
            let file =
                |(index, file)| Values::File(reader.path(&format!("{path}[{index}]"), Some(file)));
            files.iter().enumerate().map(file).collect()
        }
        file => vec![Values::File(reader.path(path, file))],
    }
}

fn is_label(text: &str, longest: usize) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=longest).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
