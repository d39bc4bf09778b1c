//! The bundle of a later patch release, and hosts that have it. Unless the release is a published
//! one, its bundle is the first one with another version stamp: the programs are the same, the
//! images and the versions of the packages are not.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::versions::{self as upstream, FULL, NEWEST};
use halite_upstream::{ISO, prepare};
use serde_json::Value;

use super::{BACK, is_complete, same_content};
use crate::bundles::{other_programs, variant_of};
use crate::checks::nothing_to_do;
use crate::image_layout;
use crate::repair::highstate;

/// Path of its ISO on the bootstrap host.
const CARRIED: &str = "/root/patch.iso";
/// The static pods whose images have Kubernetes' version.
const PODS: [&str; 3] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// A patch release after the first bundle's: the second after `v1.36.3` is `v1.36.5`.
fn later(patches: u32) -> Result<String> {
    let kubernetes = NEWEST.kubernetes;
    let (minor, patch) = kubernetes.rsplit_once('.').context("no patch release")?;
    Ok(format!("{minor}.{}", patch.parse::<u32>()? + patches))
}

/// Copies an OCI layout with one image, whose configuration gets the version as a label: another
/// image with the same layers.
fn stamped(from: &Path, to: &Path, version: &str) -> Result<()> {
    image_layout::copy(from, to, |settings| {
        let label = "org.opencontainers.image.version".to_owned();
        settings.labels.insert(label, version.into());
    })
}

/// Makes a bundle from that of a release, with a Kubernetes that is this many patch releases later,
/// and adds it on the bootstrap host. Returns its version of Kubernetes.
///
/// # Errors
/// The bundle cannot be made or added.
pub fn add_release(
    cluster: &Cluster,
    from: &upstream::Release,
    version: &str,
    patches: u32,
) -> Result<String> {
    add_later(cluster, from, version, patches, PatchBundle::Kubernetes)
}

/// The same with another Halite.
pub(crate) fn add_release_with_halite(
    cluster: &Cluster,
    from: &upstream::Release,
    version: &str,
    patches: u32,
) -> Result<String> {
    let content = PatchBundle::KubernetesAndHalite;
    add_later(cluster, from, version, patches, content)
}

fn add_later(
    cluster: &Cluster,
    from: &upstream::Release,
    version: &str,
    patches: u32,
    content: PatchBundle,
) -> Result<String> {
    let kubernetes = later(patches)?;
    add(cluster, from, version, &kubernetes, content)?;
    Ok(kubernetes)
}

/// A kubelet that does not start.
const BROKEN: &str = "#!/bin/sh\necho 'this kubelet is broken' >&2\nexit 1\n";

/// The content of a bundle, compared with that of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchBundle {
    /// Another version of Kubernetes.
    Kubernetes,
    /// Also other programs of Halite.
    KubernetesAndHalite,
    /// Also another build of etcd's image.
    KubernetesAndEtcd,
    /// Also a kubelet that does not start.
    BrokenKubelet,
}

/// The reference of the next build of etcd's image: `3.6.8-1` after `3.6.8-0`.
fn next_build(reference: &str) -> Result<String> {
    let (version, build) = reference.rsplit_once('-').context("no build")?;
    Ok(format!("{version}-{}", build.parse::<u32>()? + 1))
}

/// Makes the bundle, copies its ISO to the bootstrap host, and adds it there.
fn add(
    cluster: &Cluster,
    from: &upstream::Release,
    version: &str,
    kubernetes: &str,
    content: PatchBundle,
) -> Result<()> {
    let work = tempfile::Builder::new()
        .prefix("patch-")
        .tempdir_in(halite_lab::cache())?;
    let before = NEWEST.kubernetes;
    let iso = variant_of(from, work.path(), version, 5, |recipe, _| {
        recipe["kubernetes"] = kubernetes.into();
        for image in recipe["images"].as_array_mut().into_iter().flatten() {
            let reference = image["reference"].as_str().context("no reference")?;
            let component = image["component"].as_str().context("no component")?;
            let other_etcd = content == PatchBundle::KubernetesAndEtcd && component == "etcd";
            let newer = match reference.strip_suffix(&format!(":{before}")) {
                Some(name) => format!("{name}:{kubernetes}"),
                None if other_etcd => next_build(reference)?,
                None => continue,
            };
            let from = image["layout"].as_str().context("no layout")?;
            let layout = work.path().join("images").join(component);
            stamped(Path::new(from), &layout, kubernetes)?;
            image["reference"] = newer.into();
            image["layout"] = layout.to_string_lossy().into();
        }
        let made = recipe["packages"]["made"].as_array_mut();
        for package in made.into_iter().flatten() {
            let version = package["version"].as_str().context("no version")?;
            let prefix = format!("{}-", before.trim_start_matches('v'));
            if let Some(revision) = version.strip_prefix(&prefix) {
                let newer = kubernetes.trim_start_matches('v');
                package["version"] = format!("{newer}-{revision}").into();
            }
            if content == PatchBundle::BrokenKubelet && package["package"] == "kubelet" {
                let program = work.path().join("kubelet");
                fs::write(&program, BROKEN)?;
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
                package["programs"]["kubelet"] = program.to_string_lossy().into();
            }
        }
        match content {
            PatchBundle::KubernetesAndHalite => other_programs(recipe, work.path()),
            _ => Ok(()),
        }
    })?;
    carry(cluster, &iso)
}

/// Copies an ISO to the bootstrap host, and adds it there.
fn carry(cluster: &Cluster, iso: &Path) -> Result<()> {
    let first = &cluster.bootstrap;
    fs::copy(iso, first.file(CARRIED))?;
    first.run(&["ctl", "bundle", "add", CARRIED])?;
    fs::remove_file(first.file(CARRIED))?;
    Ok(())
}

/// The process of a kubelet, and the inode of its program.
type RunningKubelet = (String, u64);

fn kubelet(host: &Host) -> Result<RunningKubelet> {
    // Process ids repeat after a boot.
    let start = host.sh("systemctl show -p InvocationID --value kubelet")?;
    let program = fs::metadata(host.file("/usr/bin/kubelet"))?.ino();
    Ok((start.trim().to_owned(), program))
}

/// Checks that a host has the packages and the manifests of that release, and runs them.
pub(crate) fn has(cluster: &Cluster, host: &Host, kubernetes: &str) -> Result<()> {
    let name = &host.spec.name;
    let package = host.run(&["dpkg-query", "-W", "-f=${Version}", "kubelet"])?;
    let wanted = format!("{}-", kubernetes.trim_start_matches('v'));
    ensure!(
        package.starts_with(&wanted),
        "{name} has the kubelet {package}"
    );
    let is_plane = cluster
        .control_planes()
        .iter()
        .any(|plane| plane.spec.name == *name);
    for pod in PODS.iter().filter(|_| is_plane) {
        let live = format!("{pod}-{name}");
        let words = ["-n", "kube-system", "get", "pod", &live, "-o", "json"];
        let live: Value = serde_json::from_str(&cluster.kubectl_on(name, &words)?)?;
        let image = live["spec"]["containers"][0]["image"].as_str();
        ensure!(
            image.is_some_and(|image| image.contains(&format!(":{kubernetes}@sha256:"))),
            "{pod} of {name} has the image {image:?}"
        );
    }
    Ok(())
}

/// A later release, whose bundle is on the site.
pub(super) struct Release<'a> {
    cluster: &'a Cluster,
    /// The version of its bundle.
    pub(super) version: String,
    /// The version of its Kubernetes.
    pub(super) kubernetes: String,
    /// The hosts, with their kubelets before the upgrade.
    before: Vec<(&'a Host, RunningKubelet)>,
}

impl<'a> Release<'a> {
    /// Makes the bundle of the release that is this many patch releases after the first one, and
    /// adds it.
    pub(super) fn add(cluster: &'a Cluster, version: &str, patches: u32) -> Result<Self> {
        Self::with(cluster, version, patches, PatchBundle::Kubernetes)
    }

    /// The same with another image of etcd.
    pub(super) fn add_with_etcd(cluster: &'a Cluster, version: &str, patches: u32) -> Result<Self> {
        Self::with(cluster, version, patches, PatchBundle::KubernetesAndEtcd)
    }

    /// The same with a kubelet that does not start.
    pub(super) fn add_broken(cluster: &'a Cluster, version: &str, patches: u32) -> Result<Self> {
        Self::with(cluster, version, patches, PatchBundle::BrokenKubelet)
    }

    /// Adds the bundle of a published release, which has programs of its own.
    pub(super) fn published(cluster: &'a Cluster, release: &upstream::Release) -> Result<Self> {
        let iso = prepare::iso_directory_of(release, &Board::silent())?.join(ISO);
        let (version, kubernetes) = (release.bundle(), release.kubernetes.to_owned());
        let release = Self::new(cluster, version, kubernetes)?;
        carry(cluster, &iso)?;
        Ok(release)
    }

    fn with(
        cluster: &'a Cluster,
        version: &str,
        patches: u32,
        content: PatchBundle,
    ) -> Result<Self> {
        let release = Self::new(cluster, version.to_owned(), later(patches)?)?;
        add(cluster, &FULL, version, &release.kubernetes, content)?;
        Ok(release)
    }

    /// A release whose bundle is not on the site yet.
    fn new(cluster: &'a Cluster, version: String, kubernetes: String) -> Result<Self> {
        let hosts = cluster.hosts().into_iter();
        let before = hosts.map(|host| Ok((host, kubelet(host)?)));
        Ok(Self {
            cluster,
            version,
            kubernetes,
            before: before.collect::<Result<_>>()?,
        })
    }

    /// The command that upgrades the cluster to it.
    pub(super) fn upgrade(&self) -> [&str; 4] {
        ["ctl", "upgrade", &self.version, "--yes"]
    }

    /// Checks that these hosts have their previous kubelets.
    pub(super) fn is_not_on(&self, names: &[&str]) -> Result<()> {
        for (host, before) in &self.before {
            let name = host.spec.name.as_str();
            ensure!(
                !names.contains(&name) || kubelet(host)? == *before,
                "{name} has been changed"
            );
        }
        Ok(())
    }

    /// Waits until all hosts serve, and checks that each has the release and nothing is left to do.
    /// The kubelets have been replaced, except on hosts that were made again.
    pub(super) fn is_on_all(&self, made_again: &[&str]) -> Result<()> {
        let cluster = self.cluster;
        wait::until("all hosts to be Ready", BACK, || is_complete(cluster))?;
        same_content(cluster)?;
        for (host, before) in &self.before {
            let name = host.spec.name.as_str();
            // The API shows the pod of a new manifest some time after the host runs it.
            wait::until("the release on a host", BACK, || {
                has(cluster, host, &self.kubernetes)
            })?;
            let now = kubelet(host)?;
            ensure!(
                made_again.contains(&name) || now.0 != before.0 && now.1 != before.1,
                "the kubelet of {name} is not another process with another program: {before:?}, {now:?}"
            );
        }
        self.is_settled()
    }

    /// Waits until all hosts serve, and checks that each has this Kubernetes again and nothing is
    /// left to do.
    pub(super) fn has_left(&self, kubernetes: &str) -> Result<()> {
        let cluster = self.cluster;
        wait::until("all hosts to be Ready", BACK, || is_complete(cluster))?;
        same_content(cluster)?;
        for (host, _) in &self.before {
            wait::until("the previous release on a host", BACK, || {
                has(cluster, host, kubernetes)
            })?;
        }
        self.is_settled()
    }

    fn is_settled(&self) -> Result<()> {
        nothing_to_do(&self.cluster.bootstrap)?;
        let changed = highstate(self.cluster, &[])?.changed;
        ensure!(
            changed.is_empty(),
            "a highstate changed something: {changed:?}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_next_build_of_etcd_has_the_same_version() {
        let next = next_build("registry.k8s.io/etcd:3.6.8-0").unwrap();
        assert_eq!(next, "registry.k8s.io/etcd:3.6.8-1");
        next_build("registry.k8s.io/etcd:3.6.8").unwrap_err();
    }

    #[test]
    fn a_stamped_image_has_other_digests_and_the_same_layers() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("blobs/sha256")).unwrap();
        let put = |content: &[u8]| {
            let digest = format!("{:x}", Sha256::digest(content));
            fs::write(from.join("blobs/sha256").join(&digest), content).unwrap();
            json!({"digest": format!("sha256:{digest}"), "size": content.len()})
        };
        let config = put(b"{\"os\":\"linux\"}");
        let layer = put(b"layer");
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
        let entry = put(manifest.to_string().as_bytes());
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(from.join("index.json"), index.to_string()).unwrap();
        fs::write(from.join("oci-layout"), "{}").unwrap();
        stamped(&from, &to, "v1.36.5").unwrap();
        let index: Value =
            serde_json::from_slice(&fs::read(to.join("index.json")).unwrap()).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap();
        assert_ne!(digest, entry["digest"]);
        let manifest = fs::read(to.join("blobs").join(digest.replace(':', "/"))).unwrap();
        assert_eq!(format!("sha256:{:x}", Sha256::digest(&manifest)), digest);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["layers"][0], layer);
        let config = manifest["config"]["digest"].as_str().unwrap();
        let config = fs::read(to.join("blobs").join(config.replace(':', "/"))).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let labels = &config["config"]["Labels"];
        assert_eq!(labels["org.opencontainers.image.version"], "v1.36.5");
        assert_eq!(config["os"], "linux");
    }
}
