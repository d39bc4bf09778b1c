//! The lab's network: a router in its own namespace with two control-plane networks and one
//! workload network, and the two detectors. Nothing routes beyond it; attempts are rejected and
//! counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::command::{output, run};

/// One of the lab's networks, all /24 with the router at .1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// The first of the control-plane CIDRs.
    ControlPlane0,
    /// The second of the control-plane CIDRs.
    ControlPlane1,
    /// The workload plane.
    Workload,
}

impl Network {
    /// All networks.
    pub const ALL: [Self; 3] = [Self::ControlPlane0, Self::ControlPlane1, Self::Workload];

    /// First three octets.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::ControlPlane0 => "10.10.0",
            Self::ControlPlane1 => "10.10.1",
            Self::Workload => "10.20.0",
        }
    }

    /// The hardware address of host `number`: the same after each boot, like that of a real network
    /// card. Locally administered, then the IPv4 address.
    pub(crate) fn mac(self, number: u8) -> String {
        let network = self
            .prefix()
            .split('.')
            .filter_map(|octet| octet.parse::<u8>().ok());
        let bytes: Vec<String> = network
            .chain([number])
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("02:00:{}", bytes.join(":"))
    }

    /// The address of host `number`.
    #[must_use]
    pub fn address(self, number: u8) -> String {
        format!("{}.{number}", self.prefix())
    }

    fn bridge(self) -> &'static str {
        match self {
            Self::ControlPlane0 => "cp0",
            Self::ControlPlane1 => "cp1",
            Self::Workload => "wp",
        }
    }
}

/// Rules that reject and count, as `egress`, packets for an address outside the lab; bridged
/// traffic passes here too, so packets that by definition stay on their link are accepted. Cluster
/// addresses that reach the router (a Service used before kube-proxy knows it) are rejected too,
/// but do not count as an attempt to leave.
const RULES: &str = "
table inet lab {
  counter egress { }
  counter cluster { }
  chain forward {
    type filter hook forward priority 0; policy accept;
    ip daddr { 10.10.0.0/16, 10.20.0.0/16, 224.0.0.0/24 } accept
    ip6 daddr { fe80::/10, ff02::/16 } accept
    ip daddr { 10.96.0.0/12, 10.233.0.0/16 } counter name cluster reject
    counter name egress reject
  }
}
";

/// The router of one lab.
#[derive(Debug, Clone)]
pub struct Router {
    /// Name of its network namespace.
    pub namespace: String,
    /// File in which the resolver records the queried names.
    pub queries: PathBuf,
}

impl Router {
    /// The router of the lab `lab`, whose files are in `dir`.
    #[must_use]
    pub fn new(lab: &str, dir: &Path) -> Self {
        Self {
            namespace: format!("hl-{lab}-router"),
            queries: dir.join("queries.log"),
        }
    }

    /// Makes namespace, bridges, rules and resolver, unless they exist.
    pub fn up(&self) -> Result<()> {
        self.bridges()?;
        self.start_resolver()
    }

    /// Makes namespace, bridges and rules, unless they exist.
    pub fn bridges(&self) -> Result<()> {
        let ns = self.namespace.as_str();
        if !namespace_exists(ns) {
            run("ip", &["netns", "add", ns])?;
            run("ip", &["-n", ns, "link", "set", "lo", "up"])?;
            for network in Network::ALL {
                let bridge = network.bridge();
                let address = format!("{}.1/24", network.prefix());
                // Without its own address, a bridge changes it with its ports.
                let mac = network.mac(1);
                run(
                    "ip",
                    &[
                        "-n", ns, "link", "add", bridge, "address", &mac, "type", "bridge",
                    ],
                )?;
                run("ip", &["-n", ns, "addr", "add", &address, "dev", bridge])?;
                run("ip", &["-n", ns, "link", "set", bridge, "up"])?;
            }
            // Without a default route the kernel would refuse such packets before the rules could
            // see and count them.
            run(
                "ip",
                &[
                    "-n",
                    ns,
                    "route",
                    "add",
                    "default",
                    "dev",
                    Network::Workload.bridge(),
                ],
            )?;
            run(
                "ip",
                &[
                    "netns",
                    "exec",
                    ns,
                    "sh",
                    "-c",
                    "echo 1 > /proc/sys/net/ipv4/ip_forward",
                ],
            )?;
            run("ip", &["netns", "exec", ns, "nft", RULES])?;
        }
        Ok(())
    }

    fn start_resolver(&self) -> Result<()> {
        let pid_file = self.queries.with_extension("pid");
        if let Ok(pid) = fs::read_to_string(&pid_file)
            && fs::read_to_string(format!("/proc/{}/cmdline", pid.trim()))
                .is_ok_and(|c| c.contains("resolver"))
        {
            return Ok(());
        }
        let program = crate::command::this_program();
        let child = Command::new("setsid")
            .args(["ip", "netns", "exec", &self.namespace])
            .arg(program)
            .arg("resolver")
            .arg(&self.queries)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.queries.with_extension("err"))?)
            .spawn()
            .context("cannot start the lab's resolver")?;
        // setsid and ip both exec, so the pid stays.
        fs::write(pid_file, child.id().to_string())?;
        Ok(())
    }

    /// Connects a namespace to a network as interface `interface` with host number `number`.
    pub fn plug(
        &self,
        namespace: &str,
        interface: &str,
        network: Network,
        number: u8,
    ) -> Result<()> {
        let ns = self.namespace.as_str();
        let port = format!("{}-{number}", network.bridge());
        let address = format!("{}.{number}/24", network.prefix());
        let mac = network.mac(number);
        let end = [
            "link", "add", interface, "address", &mac, "netns", namespace, "type", "veth",
        ];
        run(
            "ip",
            &[end.as_slice(), &["peer", "name", &port, "netns", ns]].concat(),
        )?;
        run(
            "ip",
            &[
                "-n",
                ns,
                "link",
                "set",
                &port,
                "master",
                network.bridge(),
                "up",
            ],
        )?;
        run(
            "ip",
            &["-n", namespace, "addr", "add", &address, "dev", interface],
        )?;
        run("ip", &["-n", namespace, "link", "set", interface, "up"])?;
        Ok(())
    }

    /// Packets that tried to leave the lab so far.
    pub fn escaped(&self) -> Result<u64> {
        let ns = self.namespace.as_str();
        let counter = run(
            "ip",
            &[
                "netns", "exec", ns, "nft", "list", "counter", "inet", "lab", "egress",
            ],
        )?;
        counter
            .split_whitespace()
            .skip_while(|w| *w != "packets")
            .nth(1)
            .and_then(|n| n.parse().ok())
            .with_context(|| format!("cannot read the egress counter: {counter}"))
    }

    /// Names that were queried although no offline site needs them.
    pub fn unexpected_names(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(&self.queries).unwrap_or_default();
        let mut names: Vec<String> = text
            .lines()
            .filter(|n| !super::resolver::expected(n))
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Stops the resolver and removes the namespace.
    pub fn down(&self) -> Result<()> {
        let pid_file = self.queries.with_extension("pid");
        if let Ok(pid) = fs::read_to_string(&pid_file) {
            let pid = pid.trim();
            if fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|c| c.contains("resolver"))
            {
                output("kill", &[pid])?;
            }
            fs::remove_file(&pid_file)?;
        }
        if namespace_exists(&self.namespace) {
            run("ip", &["netns", "del", &self.namespace])?;
        }
        Ok(())
    }
}

/// Returns whether a named network namespace exists.
#[must_use]
pub fn namespace_exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_says_which_host_it_is() {
        assert_eq!(Network::ControlPlane1.mac(12), "02:00:0a:0a:01:0c");
        assert_eq!(Network::Workload.mac(255), "02:00:0a:14:00:ff");
    }
}
