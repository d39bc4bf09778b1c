//! The two-host cluster of the demonstration and of the cluster suites: one host bootstrapped from
//! the bundle, the other added.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};

use crate::host::{Host, Spec};
use crate::{Lab, capacity, wait};

/// Directory on the bootstrap host with what an operator carries to a site: the signed ISO, a `ctl`,
/// and the public key.
pub const ISO_DIRECTORY: &str = "/media/halite";

/// The same of a newer release, on the one lab whose site has two.
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

/// The first host: control plane, etcd, master, bundle.
pub const BOOTSTRAP: &str = "bootstrap-1";

/// The second host, in the second of the control-plane networks.
pub const WORKER: &str = "worker-1";

/// A cluster of the lab.
pub struct Cluster {
    /// The lab that its hosts are in.
    pub lab: Lab,
    /// The bootstrap host.
    pub bootstrap: Host,
    /// The worker.
    pub worker: Host,
}

/// Path of the cluster document on the first host.
pub const DOCUMENT: &str = "/etc/halite/cluster.yaml";

/// The cluster document of the demonstration. Everything below `kubelet` is for what this kernel
/// lacks, and for a machine whose disk is nearly full by the kubelet's measure, which is a share of
/// the whole; any operator can set the same keys.
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
"#;

/// Boots two bare hosts; the first has the directory that the operator carried, read-only.
pub fn boot_hosts(lab: Lab, iso_directory: &Path) -> Result<Cluster> {
    let bootstrap = boot_bootstrap(&lab, iso_directory)?;
    let worker = boot_worker(&lab)?;
    Ok(Cluster {
        lab,
        bootstrap,
        worker,
    })
}

/// The same, with what the operator carried of a newer release beside it.
pub fn boot_hosts_with(lab: Lab, iso_directory: &Path, newer: &Path) -> Result<Cluster> {
    let bootstrap = boot_first(&lab, &[(iso_directory, ISO_DIRECTORY), (newer, NEWER)])?;
    let worker = boot_worker(&lab)?;
    Ok(Cluster {
        lab,
        bootstrap,
        worker,
    })
}

/// Boots the first host, with the directory that the operator carried, read-only.
pub fn boot_bootstrap(lab: &Lab, iso_directory: &Path) -> Result<Host> {
    boot_first(lab, &[(iso_directory, ISO_DIRECTORY)])
}

/// Boots a host in the place of the first, on which the bundle's directory stands where it will
/// stand on ours.
pub fn boot_peer(lab: &Lab, bundle: &Path) -> Result<Host> {
    boot_first(lab, &[(bundle, BUNDLE)])
}

fn boot_first(lab: &Lab, directories: &[(&Path, &str)]) -> Result<Host> {
    lab.boot(Spec {
        name: BOOTSTRAP.to_owned(),
        number: 11,
        second_network: false,
        read_only: directories
            .iter()
            .map(|(directory, place)| ((*directory).to_owned(), PathBuf::from(place)))
            .collect(),
        inotify: capacity::CONTROL_PLANE,
    })
}

/// Boots the second host.
pub fn boot_worker(lab: &Lab) -> Result<Host> {
    lab.boot(Spec {
        name: WORKER.to_owned(),
        number: 12,
        second_network: true,
        read_only: Vec::new(),
        inotify: capacity::WORKER,
    })
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

/// Writes the cluster document and bootstraps a bare host, showing what that shows.
pub fn bootstrap(host: &Host, document: &str) -> Result<Duration> {
    std::fs::write(host.root().join("root/cluster.yaml"), document)?;
    let start = Instant::now();
    let install = install();
    let status = host.command(&install)?.status()?;
    if !status.success() {
        bail!(
            "bootstrap failed; run it again with: cargo lab sh {BOOTSTRAP} -- {}",
            install.join(" ")
        );
    }
    Ok(start.elapsed())
}

/// Waits until every pod of the cluster whose first host is `host` runs and is ready, or has done
/// its job.
pub fn wait_for_pods(host: &Host, limit: Duration) -> Result<()> {
    wait::until("all pods to run", limit, || {
        let text = host.run(&["kubectl", "get", "pods", "-A", "-o", "json"])?;
        let list: serde_json::Value = serde_json::from_str(&text)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let waiting: Vec<String> = items
            .iter()
            // A pod of a job that is done is no longer ready, rightly.
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
            Err(anyhow!("no pod is there"))
        } else if waiting.is_empty() {
            Ok(())
        } else {
            Err(Error::msg(waiting.join(", ")))
        }
    })
}

/// `ctl node add` that does not wait.
fn only_declares(mut add: Vec<String>) -> Vec<String> {
    add.extend(["--no-wait", "-o", "json"].map(str::to_owned));
    add
}

impl Cluster {
    /// Its hosts, the first one first.
    #[must_use]
    pub fn hosts(&self) -> [&Host; 2] {
        [&self.bootstrap, &self.worker]
    }

    /// The cluster of a lab that already runs.
    pub fn attach(lab: Lab) -> Result<Self> {
        let bootstrap = lab.host(BOOTSTRAP)?;
        let worker = lab.host(WORKER)?;
        Ok(Self {
            lab,
            bootstrap,
            worker,
        })
    }

    /// Bootstraps the first host, showing what that shows.
    pub fn bootstrap(&self, document: &str) -> Result<Duration> {
        bootstrap(&self.bootstrap, document)
    }

    /// The command that adds the worker; it declares it, and waits until it is Ready.
    #[must_use]
    pub fn add_command(&self) -> Vec<String> {
        self.add_command_with("worker")
    }

    fn add_command_with(&self, roles: &str) -> Vec<String> {
        let address = self.worker.control_plane_address();
        [
            "ctl",
            "node",
            "add",
            WORKER,
            "--address",
            &address,
            "--roles",
            roles,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// The command that only declares the worker, and prints what must run on it.
    #[must_use]
    pub fn declare_command(&self) -> Vec<String> {
        only_declares(self.add_command())
    }

    /// Declares the worker; returns the shell line that must run on it.
    pub fn declare_worker(&self) -> Result<String> {
        self.declared(&self.declare_command())
    }

    fn declared(&self, command: &[String]) -> Result<String> {
        let answer: serde_json::Value = serde_json::from_str(&self.bootstrap.run(command)?)
            .context("`ctl node add -o json` did not print JSON")?;
        Ok(answer["command"]
            .as_str()
            .context("`ctl node add` printed no command")?
            .to_owned())
    }

    /// Runs the printed line on the worker.
    pub fn enrol_worker(&self, command: &str) -> Result<()> {
        let enrol = self.worker.output(&["sh", "-c", command])?;
        if !enrol.status.success() {
            bail!(
                "enrolling {WORKER} failed: {}{}",
                String::from_utf8_lossy(&enrol.stdout),
                String::from_utf8_lossy(&enrol.stderr)
            );
        }
        Ok(())
    }

    /// Declares the worker, runs the printed command on it, and waits until it is Ready.
    pub fn add_worker(&self) -> Result<Duration> {
        self.add_worker_with("worker")
    }

    /// The same with other roles, parted by commas.
    pub fn add_worker_with(&self, roles: &str) -> Result<Duration> {
        let start = Instant::now();
        let add = self.add_command_with(roles);
        let command = self.declared(&only_declares(add.clone()))?;
        self.enrol_worker(&command)?;
        // Repeating the command is how one waits: it changes nothing.
        if !self.bootstrap.command(&add)?.status()?.success() {
            bail!("adding {WORKER} failed");
        }
        Ok(start.elapsed())
    }

    /// Runs kubectl on the bootstrap host.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["kubectl"];
        all.extend(args);
        self.bootstrap.run(&all)
    }

    /// Waits until every pod runs and is ready, or has done its job.
    pub fn wait_for_pods(&self, limit: Duration) -> Result<()> {
        wait_for_pods(&self.bootstrap, limit)
    }

    /// Fails when a packet tried to leave, or an unexpected name was asked for.
    pub fn nothing_tried_to_leave(&self) -> Result<()> {
        let packets = self.lab.router.escaped()?;
        let names = self.lab.router.unexpected_names()?;
        if packets != 0 || !names.is_empty() {
            bail!("{packets} packets tried to leave; unexpected names asked: {names:?}");
        }
        Ok(())
    }
}
