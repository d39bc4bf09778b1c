//! A cluster of the lab, of any layout: one host bootstrapped from the bundle, the others added.

mod adding;
mod replacing;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};

use crate::host::Host;
use crate::layout::{Layout, LayoutHost, TWO};
use crate::role::Role;
use crate::{Lab, wait};

/// Directory on the bootstrap host with the files that an operator carries to a site: the signed
/// ISO, a `ctl`, and the public key.
pub const ISO_DIRECTORY: &str = "/media/halite";

/// The same for a newer release, on the one lab whose site has two.
pub const NEWER: &str = "/media/newer";

/// The `ctl` that the operator carried with the ISO: suites damage the installed one.
pub const CTL: &str = "/media/halite/ctl";

/// Command that makes the first host of a site; further options of `ctl bootstrap` follow it.
pub const INSTALL: [&str; 6] = [
    CTL,
    "bootstrap",
    "--bundle",
    "/media/halite/halite.iso",
    "--trust",
    "/media/halite/builder.pub",
];

/// Path of the bundle on the finished bootstrap host.
pub const BUNDLE: &str = concat!("/var/lib/halite/bundles/", env!("CARGO_PKG_VERSION"));

/// Path of the bundle of that version on a host that has it.
#[must_use]
pub fn bundle_place(version: &str) -> String {
    format!("/var/lib/halite/bundles/{version}")
}

/// The first host of the two: control plane, etcd, master, bundle.
pub const BOOTSTRAP: &str = "bootstrap-1";

/// The other of the two, in the second of the control-plane networks.
pub const WORKER: &str = "worker-1";

/// A cluster of the lab.
pub struct Cluster {
    /// The lab that its hosts are in.
    pub lab: Lab,
    /// Its first host, which is bootstrapped.
    pub bootstrap: Host,
    /// Its last host, which is the worker in each layout.
    pub worker: Host,
    /// All hosts, the first one first.
    hosts: Vec<Host>,
}

/// Path of the cluster document on the first host.
pub const DOCUMENT: &str = "/etc/halite/cluster.yaml";

/// The cluster document of the demonstration. Everything below `kubelet` makes up for missing
/// features of this kernel, and for a machine whose disk is nearly full by the kubelet's measure,
/// which is a share of the whole; any operator can set the same keys.
pub const CLUSTER: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: demo
networks:
  controlPlane:
    cidrs: [10.10.0.0/24, 10.10.1.0/24]
  workloadPlane:
    cidrs: [10.20.0.0/24]
  pods: 10.233.0.0/16
  services: 10.96.0.0/12
apiServer:
  vip: 10.10.0.100
  keepalived: true
kubernetes:
  version: "1.36"
cni:
  plugin: flannel
kubelet:
  config:
    failCgroupV1: false
    evictionHard: {memory.available: 100Mi, nodefs.available: 500Mi, imagefs.available: 500Mi}
    imageGCHighThresholdPercent: 100
containerd:
  restrictOomScoreAdj: true
kubeProxy:
  config:
    conntrack:
      maxPerCore: 0
      min: 0
host:
  kernelModules: []
  sysctls: {fs.inotify.max_user_instances: null, fs.inotify.max_user_watches: null}
"#;

/// Boots the bare hosts of a layout. Each with a control plane has the directories that the
/// operator carried to the site, read-only.
pub fn boot_hosts(lab: Lab, layout: &Layout, carried: &[(&Path, &str)]) -> Result<Cluster> {
    boot_mixed(lab, layout, carried, Path::new(""), &[])
}

/// The same, with another base root for the hosts of these names.
pub fn boot_mixed(
    lab: Lab,
    layout: &Layout,
    carried: &[(&Path, &str)],
    base: &Path,
    names: &[&str],
) -> Result<Cluster> {
    let hosts = layout
        .hosts
        .iter()
        .map(|member| {
            let carried = if member.is_control_plane() {
                carried
            } else {
                &[]
            };
            let base = names.contains(&member.name).then_some(base);
            boot_member(&lab, member, carried, base)
        })
        .collect::<Result<Vec<_>>>()?;
    Cluster::of(lab, hosts)
}

/// Boots the first of the two hosts, with the directory that the operator carried, read-only.
pub fn boot_bootstrap(lab: &Lab, iso_directory: &Path) -> Result<Host> {
    boot_member(
        lab,
        TWO.member(BOOTSTRAP)?,
        &[(iso_directory, ISO_DIRECTORY)],
        None,
    )
}

/// Boots a host in place of the first, with the bundle's directory at the path where Halite will
/// have it.
pub fn boot_peer(lab: &Lab, bundle: &Path) -> Result<Host> {
    boot_member(lab, TWO.member(BOOTSTRAP)?, &[(bundle, BUNDLE)], None)
}

/// Boots the second of the two hosts.
pub fn boot_worker(lab: &Lab) -> Result<Host> {
    boot_member(lab, TWO.member(WORKER)?, &[], None)
}

fn boot_member(
    lab: &Lab,
    member: &LayoutHost,
    directories: &[(&Path, &str)],
    base: Option<&Path>,
) -> Result<Host> {
    let read_only = directories
        .iter()
        .map(|(directory, place)| ((*directory).to_owned(), PathBuf::from(place)));
    let mut spec = member.spec(read_only.collect());
    spec.base = base.map(Path::to_owned);
    lab.boot(spec)
}

/// The command that makes the first host of the lab's cluster, and repairs it.
#[must_use]
pub fn install() -> Vec<String> {
    let options = ["--config", "/root/cluster.yaml", "--yes"];
    INSTALL
        .iter()
        .chain(&options)
        .map(ToString::to_string)
        .collect()
}

/// Writes the cluster document and bootstraps a bare host, showing the output.
pub fn bootstrap(host: &Host, document: &str) -> Result<Duration> {
    std::fs::write(host.root().join("root/cluster.yaml"), document)?;
    let start = Instant::now();
    let install = install();
    if !host.show(&install)?.success() {
        bail!(
            "bootstrap failed; run it again with: cargo lab sh {} -- {}",
            host.spec.name,
            install.join(" ")
        );
    }
    Ok(start.elapsed())
}

/// Limit for a host to hold the virtual address again. keepalived takes it from a host whose API
/// server answers late for some seconds.
const HELD: Duration = Duration::from_secs(20);

/// kubectl's message about an address that no host holds: its request was not sent.
const NOT_HELD: &str = ":6443: connect: no route to host";

/// Runs a kubectl command on a host, and repeats it while no host holds the virtual address that it
/// uses.
pub fn run_kubectl(host: &Host, command: &[&str]) -> Result<String> {
    wait::until("a host to hold the virtual address", HELD, || {
        match host.run(command) {
            Err(error) if error.to_string().contains(NOT_HELD) => Err(error),
            done => Ok(done),
        }
    })?
}

fn kubectl(host: &Host, args: &[&str]) -> Result<String> {
    run_kubectl(host, &[&["kubectl"], args].concat())
}

/// Waits until every pod of the cluster of `host`, which has a control plane, runs and is ready, or
/// has done its job.
pub fn wait_for_pods(host: &Host, limit: Duration) -> Result<()> {
    wait::until("all pods to run", limit, || {
        let text = kubectl(host, &["get", "pods", "-A", "-o", "json"])?;
        let list: serde_json::Value = serde_json::from_str(&text)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let waiting: Vec<String> = items
            .iter()
            // A pod of a job that is done is rightly no longer ready.
            .filter(|pod| pod["status"]["phase"] != "Succeeded")
            .filter(|pod| {
                let conditions = pod["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                !conditions
                    .iter()
                    .any(|c| c["type"] == "Ready" && c["status"] == "True")
            })
            .map(|pod| {
                let status = &pod["status"];
                let why = status["message"].as_str().unwrap_or("no message");
                format!("{} ({}: {why})", pod["metadata"]["name"], status["phase"])
            })
            .collect();
        if items.is_empty() {
            Err(anyhow!("there are no pods"))
        } else if waiting.is_empty() {
            Ok(())
        } else {
            Err(Error::msg(waiting.join(", ")))
        }
    })
}

impl Cluster {
    fn of(lab: Lab, hosts: Vec<Host>) -> Result<Self> {
        let (Some(first), Some(last)) = (hosts.first(), hosts.last()) else {
            bail!("the lab {} has no host of a cluster", lab.name);
        };
        Ok(Self {
            lab,
            bootstrap: first.clone(),
            worker: last.clone(),
            hosts,
        })
    }

    /// The cluster of a lab that already runs: its hosts that have roles.
    pub fn attach(lab: Lab) -> Result<Self> {
        let mut hosts = lab.hosts()?;
        hosts.retain(|host| !host.spec.roles.is_empty());
        hosts.sort_by_key(|host| host.spec.number);
        Self::of(lab, hosts)
    }

    /// The same cluster managed from another of its hosts, which replaces `bootstrap`.
    pub fn managed_from(&self, name: &str) -> Result<Self> {
        Ok(Self {
            lab: self.lab.clone(),
            bootstrap: self.host(name)?.clone(),
            worker: self.worker.clone(),
            hosts: self.hosts.clone(),
        })
    }

    /// Its hosts, the first one first.
    #[must_use]
    pub fn hosts(&self) -> Vec<&Host> {
        self.hosts.iter().collect()
    }

    /// Returns whether it has the hosts of that layout.
    #[must_use]
    pub fn is_of(&self, layout: &Layout) -> bool {
        self.hosts
            .iter()
            .map(|host| host.spec.name.as_str())
            .eq(layout.names())
    }

    /// One host by name.
    pub fn host(&self, name: &str) -> Result<&Host> {
        let names: Vec<_> = self.hosts.iter().map(|h| h.spec.name.as_str()).collect();
        self.hosts
            .iter()
            .find(|host| host.spec.name == name)
            .with_context(|| {
                format!(
                    "the cluster has no host {name:?}; it has: {}",
                    names.join(", ")
                )
            })
    }

    /// The hosts with a control-plane role, whether they have joined or are bare.
    #[must_use]
    pub fn control_planes(&self) -> Vec<&Host> {
        self.hosts
            .iter()
            .filter(|host| host.spec.roles.contains(&Role::ControlPlane))
            .collect()
    }

    /// Bootstraps the first host, showing the output.
    pub fn bootstrap(&self, document: &str) -> Result<Duration> {
        bootstrap(&self.bootstrap, document)
    }

    /// Runs kubectl on the bootstrap host.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl(&self.bootstrap, args)
    }

    /// Runs kubectl on that host, which has a control plane.
    pub fn kubectl_on(&self, host: &str, args: &[&str]) -> Result<String> {
        kubectl(self.host(host)?, args)
    }

    /// Waits until every pod runs and is ready, or has done its job.
    pub fn wait_for_pods(&self, limit: Duration) -> Result<()> {
        wait_for_pods(&self.bootstrap, limit)
    }

    /// The same, checked on that host.
    pub fn wait_for_pods_on(&self, host: &str, limit: Duration) -> Result<()> {
        wait_for_pods(self.host(host)?, limit)
    }

    /// Fails if a packet tried to leave, or an unexpected name was queried.
    pub fn nothing_tried_to_leave(&self) -> Result<()> {
        self.lab.nothing_tried_to_leave()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::HA;

    pub(super) fn cluster(layout: &Layout) -> Cluster {
        let (lab, dir) = (
            Lab::new("x", Path::new("/base")).unwrap(),
            Path::new("/labs"),
        );
        let host =
            |member: &LayoutHost| Host::new("x", dir, Path::new("/base"), member.spec(vec![]));
        Cluster::of(lab, layout.hosts.iter().map(host).collect()).unwrap()
    }

    fn names<'a>(hosts: &[&'a Host]) -> Vec<&'a str> {
        hosts.iter().map(|host| host.spec.name.as_str()).collect()
    }

    #[test]
    fn hosts_are_found_by_name_and_by_role() {
        let ha = cluster(&HA);
        assert_eq!(names(&ha.hosts()), HA.names());
        assert_eq!(names(&ha.control_planes()), ["cp-1", "cp-2", "cp-3"]);
        assert_eq!(ha.bootstrap.spec.name, "cp-1");
        assert_eq!(ha.worker.spec.name, "worker-1");
        assert_eq!(
            ha.host("cp-2").unwrap().control_plane_address(),
            "10.10.0.12"
        );
        let error = ha.host("cp-4").unwrap_err().to_string();
        assert!(error.contains("cp-1, cp-2, cp-3, worker-1"), "{error}");
        assert!(ha.is_of(&HA) && !ha.is_of(&TWO));
    }
}
