//! Charts that a recipe names: `{name: web, source: charts/web, namespace: web, values: {replicas:
//! 2}}`. With `public-secrets: [web-defaults]` the objects of kind `Secret` with these names may
//! have contents: every client that reaches the bundle can read them.

use std::path::PathBuf;

use halite_durable::Digest;
use halite_fetch::ImageRef;
use serde_json::Value;

use super::document;
use super::program::WITH_DIGEST;
use super::reader::RecipeReader;

/// A chart, rendered when the bundle is built.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of the release and of the file `charts/NAME.yaml` in the bundle.
    pub name: String,
    /// Its source.
    pub source: ChartSource,
    /// Its version, if the recipe states it.
    pub version: Option<String>,
    /// The namespace of objects without a namespace.
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
    /// Values in a file.
    File(PathBuf),
    /// Values in the recipe.
    Inline(Value),
}

impl Chart {
    /// Returns `true` if it comes from another machine.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.source, ChartSource::Local(_))
    }

    /// The files that the recipe names for the chart at `path` in the document: the path in the
    /// document, and the file.
    pub(super) fn files(&self, path: &str) -> Vec<(String, PathBuf)> {
        let mut found = Vec::new();
        if let ChartSource::Local(source) = &self.source {
            let file = if source.is_dir() {
                source.join("Chart.yaml")
            } else {
                source.clone()
            };
            found.push((format!("{path}.source"), file));
        }
        for (index, values) in self.values.iter().enumerate() {
            if let Values::File(file) = values {
                found.push((format!("{path}.values[{index}]"), file.clone()));
            }
        }
        found
    }
}

/// Reads the charts of a recipe.
pub(super) fn read(reader: &mut RecipeReader, listed: Vec<document::Chart>) -> Vec<Chart> {
    let mut found: Vec<Chart> = Vec::new();
    for (index, chart) in listed.into_iter().enumerate() {
        let path = format!("charts[{index}]");
        let name = chart.name;
        if found.iter().any(|other| other.name == name) {
            let message = format!("{name:?} is listed twice");
            reader.problem(&format!("{path}.name"), message, "name each release once");
        }
        let sha256 = reader.digest(&format!("{path}.sha256"), chart.sha256.as_deref());
        let source = source(
            reader,
            &path,
            &chart.source,
            chart.version.as_deref(),
            sha256,
        );
        let values = match chart.values {
            None => Vec::new(),
            Some(document::Values::Inline(values)) => vec![Values::Inline(Value::Object(values))],
            Some(document::Values::File(file)) => vec![Values::File(reader.path(&file))],
            Some(document::Values::Files(files)) => files
                .iter()
                .map(|file| Values::File(reader.path(file)))
                .collect(),
        };
        if let Some(source) = source {
            found.push(Chart {
                name,
                source,
                version: chart.version,
                namespace: chart.namespace.unwrap_or_else(|| "default".to_owned()),
                values,
                public_secrets: chart.public_secrets,
                licence: chart.licence,
            });
        }
    }
    found
}

fn source(
    reader: &mut RecipeReader,
    chart: &str,
    text: &str,
    version: Option<&str>,
    sha256: Option<Digest>,
) -> Option<ChartSource> {
    let path = &format!("{chart}.source");
    if let Some(name) = text.strip_prefix("oci://") {
        let Some(version) = version else {
            reader.problem(
                path,
                "needs a `version` beside it",
                "a registry has many versions of a chart",
            );
            return None;
        };
        // A tag cannot contain a plus sign; Helm replaces it.
        let tagged = format!(
            "{}:{}",
            name.trim_end_matches('/'),
            version.replace('+', "_")
        );
        let reference =
            ImageRef::parse(&tagged).map_err(|why| reader.problem(path, why.to_string(), ""));
        return reference.ok().map(ChartSource::Registry);
    }
    if text.contains("://") {
        reader.address(path, text, sha256.is_some(), WITH_DIGEST);
        return Some(ChartSource::Archive(text.to_owned(), sha256));
    }
    if sha256.is_some() {
        reader.problem(
            &format!("{chart}.sha256"),
            "is only for an archive from an address, but this chart is on this machine",
            "remove it",
        );
    }
    Some(ChartSource::Local(reader.path(text)))
}
