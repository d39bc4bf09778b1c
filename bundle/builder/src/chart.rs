//! Charts, rendered by Helm when the bundle is built: the site gets plain objects, and all of their
//! images are known.
//!
//! `helm template` alone is not enough. Objects without a namespace get the release's namespace, as
//! with `helm install`, and the namespace itself comes first. Hooks for an installation become
//! ordinary objects. Hooks for deletion, rollback or tests are omitted, because applying them would
//! delete, roll back or test.

mod documents;
pub mod pinned;
mod scope;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use halite_durable::{digest, files};
use serde::Deserialize;

use crate::error::Error;
use crate::recipe::{Chart, Values};

/// Revision of the processing of Helm's output; increased with each change.
pub const REVISION: u32 = 1;

/// The annotation with a chart's licence (<https://artifacthub.io/docs/topics/annotations/helm/>).
const LICENCE: &str = "artifacthub.io/license";

/// The Helm program.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
}

/// The metadata of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its version.
    pub version: String,
    /// Its licence.
    pub licence: Option<String>,
}

impl Helm {
    /// The given program, or the `helm` on the `PATH`.
    pub fn new(program: Option<&Path>) -> Self {
        Self {
            program: program.map_or_else(|| PathBuf::from("helm"), Path::to_owned),
        }
    }

    /// Reads the metadata of a chart (a folder or an archive).
    pub fn about(&self, chart: &Path, name: &str) -> Result<About, Error> {
        #[derive(Deserialize)]
        struct Said {
            version: String,
            #[serde(default)]
            annotations: std::collections::BTreeMap<String, String>,
        }
        let what = format!("reading the chart {name}");
        let scratch = scratch()?;
        let text = self.run(scratch.path(), &what, |helm| {
            helm.args(["show", "chart"]).arg(chart)
        })?;
        let said: Said = serde_saphyr::from_str(&text)
            .map_err(|error| Error::content(chart.join("Chart.yaml"), error.to_string()))?;
        Ok(About {
            version: said.version,
            licence: said.annotations.get(LICENCE).cloned(),
        })
    }

    /// Renders the objects of a chart (a folder or an archive at `path`) for a version of
    /// Kubernetes, as one text.
    pub fn render(&self, path: &Path, chart: &Chart, kubernetes: &str) -> Result<String, Error> {
        let scratch = scratch()?;
        let mut values = Vec::new();
        for (index, given) in chart.values.iter().enumerate() {
            values.push(match given {
                Values::File(path) => path.clone(),
                Values::Inline(map) => {
                    let file = scratch.path().join(format!("values-{index}.yaml"));
                    files::write(&file, 0o600, map.to_string().as_bytes())?;
                    file
                }
            });
        }
        let what = format!("rendering the chart {}", chart.name);
        let text = self.run(scratch.path(), &what, |helm| {
            helm.args(["template", &chart.name]).arg(path);
            helm.args([
                "--include-crds",
                "--namespace",
                &chart.namespace,
                "--kube-version",
                kubernetes,
            ]);
            values
                .iter()
                .fold(helm, |helm, file| helm.arg("--values").arg(file))
        })?;
        documents::arrange(&text, chart).map_err(|problems| {
            let lines = problems
                .iter()
                .map(|problem| format!("chart {}: {problem}", chart.name));
            Error::recipe(lines)
        })
    }

    fn run(
        &self,
        scratch: &Path,
        what: &str,
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<String, Error> {
        let failed = |message: String| Error::Program {
            what: what.to_owned(),
            message,
        };
        let mut helm = Command::new(&self.program);
        arguments(&mut helm)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        // The user's configuration, plugins, repositories and cluster must not affect the result.
        for name in [
            "HELM_CACHE_HOME",
            "HELM_CONFIG_HOME",
            "HELM_DATA_HOME",
            "HELM_PLUGINS",
            "KUBECONFIG",
        ] {
            helm.env(name, scratch.join(name));
        }
        let output = helm.output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed(format!(
                "there is no program {}: charts are rendered by Helm 3 (https://helm.sh/docs/intro/install), which \
                 must be on the PATH or named by `helm:` in the recipe",
                self.program.display()
            )),
            _ => failed(format!("cannot start {}: {error}", self.program.display())),
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!(
                "helm ended with {}: {}",
                output.status,
                said.trim()
            )));
        }
        String::from_utf8(output.stdout).map_err(|error| failed(format!("helm: {error}")))
    }
}

fn scratch() -> Result<tempfile::TempDir, Error> {
    tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))
}

/// Refuses objects with secret contents: a bundle is carried around, and every client that reaches
/// the site can read it.
pub fn check_secrets(text: &str, chart: &Chart) -> Result<(), Error> {
    let problem = |(name, keys): (String, Vec<String>)| {
        format!(
            "chart {}: the Secret {name} has contents ({}), and every client that reaches the bundle can read it. Create it at the \
             site, from `secrets:` of the cluster document with your own state in custom/, and give the chart its name \
             in `values`, usually as `existingSecret`. If it contains nothing secret: `public-secrets: [{name}]` \
             beside the chart's name",
            chart.name,
            keys.join(", ")
        )
    };
    let problems: Vec<_> = documents::secrets(text, &chart.public_secrets)
        .into_iter()
        .map(problem)
        .collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::recipe(problems))
    }
}

/// The identity of a chart on this machine, a folder or an archive: the digest of its whole
/// content, and its size in bytes.
pub fn digest(path: &Path) -> Result<(String, u64), Error> {
    if !path.is_dir() {
        return Ok(files::digest(path)?);
    }
    let (mut list, mut size) = (String::new(), 0);
    for name in files::walk(path)? {
        let (sha256, bytes) = files::digest(&path.join(&name))?;
        list.push_str(&format!("{sha256} {name}\n"));
        size += bytes;
    }
    Ok((digest::sha256(list.as_bytes()), size))
}

/// The identity of a request for a chart from a source, apart from the chart's content: another
/// request may render other objects.
pub fn request(chart: &Chart, source: &str, kubernetes: &str) -> Result<String, Error> {
    let version = chart.version.as_deref().unwrap_or("any");
    let mut text = format!(
        "{REVISION}\n{source}\n{version}\n{}\n{kubernetes}\n",
        chart.namespace
    );
    for values in &chart.values {
        text.push_str(&match values {
            Values::Inline(map) => format!("{map}\n"),
            Values::File(path) => {
                let content = fs::read(path).map_err(Error::file("read", path))?;
                format!("{}\n", digest::sha256(&content))
            }
        });
    }
    Ok(digest::sha256(text.as_bytes()))
}

/// The path of a chart's objects in a bundle.
pub fn place(name: &str) -> String {
    format!("charts/{name}.yaml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_helm_it_is_said_what_to_do() {
        let helm = Helm::new(Some(Path::new("/nonexistent/helm")));
        let error = helm.about(Path::new("x"), "web").unwrap_err().to_string();
        let said = "reading the chart web: there is no program /nonexistent/helm: charts are rendered by Helm 3";
        assert!(
            error.starts_with(said) && error.contains("`helm:` in the recipe"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_is_identified_by_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("a", "1");
        let (one, size) = digest(dir.path()).unwrap();
        assert_eq!(size, 1);
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let (moved, _) = digest(dir.path()).unwrap();
        write("b", "2");
        let (changed, _) = digest(dir.path()).unwrap();
        assert!(one != moved && moved != changed && one != changed);
    }
}
