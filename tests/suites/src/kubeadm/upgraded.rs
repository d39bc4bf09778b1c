//! A control plane that kubeadm makes with one release and upgrades to the next one, on a host of
//! the same name and address without Halite, in place of the cluster's hosts: they are off for that
//! time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::layout::TWO;
use halite_lab::progress::Board;
use halite_lab::{Lab, wait};
use halite_upstream::versions::Release;
use halite_upstream::{UpstreamImage, prepare};
use serde_json::{Value, json};

use super::allowed::Allowed;
use super::archive::archive;
use super::certificate::Authorities;
use super::difference::{Difference, Picture};
use super::files::File;
use super::{differ, files, inputs, judge, live, objects, refuse};
use crate::test::Counts;

/// The name of its lab.
const LAB: &str = "minorkubeadm";

/// Directories of the bundles on its host.
const OLD: &str = "/media/old-bundle";
const NEW: &str = "/media/new-bundle";

/// The directory of the API server's own configuration files, which kubeadm does not make.
const API_SERVER: &str = "/etc/kubernetes/apiserver";

/// Limit for the hosts of the cluster to serve again.
const BACK: Duration = Duration::from_secs(420);

/// The components of images that kubeadm's control plane runs.
const COMPONENTS: [&str; 7] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "coredns",
    "pause",
];

/// A pod network for one host: its pods need addresses, and nothing more.
const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "one-host", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.233.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}"#;

/// Makes the control plane. Its arguments are the directory of the bundle, the host's address and
/// the name of the API.
const INIT: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive KUBECONFIG=/etc/kubernetes/admin.conf
cd /root/twin
install -D -m 0644 "$1/apt/halite.gpg" /etc/apt/keyrings/old.gpg
echo "deb [signed-by=/etc/apt/keyrings/old.gpg] file:$1/apt stable main" > /etc/apt/sources.list.d/old.list
apt-get -q update
apt-get -q -y --no-install-recommends install containerd runc kubeadm kubelet kubectl conntrack ethtool iptables nftables socat
install -D -m 0644 containerd.toml /etc/containerd/config.toml
install -D -m 0644 network.conflist /etc/cni/net.d/10-one-host.conflist
sysctl -q -w net.ipv4.ip_forward=1
echo "$2 $3" >> /etc/hosts
systemctl enable -q containerd kubelet
systemctl restart containerd
# containerd's configuration names the pause image of the newer release.
ctr -n k8s.io images import old/images.tar
ctr -n k8s.io images import new/images.tar
kubeadm init --config kubeadm.yaml --ignore-preflight-errors=all --skip-token-print
kubectl wait --for=condition=Ready "node/$(hostname)" --timeout=300s
kubectl -n kube-system rollout status deployment/coredns --timeout=300s
"#;

/// Upgrades it, as kubeadm's documentation describes. Its arguments are the directory of the newer
/// bundle and its Kubernetes.
const UPGRADE: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive KUBECONFIG=/etc/kubernetes/admin.conf
cd /root/twin
install -D -m 0644 "$1/apt/halite.gpg" /etc/apt/keyrings/new.gpg
echo "deb [signed-by=/etc/apt/keyrings/new.gpg] file:$1/apt stable main" > /etc/apt/sources.list.d/new.list
apt-get -q update
apt-get -q -y --no-install-recommends install kubeadm
kubeadm upgrade apply "$2" --yes --ignore-preflight-errors=all
apt-get -q -y --no-install-recommends install kubelet kubectl
systemctl daemon-reload
systemctl restart kubelet
kubectl wait --for=condition=Ready "node/$(hostname)" --timeout=300s
# The newer kubelet also replaces the pod of the API server, at some time after its start.
timeout 300 bash -c '
until kubectl -n kube-system rollout status daemonset/kube-proxy &&
  kubectl -n kube-system rollout status deployment/coredns; do
  sleep 1
done'
"#;

/// Kinds whose objects kubeadm makes, in its namespaces and outside of any.
const NAMESPACED: &str =
    "configmaps,daemonsets,deployments,roles,rolebindings,serviceaccounts,services";
const OUTSIDE: &str = "clusterroles,clusterrolebindings";

/// ConfigMaps that Kubernetes itself makes.
const OF_KUBERNETES: [&str; 3] = [
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
    "kube-root-ca.crt",
];

/// A running control plane.
struct ControlPlane {
    files: Vec<File>,
    objects: Vec<Value>,
    node: Value,
}

impl ControlPlane {
    fn read(host: &Host) -> Result<Self> {
        let kubectl = |words: &[&str]| -> Result<Value> {
            let command = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"];
            let output = host.run(&[&command[..], words, &["-o", "json"]].concat())?;
            serde_json::from_str(&output).context("kubectl did not print JSON")
        };
        let mut objects = Vec::new();
        for words in [
            &["get", NAMESPACED, "-n", "kube-system"][..],
            &["get", NAMESPACED, "-n", "kube-public"],
            &["get", OUTSIDE],
        ] {
            let list = kubectl(words)?;
            let items = list["items"].as_array().context("no list of objects")?;
            objects.extend(items.iter().filter(|object| is_kubeadms(object)).cloned());
        }
        objects.iter_mut().for_each(without_signatures);
        Ok(Self {
            files: live::files(host)?,
            objects,
            node: kubectl(&["get", "node", BOOTSTRAP])?,
        })
    }

    fn authorities(&self) -> Authorities {
        files::authorities(&self.files)
    }

    fn picture(&self) -> Result<Picture> {
        let authorities = self.authorities();
        let mut picture = files::picture(&self.files, &authorities);
        objects::add(&mut picture, &self.objects, &authorities)?;
        let (metadata, spec) = (&self.node["metadata"], &self.node["spec"]);
        objects::add_node(
            &mut picture,
            BOOTSTRAP,
            &metadata["labels"],
            &spec["taints"],
        );
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let of_kubeadm: serde_json::Map<String, Value> = annotations
            .filter(|(name, _)| name.starts_with("kubeadm"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        picture.insert(format!("annotations/{BOOTSTRAP}"), json!(of_kubeadm));
        live::cut_digests(&mut picture);
        Ok(picture)
    }
}

/// Returns whether kubeadm makes the object: neither Kubernetes itself does, nor, with its mark,
/// Halite alone.
fn is_kubeadms(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let of_kubernetes = match object["kind"].as_str() {
        Some("ConfigMap") => OF_KUBERNETES.contains(&name),
        // Those of its controllers.
        Some("ServiceAccount") => !["coredns", "kube-proxy"].contains(&name),
        _ => labels.get("kubernetes.io/bootstrapping").is_some(),
    };
    !of_kubernetes && labels.get("halite/set").is_none()
}

/// Removes the signatures of `cluster-info`, one for each token.
fn without_signatures(object: &mut Value) {
    if object["metadata"]["name"] == "cluster-info"
        && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
    {
        data.retain(|key, _| !key.starts_with("jws-kubeconfig-"));
    }
}

/// Compares a cluster that was upgraded from one release to another with a control plane that
/// kubeadm upgraded.
pub(crate) fn compare(cluster: &Cluster, from: &Release, to: &Release) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let ours = ControlPlane::read(host)?;
    let read = |file: &str| host.run(&["cat", file]);
    let node = read(&format!("/etc/halite/nodes/{BOOTSTRAP}.yaml"))?;
    let declaration = inputs::parse(&read("/etc/halite/cluster.yaml")?, &[&node])?;
    let work = tempfile::tempdir()?;
    let api_server = work.path().join("apiserver");
    copy(&host.file(API_SERVER), &api_server)?;
    let twin = Twin {
        api_server,
        configuration: inputs::kubeadm(&declaration, from.kubernetes)?,
        runtime: read("/etc/containerd/config.toml")?,
        endpoint: declaration.cluster.value.endpoint(),
        from,
        to,
    };
    let hosts = cluster.hosts().into_iter();
    let names: Vec<String> = hosts.map(|host| host.spec.name.clone()).collect();
    cluster.lab.power_off(&names, false)?;
    let theirs = twin.read();
    cluster.lab.power_on(&names)?;
    wait::until("the cluster to serve again", BACK, || {
        cluster.kubectl(&["get", "--raw", "/readyz"]).map(drop)
    })?;
    cluster.wait_for_pods(BACK)?;
    let (theirs, ours) = (theirs?.picture()?, ours.picture()?);
    ensure!(
        theirs.len() > 40,
        "only {} places: {theirs:?}",
        theirs.len()
    );
    let found: Vec<Difference> = differ::compare(&theirs, &ours);
    println!("  {} places compared", theirs.len());
    let mut allowed = Allowed::of_upgrades()?;
    refuse(&judge(vec![("the upgraded cluster", found)], &mut allowed))?;
    Ok(Counts::ONE)
}

/// The inputs of the control plane.
struct Twin<'a> {
    /// The API server's own configuration files, which kubeadm's flags name.
    api_server: PathBuf,
    configuration: String,
    /// containerd's configuration.
    runtime: String,
    endpoint: String,
    from: &'a Release,
    to: &'a Release,
}

impl Twin<'_> {
    /// Makes and upgrades it. Its host is gone afterwards; if it failed, it is off, and its files
    /// remain.
    fn read(&self) -> Result<ControlPlane> {
        let bundle = |release| prepare::bundle_of(release, &Board::silent());
        let mounts: Vec<(PathBuf, PathBuf)> = vec![
            (bundle(self.from)?, OLD.into()),
            (bundle(self.to)?, NEW.into()),
        ];
        let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
        lab.down()?;
        let host = lab.boot(TWO.member(BOOTSTRAP)?.spec(mounts))?;
        match self.on(&host) {
            Ok(found) => {
                lab.down()?;
                Ok(found)
            }
            Err(error) => {
                host.power_cut()?;
                Err(error.context(format!(
                    "kubeadm; its host is off, its root is {}",
                    host.root().display()
                )))
            }
        }
    }

    fn on(&self, host: &Host) -> Result<ControlPlane> {
        let dir = host.root().join("root/twin");
        for (name, release) in [("old", self.from), ("new", self.to)] {
            let dir = dir.join(name);
            fs::create_dir_all(&dir)?;
            archive(&images(release)?, &dir)?;
        }
        fs::write(dir.join("kubeadm.yaml"), &self.configuration)?;
        fs::write(dir.join("containerd.toml"), &self.runtime)?;
        fs::write(dir.join("network.conflist"), NETWORK)?;
        fs::create_dir_all(host.file("/etc/kubernetes"))?;
        copy(&self.api_server, &host.file(API_SERVER))?;
        let address = host.control_plane_address();
        let bash = |script: &str, args: &[&str]| {
            host.run(&[&["bash", "-c", script, "bash"], args].concat())
        };
        bash(INIT, &[OLD, &address, &self.endpoint]).context("kubeadm init")?;
        bash(UPGRADE, &[NEW, self.to.kubernetes]).context("kubeadm upgrade apply")?;
        ControlPlane::read(host)
    }
}

/// Copies a directory to a path that does not exist yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    run("cp", &["-r".as_ref(), from.as_os_str(), to.as_os_str()]).map(drop)
}

fn images(release: &Release) -> Result<Vec<UpstreamImage>> {
    let made = halite_upstream::ensure(&halite_lab::cache(), release, &mut |_| {})?;
    let wanted = |image: &UpstreamImage| COMPONENTS.contains(&image.component.as_str());
    let images: Vec<UpstreamImage> = made.images.into_iter().filter(wanted).collect();
    ensure!(images.len() == COMPONENTS.len(), "{images:?}");
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_kubernetes_itself_and_of_halite_alone_are_left_out() {
        let object = |kind: &str, name: &str, labels: Value| json!({"kind": kind, "metadata": {"name": name, "labels": labels}});
        let none = json!({});
        for (kind, name, labels, is_kubeadms) in [
            ("ConfigMap", "kubeadm-config", &none, true),
            ("ConfigMap", "kube-root-ca.crt", &none, false),
            ("ServiceAccount", "coredns", &none, true),
            ("ServiceAccount", "node-controller", &none, false),
            ("ClusterRole", "kubeadm:get-nodes", &none, true),
            (
                "ClusterRole",
                "view",
                &json!({"kubernetes.io/bootstrapping": "rbac-defaults"}),
                false,
            ),
            (
                "ClusterRole",
                "flannel",
                &json!({"halite/set": "flannel"}),
                false,
            ),
        ] {
            assert_eq!(
                super::is_kubeadms(&object(kind, name, labels.clone())),
                is_kubeadms,
                "{kind} {name}"
            );
        }
        let mut info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "", "jws-kubeconfig-abcdef": ""}});
        without_signatures(&mut info);
        assert_eq!(info["data"], json!({"kubeconfig": ""}));
    }
}
