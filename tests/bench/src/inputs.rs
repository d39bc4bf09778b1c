//! Inputs of both installations: the packages, images, containerd configuration and pod network of
//! Halite's own low state, so that the script does the same work.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, BUNDLE, CLUSTER};
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::view::{MASTER, Pki};
use halite_states::low::Chunk;
use halite_suites::kubeadm::{inputs, rendered};
use halite_upstream::{UpstreamImage, versions};
use serde_json::{Value, json};

/// The bootstrap node, as `ctl bootstrap` declares it.
const NODE: &str = "apiVersion: halite/v1
kind: Node
metadata:
  name: bootstrap-1
roles: [bootstrap, registry, etcd, control-plane]
address: 10.10.0.11
";

/// Inputs of the script.
pub(super) struct Inputs {
    /// Packages in apt's notation, with the version where the bundle fixes it.
    pub packages: Vec<String>,
    /// The images of a control-plane host.
    pub images: Vec<UpstreamImage>,
    /// containerd's configuration file.
    pub containerd: String,
    /// kubeadm's configuration file, for the node `bootstrap-1`.
    kubeadm: String,
    /// flannel's objects, a JSON list.
    pub flannel: String,
    /// The name of the API.
    pub endpoint: String,
}

impl Inputs {
    /// Compiles the state tree for the bootstrap host and the API, and takes the inputs from there.
    pub fn new(bundle: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let manifest = fs::read_to_string(bundle.join("manifest.json"))?;
        let facts = BundleFacts::from_manifest(&manifest, BUNDLE)?;
        let declaration = inputs::parse(CLUSTER, &[NODE])?;
        let compile =
            |target: &str| rendered::compile(&declaration, &facts, &Pki::default(), target);
        let (host, api) = (compile(BOOTSTRAP)?.low.chunks, compile(MASTER)?.low.chunks);
        let find = |chunks: &[Chunk], function: &str, name: &str| {
            let found = chunks
                .iter()
                .find(|c| c.function() == function && (c.id == name || c.name == name));
            found
                .map(|c| c.args.clone())
                .with_context(|| format!("no {function} {name} in the low state"))
        };
        let packages = find(&host, "pkg.installed", "host-packages")?;
        let packages = packages["pkgs"]
            .as_array()
            .context("host-packages has no pkgs")?;
        let containerd = find(&host, "file.managed", "/etc/containerd/config.toml")?;
        let flannel = find(&api, "kubernetes.manifest", "flannel")?;
        let all =
            halite_upstream::ensure(&halite_lab::cache(), &versions::SHIPPED, progress)?.images;
        let wanted = |image: &UpstreamImage| {
            host.iter()
                .filter(|c| c.function() == "image.present")
                .any(|c| tagged(&c.name) == image.reference)
        };
        let images: Vec<UpstreamImage> = all.into_iter().filter(wanted).collect();
        ensure!(!images.is_empty(), "the low state names no image");
        let flannel = json!({"apiVersion": "v1", "kind": "List", "items": flannel["documents"]});
        Ok(Self {
            packages: packages.iter().map(package).collect(),
            images,
            containerd: containerd["contents"]
                .as_str()
                .context("containerd has no contents")?
                .to_owned(),
            kubeadm: inputs::kubeadm(&declaration, versions::KUBERNETES)?,
            flannel: flannel.to_string(),
            endpoint: declaration.cluster.value.endpoint(),
        })
    }

    /// kubeadm's configuration file for a first host of that name, which others join with the token
    /// and the key of the certificates.
    pub fn kubeadm_on(&self, name: &str, token: &str, key: &str) -> Result<String> {
        let (init, others) = (self.kubeadm.split_once("\n---\n"))
            .context("kubeadm's configuration is one document")?;
        let mut init: Value = serde_json::from_str(init)?;
        init["nodeRegistration"]["name"] = name.into();
        init["bootstrapTokens"] = json!([{"token": token}]);
        init["certificateKey"] = key.into();
        Ok(format!("{init}\n---\n{others}"))
    }
}

/// `name` or `{name: version}` in apt's notation.
fn package(item: &Value) -> String {
    match item.as_object().and_then(|pair| pair.iter().next()) {
        Some((name, version)) => format!("{name}={}", version.as_str().unwrap_or_default()),
        None => item.as_str().unwrap_or_default().to_owned(),
    }
}

/// `NAME:TAG` of `NAME:TAG@DIGEST`.
fn tagged(reference: &str) -> &str {
    reference.split('@').next().unwrap_or(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_not_part_of_the_tagged_name() {
        assert_eq!(tagged("a.b/c:1@sha256:0"), "a.b/c:1");
        assert_eq!(tagged("a.b:5000/c:1"), "a.b:5000/c:1");
    }

    #[test]
    fn packages_in_apts_notation() {
        assert_eq!(package(&json!("socat")), "socat");
        assert_eq!(package(&json!({"kubelet": "1.36.3-1"})), "kubelet=1.36.3-1");
    }
}
