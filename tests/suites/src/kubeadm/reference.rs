//! The output of kubeadm for an input: `kubeadm init --dry-run`, without access to the host's own
//! files.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::certificate::Authorities;
use super::difference::Picture;
use super::files::File;
use super::{files, objects};

/// kubeadm as the bundle installs it.
pub(super) const KUBEADM: &str = "/usr/bin/kubeadm";

/// Runs a program as root and returns its output.
pub(super) type Run<'a> = dyn Fn(&[&str]) -> Result<String> + 'a;

/// Runs kubeadm in its own mount namespace: the directories of Kubernetes' files are empty there,
/// and vanish with it. Without programs in the path, it cannot query or change systemd; without a
/// network, it cannot contact the endpoints of clusters that do not exist. A dry run leaves the
/// kubelet's kubeconfig in its state before the kubelet's first certificate, so the next phase is
/// run for real, on the copy.
const SCRIPT: &str = r#"
set -eu
config=$1 kubeadm=$2
shift 2
for directory in /etc/kubernetes /var/lib/kubelet /mnt; do
  mkdir -p "$directory"
  mount -t tmpfs tmpfs "$directory"
done
umask 022
cd /mnt
printf '%s' "$config" > config.yaml
mkdir patches
while [ $# -gt 0 ]; do
  printf '%s' "$2" > "patches/$1"
  shift 2
done
mkdir dry tree tree/pki tree/pki/etcd tree/manifests tree/kubelet
run() { env -i PATH=/nonexistent HOME=/root KUBEADM_INIT_DRYRUN_DIR=/mnt/dry "$kubeadm" init "$@" --config /mnt/config.yaml; }
run --dry-run --skip-phases=preflight --ignore-preflight-errors=all > output 2> errors || { cat errors >&2; exit 1; }
mkdir /var/lib/kubelet/pki
touch /var/lib/kubelet/pki/kubelet-client-current.pem
cp -p dry/kubelet.conf /etc/kubernetes/kubelet.conf
run phase kubelet-finalize enable-client-cert-rotation > /dev/null 2> errors || { cat errors >&2; exit 1; }
cp -p /etc/kubernetes/kubelet.conf dry/kubelet.conf
mv dry/config.yaml dry/instance-config.yaml dry/kubeadm-flags.env tree/kubelet/
mv dry/*.yaml tree/manifests/
mv dry/*.conf tree/
mv dry/etcd/* tree/pki/etcd/
rmdir dry/etcd
mv dry/* tree/pki/
cd tree
dump '' pki manifests kubelet *.conf
echo '==> output'
cat ../output
"#;

/// The output of kubeadm.
#[derive(Debug)]
pub(super) struct Reference {
    /// The files that kubeadm made.
    pub(super) files: Vec<File>,
    /// The objects that it would create, as it would send them.
    pub(super) objects: Vec<Value>,
    /// Labels that it would put on the node.
    pub(super) labels: Value,
    /// Taints that it would put on the node.
    pub(super) taints: Value,
}

/// Runs kubeadm with a configuration and patches (names of files and their texts). `run` runs a
/// program as root on a host with kubeadm.
pub(super) fn make(
    run: &Run<'_>,
    kubeadm: &str,
    config: &str,
    patches: &[(String, String)],
) -> Result<Reference> {
    let script = format!("{}{SCRIPT}", files::DUMP);
    let mut args = vec![
        "unshare",
        "--net",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &script,
        "sh",
        config,
        kubeadm,
    ];
    args.extend(
        patches
            .iter()
            .flat_map(|(name, text)| [name.as_str(), text.as_str()]),
    );
    let printed = run(&args).context("kubeadm init --dry-run")?;
    let (files, output) = printed
        .split_once("==> output\n")
        .context("kubeadm printed nothing")?;
    let files = files::parse(files)?;
    ensure!(files.len() > 20, "kubeadm made only {} files", files.len());
    let objects = created(output)?;
    let labels = marks(output, "by adding the labels: [")
        .into_iter()
        .map(|label| (label, json!("")));
    let taints = marks(output, "by adding the taints [")
        .iter()
        .map(|taint| parse_taint(taint))
        .collect();
    Ok(Reference {
        files,
        objects,
        labels: Value::Object(labels.collect()),
        taints: Value::Array(taints),
    })
}

/// The images that kubeadm would use for a Kubernetes version, by component.
pub(super) fn images(
    run: &Run<'_>,
    kubeadm: &str,
    version: &str,
) -> Result<BTreeMap<String, String>> {
    let listed = run(&[
        kubeadm,
        "config",
        "images",
        "list",
        "--kubernetes-version",
        version,
    ])?;
    Ok(by_component(&listed))
}

/// Images by component, the last part of an image's name: `coredns` of
/// `registry.k8s.io/coredns/coredns:v1.14.2`.
fn by_component(listed: &str) -> BTreeMap<String, String> {
    let named = |image: &str| {
        let name = image.rsplit('/').next()?.split_once(':')?.0;
        Some((name.to_owned(), image.to_owned()))
    };
    listed
        .lines()
        .filter_map(|line| named(line.trim()))
        .collect()
}

impl Reference {
    /// The meaning of the files.
    pub(super) fn picture(&self, authorities: &Authorities) -> Result<Picture> {
        let picture = files::picture(&self.files, authorities);
        let unreadable: Vec<_> = picture
            .iter()
            .filter(|(place, _)| place.starts_with("unreadable/"))
            .collect();
        ensure!(
            unreadable.is_empty(),
            "kubeadm made files that cannot be read: {unreadable:?}"
        );
        Ok(picture)
    }

    /// Adds the meaning of the objects, and the node.
    pub(super) fn add_objects(
        &self,
        picture: &mut Picture,
        node: &str,
        authorities: &Authorities,
    ) -> Result<()> {
        objects::add(picture, &self.objects, authorities)?;
        objects::add_node(picture, node, &self.labels, &self.taints);
        Ok(())
    }

    /// The text of one file.
    pub(super) fn file(&self, path: &str) -> Result<&str> {
        let file = self.files.iter().find(|file| file.path == path);
        Ok(&file
            .with_context(|| format!("kubeadm made no {path}"))?
            .text)
    }
}

/// The objects that a dry run prints as created. Each follows its heading and ends at the next
/// message of kubeadm, which begins with a bracket, unlike any line of an object.
fn created(output: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    let mut creating = false;
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("[dryrun] Would perform action ") {
            creating = line.contains(" action CREATE ");
        }
        if line != "[dryrun] Attached object:" {
            continue;
        }
        let mut text = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('[')) {
            text.push_str(line);
            text.push('\n');
        }
        if creating {
            objects.push(serde_saphyr::from_str(&text).context("an object of the dry run")?);
        }
    }
    ensure!(!objects.is_empty(), "kubeadm would create no object");
    Ok(objects)
}

/// The words of the list that follows a given text in the output.
fn marks(output: &str, before: &str) -> Vec<String> {
    let list = output
        .lines()
        .find_map(|line| line.split_once(before)?.1.strip_suffix(']'));
    list.unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Parses `KEY=VALUE:EFFECT`; the value is optional.
fn parse_taint(text: &str) -> Value {
    let (key, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    let mut taint = Map::from_iter([
        ("key".to_owned(), json!(key)),
        ("effect".to_owned(), json!(effect)),
    ]);
    if !value.is_empty() {
        taint.insert("value".to_owned(), json!(value));
    }
    Value::Object(taint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str =
        "[mark-control-plane] Marking the node a as control-plane by adding the labels: [x/y z]
[mark-control-plane] Marking the node a as control-plane by adding the taints [k/p:NoSchedule v=1:NoExecute]
[dryrun] Would perform action GET on resource \"nodes\" in API group \"core/v1\"
[dryrun] Attached object:
kind: Node
[dryrun] Would perform action CREATE on resource \"configmaps\" in API group \"core/v1\"
[dryrun] Attached object:
kind: ConfigMap
data:
  text: |
    one

    two
metadata:
  name: c

[addons] Applied
Your Kubernetes control-plane has initialized
";

    #[test]
    fn objects_of_a_dry_run_are_those_that_it_would_create() {
        let objects = created(OUTPUT).unwrap();
        assert_eq!(
            objects,
            [
                json!({"kind": "ConfigMap", "data": {"text": "one\n\ntwo\n"}, "metadata": {"name": "c"}})
            ]
        );
        assert!(created("[dryrun] nothing\n").is_err());
    }

    #[test]
    fn images_are_known_by_their_component() {
        let images = by_component(
            "registry.k8s.io/etcd:3.6.8-0\nregistry.k8s.io/coredns/coredns:v1.14.2\n\n",
        );
        assert_eq!(images["etcd"], "registry.k8s.io/etcd:3.6.8-0");
        assert_eq!(images["coredns"], "registry.k8s.io/coredns/coredns:v1.14.2");
        assert_eq!(images.len(), 2);
    }

    #[test]
    fn marks_of_a_node_are_read() {
        assert_eq!(marks(OUTPUT, "by adding the labels: ["), ["x/y", "z"]);
        let taints: Vec<Value> = marks(OUTPUT, "by adding the taints [")
            .iter()
            .map(|t| parse_taint(t))
            .collect();
        assert_eq!(
            taints,
            [
                json!({"key": "k/p", "effect": "NoSchedule"}),
                json!({"key": "v", "effect": "NoExecute", "value": "1"})
            ]
        );
        assert!(marks("", "by adding").is_empty());
    }
}
