//! Sources of scans: the other host, a stranger on one of the networks, a pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use halite_lab::cluster::Cluster;
use halite_lab::command::{output, run};
use halite_lab::host::Host;
use halite_lab::net::{Network, namespace_exists};
use halite_lab::scan::Findings;
use halite_lab::wait;

/// A source of scans.
pub struct ScanSource {
    /// Name for messages.
    pub name: String,
    /// Command that enters its network namespace.
    enter: Vec<String>,
    /// The node whose connection table its packets pass.
    node: Option<Host>,
    /// Set for a pod.
    pub pod: bool,
}

impl ScanSource {
    /// A host of the cluster.
    pub fn host(host: &Host) -> Self {
        Self {
            name: host.spec.name.clone(),
            enter: ["ip", "netns", "exec", &host.namespace()]
                .map(str::to_owned)
                .to_vec(),
            node: Some(host.clone()),
            pod: false,
        }
    }

    /// The pod with that address on `node`.
    pub fn pod(node: &Host, name: &str, address: &str) -> Result<Self> {
        let init = node
            .init()
            .with_context(|| format!("{} does not run", node.spec.name))?;
        for entry in std::fs::read_dir(format!("/proc/{init}/root/run/netns"))? {
            let entered = format!("--net={}", entry?.path().display());
            let addresses = output(
                "nsenter",
                &[&entered, "ip", "-4", "-o", "addr", "show", "dev", "eth0"],
            )?;
            if String::from_utf8_lossy(&addresses.stdout).contains(&format!("inet {address}/")) {
                let enter = vec!["nsenter".to_owned(), entered];
                return Ok(Self {
                    name: format!("pod {name}"),
                    enter,
                    node: Some(node.clone()),
                    pod: true,
                });
            }
        }
        bail!(
            "no network namespace on {} has the address {address}",
            node.spec.name
        )
    }

    /// Returns whether it is a pod of that node: then the node sees the pod's own address.
    pub fn lives_on(&self, host: &Host) -> bool {
        self.pod
            && self
                .node
                .as_ref()
                .is_some_and(|node| node.spec.name == host.spec.name)
    }

    /// Scans `target`. Half-open connections are deleted from the node's connection table at once:
    /// the table is finite.
    pub fn scan(&self, target: &str, udp: &[u16], again: &BTreeSet<u16>) -> Result<Findings> {
        let udp = udp.iter().map(|port| format!("--udp={port}"));
        let again = again.iter().map(|port| format!("--again={port}"));
        let found = self.run_scan(target, udp.chain(again))?;
        if let Some(node) = &self.node {
            node.output(&["conntrack", "-D", "-p", "tcp", "--state", "SYN_SENT"])?;
        }
        Ok(found)
    }

    /// The answers of `target` at these TCP ports.
    pub fn among(&self, target: &str, ports: &BTreeSet<u16>) -> Result<Findings> {
        let only = ports.iter().map(|port| format!("--only={port}"));
        self.run_scan(target, only)
    }

    fn run_scan(&self, target: &str, options: impl Iterator<Item = String>) -> Result<Findings> {
        let program = halite_lab::command::this_program();
        let mut args: Vec<String> = self.enter[1..].to_vec();
        args.extend([
            program.display().to_string(),
            "scan".to_owned(),
            target.to_owned(),
        ]);
        args.extend(options);
        let text =
            run(&self.enter[0], &args).with_context(|| format!("{} scans {target}", self.name))?;
        serde_json::from_str(&text).with_context(|| format!("the scan printed {text:?}"))
    }

    /// The source address that `target` sees: flannel masquerades packets that a pod sends beyond
    /// its node and the pods' network.
    pub fn seen_as(&self, host: &Host, target: IpAddr, own: IpAddr) -> Result<IpAddr> {
        let Some(node) = self
            .node
            .as_ref()
            .filter(|_| self.pod && !self.lives_on(host))
        else {
            return Ok(own);
        };
        let route = node.run(&["ip", "-o", "route", "get", &target.to_string()])?;
        let source = route
            .split_whitespace()
            .skip_while(|word| *word != "src")
            .nth(1);
        source
            .and_then(|s| s.parse().ok())
            .with_context(|| format!("a route without a source: {route}"))
    }
}

/// A machine on one of the networks that is not part of the site. It is removed on drop.
pub struct Stranger {
    namespace: String,
    /// The stranger as a source of scans.
    pub source: ScanSource,
}

/// Name of its interface.
pub const INTERFACE: &str = "eth0";

impl Stranger {
    /// Adds a stranger to the network as host `number`.
    pub fn plug(cluster: &Cluster, network: Network, number: u8) -> Result<Self> {
        let namespace = format!(
            "hl-{}-stranger{number}-{}",
            cluster.lab.name,
            network.prefix()
        );
        if namespace_exists(&namespace) {
            run("ip", &["netns", "del", &namespace])?;
        }
        run("ip", &["netns", "add", &namespace])?;
        let stranger = Self {
            source: ScanSource {
                name: format!("stranger {}.{number}", network.prefix()),
                enter: ["ip", "netns", "exec", &namespace]
                    .map(str::to_owned)
                    .to_vec(),
                node: None,
                pod: false,
            },
            namespace,
        };
        let namespace = stranger.namespace.as_str();
        cluster
            .lab
            .router
            .plug(namespace, INTERFACE, network, number)?;
        run(
            "ip",
            &[
                "-n",
                namespace,
                "route",
                "add",
                "default",
                "via",
                &format!("{}.1", network.prefix()),
            ],
        )?;
        wait::until(
            "the stranger's IPv6 address",
            std::time::Duration::from_secs(30),
            || {
                link_local(
                    |args| run("ip", &[&["-n", namespace], args].concat()),
                    INTERFACE,
                )
            },
        )?;
        Ok(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // A failure here has no remedy; the next stranger of that name tries again.
        let _ = output("ip", &["netns", "del", &self.namespace]);
    }
}

/// The IPv6 link-local address of an interface, once it is usable. `ip` runs the program of that
/// name in the interface's network namespace.
pub fn link_local(ip: impl Fn(&[&str]) -> Result<String>, interface: &str) -> Result<IpAddr> {
    let text = ip(&[
        "-6",
        "-o",
        "addr",
        "show",
        "dev",
        interface,
        "scope",
        "link",
        "-tentative",
    ])?;
    let address = text
        .split_whitespace()
        .skip_while(|word| *word != "inet6")
        .nth(1);
    let address = address
        .and_then(|a| a.split('/').next())
        .and_then(|a| a.parse().ok());
    address.with_context(|| format!("{interface} has no IPv6 link-local address: {text:?}"))
}
