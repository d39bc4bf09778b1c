//! `ctl bundle init`: writes an initial recipe, for a machine with internet.

use std::path::{Path, PathBuf};

use halite_durable::files;

use crate::error::Error;

/// Name of the new recipe.
const FILE: &str = "recipe.yaml";

/// The versions that belong to a minor version of Kubernetes, according to its kubeadm
/// (`cmd/kubeadm/app/constants/constants.go`).
#[derive(Debug)]
pub struct Release {
    /// The minor version: `1.36`.
    pub minor: &'static str,
    /// The tag of etcd's image.
    pub etcd: &'static str,
    /// The tag of CoreDNS' image.
    pub coredns: &'static str,
    /// The tag of the pause image.
    pub pause: &'static str,
}

/// Every minor version that this program knows.
pub const RELEASES: &[Release] = &[
    Release {
        minor: "1.35",
        etcd: "3.6.6-0",
        coredns: "v1.13.1",
        pause: "3.10.1",
    },
    Release {
        minor: "1.36",
        etcd: "3.6.8-0",
        coredns: "v1.14.2",
        pause: "3.10.2",
    },
];

impl Release {
    /// Returns the release to which a version of Kubernetes belongs: `v1.36.3`.
    #[must_use]
    pub fn of(kubernetes: &str) -> Option<&'static Self> {
        let numbers: Vec<&str> = kubernetes.strip_prefix('v')?.split('.').collect();
        let [major, minor, patch] = numbers[..] else {
            return None;
        };
        patch.parse::<u32>().ok()?;
        RELEASES
            .iter()
            .find(|release| release.minor == format!("{major}.{minor}"))
    }
}

/// The archive of the reference CNI plugins.
const CNI: &str = "https://github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz";

/// The archive of containerd.
const CONTAINERD: &str = "https://github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz";

/// The archive of the registry for a site's own images.
const REGISTRY: &str = "https://github.com/distribution/distribution/releases/download/v3.1.2/registry_3.1.2_linux_amd64.tar.gz";

const TEMPLATE: &str = include_str!("init/recipe.yaml");

/// The inputs of an initial recipe.
#[derive(Debug, Clone)]
pub struct Start {
    /// Kubernetes' version with its `v`.
    pub kubernetes: String,
    /// The directory of `ctl`, `halite-master` and `halite-minion`.
    pub programs: PathBuf,
    /// The path of the state tree.
    pub states: PathBuf,
    /// The folder of the documentation as HTML, if there is one.
    pub docs: Option<PathBuf>,
    /// The file that lists the inputs of the programs, if there is one.
    pub sbom_inputs: Option<PathBuf>,
}

/// Writes a recipe to edit into a directory, and returns its path.
///
/// # Errors
/// The version of Kubernetes is unknown, a recipe already exists, or the file cannot be written.
pub fn init(dir: &Path, start: &Start) -> Result<PathBuf, Error> {
    let text = text(start)?;
    let path = dir.join(FILE);
    if path.exists() {
        return Err(Error::content(
            path,
            "it already exists and is not overwritten",
        ));
    }
    files::write(&path, 0o644, text.as_bytes())?;
    files::sync_parent(&path)?;
    Ok(path)
}

fn text(start: &Start) -> Result<String, Error> {
    let version = start.kubernetes.trim_start_matches('v');
    let release = Release::of(&start.kubernetes).ok_or_else(|| {
        let known: Vec<_> = RELEASES
            .iter()
            .map(|release| format!("v{}.PATCH", release.minor))
            .collect();
        let message = format!(
            "{:?} is not a known version: {}",
            start.kubernetes,
            known.join(", ")
        );
        Error::recipe([message])
    })?;
    // A JSON string is also a YAML string.
    let quoted = |path: PathBuf| serde_json::Value::String(path.display().to_string()).to_string();
    let program = |name: &str| quoted(start.programs.join(name));
    // What a release lacks is an example.
    let optional = |key: &str, found: &Option<PathBuf>| match found {
        Some(path) => format!("{key}: {}", quoted(path.clone())),
        None => format!("#= {key}: {key}"),
    };
    Ok(TEMPLATE
        .replace("{{kubernetes}}", &start.kubernetes)
        .replace("{{number}}", version)
        .replace("{{etcd}}", release.etcd)
        .replace("{{coredns}}", release.coredns)
        .replace("{{pause}}", release.pause)
        .replace("{{cni}}", CNI)
        .replace("{{containerd}}", CONTAINERD)
        .replace("{{registry}}", REGISTRY)
        .replace("{{ctl}}", &program("ctl"))
        .replace("{{master}}", &program("halite-master"))
        .replace("{{minion}}", &program("halite-minion"))
        .replace("{{states}}", &quoted(start.states.clone()))
        .replace("{{docs}}", &optional("docs", &start.docs))
        .replace("{{sbom}}", &optional("sbom-inputs", &start.sbom_inputs)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    fn start(kubernetes: &str) -> Start {
        let (programs, states) = (PathBuf::from("/opt/a \"b\""), PathBuf::from("/opt/states"));
        Start {
            kubernetes: kubernetes.to_owned(),
            programs,
            states,
            docs: None,
            sbom_inputs: None,
        }
    }

    #[test]
    fn the_documents_of_a_release_go_into_the_bundle() {
        let of =
            |start: &Start| Recipe::parse(FILE, &text(start).unwrap(), Path::new("/site")).unwrap();
        let without = of(&start("v1.36.3"));
        assert_eq!((without.docs, without.sbom_inputs), (None, None));
        let recipe = of(&Start {
            docs: Some("/opt/docs".into()),
            sbom_inputs: Some("/opt/sbom-inputs.json".into()),
            ..start("v1.36.3")
        });
        assert_eq!(recipe.docs.as_deref(), Some(Path::new("/opt/docs")));
        let inputs = Path::new("/opt/sbom-inputs.json");
        assert_eq!(recipe.sbom_inputs.as_deref(), Some(inputs));
    }

    #[test]
    fn what_is_written_is_a_recipe() {
        for release in RELEASES {
            let version = format!("v{}.7", release.minor);
            let text = text(&start(&version)).unwrap();
            assert!(!text.contains("{{"), "{text}");
            let recipe = Recipe::parse(FILE, &text, Path::new("/site")).unwrap();
            assert_eq!(recipe.kubernetes, version);
            assert_eq!(recipe.binaries["ctl"], Path::new("/opt/a \"b\"/ctl"));
            assert!(
                recipe
                    .images
                    .iter()
                    .all(|image| image.layout.is_none() && image.licence.is_some())
            );
            assert!(
                recipe
                    .downloads
                    .iter()
                    .all(|download| download.licence.is_some())
            );
            let kubelet = format!("https://dl.k8s.io/release/{version}/bin/linux/amd64/kubelet");
            assert!(
                recipe
                    .downloads
                    .iter()
                    .any(|download| download.url == kubelet)
            );
        }
    }

    #[test]
    fn the_examples_in_its_comments_are_right_too() {
        let text = text(&start("v1.36.3")).unwrap();
        let opened: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix("#= ").unwrap_or(line))
            .collect();
        let recipe = Recipe::parse(FILE, &opened.join("\n"), Path::new("/site")).unwrap();
        assert!(recipe.images.iter().any(|image| image.component.is_none()));
        assert_eq!((recipe.charts.len(), recipe.network.hosts.len()), (1, 2));
        assert_eq!(recipe.repositories.len(), 2);
        assert!(
            recipe.network.proxy.is_some() && recipe.helm.is_some() && !recipe.options.is_empty()
        );
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = init(dir.path(), &start("v1.36.3")).unwrap();
        std::fs::write(&path, "mine").unwrap();
        let error = init(dir.path(), &start("v1.36.3")).unwrap_err().to_string();
        assert!(error.contains("recipe.yaml: it already exists"), "{error}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "mine");
        for wrong in ["v1.20.1", "1.36.3", "v1.36", "v1.36.x", ""] {
            let error = init(dir.path(), &start(wrong)).unwrap_err().to_string();
            assert!(
                error.contains("not a known version: v1.35.PATCH, v1.36.PATCH"),
                "{error}"
            );
        }
    }
}
