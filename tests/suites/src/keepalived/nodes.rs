//! Three network namespaces, in each of which the real keepalived and a fake API server run in
//! their own root. No host is booted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::{output, run};
use halite_lab::host::Host;
use halite_lab::layout::{HA, LayoutHost};
use halite_lab::net::namespace_exists;
use halite_lab::{Lab, run_dir};

use super::rendered;
use super::rendered::INTERFACE;
use crate::availability::holders::Network;

/// Name of the lab, whose router connects the namespaces.
const LAB: &str = "vrrp";

/// Processes with their own mount and pid namespaces: all end with the first of them.
const INSIDE: [&str; 4] = ["--mount", "--pid", "--fork", "--kill-child"];

/// Mounts a root: mount point, lower layers, upper layer, work directory.
const MOUNT: &str = r#"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3,workdir=$4" "$1"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
"#;

/// Installs keepalived from the bundle (fifth argument) with the real apt, and makes the
/// certificate of the API servers with the names of the sixth.
const INSTALL: &str = r#"
mkdir -p "$1/media/bundle"
mount --bind "$5" "$1/media/bundle"
printf '#!/bin/sh\nexit 101\n' > "$1/usr/sbin/policy-rc.d"
chmod 0755 "$1/usr/sbin/policy-rc.d"
exec chroot "$1" sh -ec '
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
install -D -m 0644 /media/bundle/apt/halite.gpg /etc/apt/keyrings/bundle.gpg
echo "deb [signed-by=/etc/apt/keyrings/bundle.gpg] file:/media/bundle/apt stable main" > /etc/apt/sources.list.d/bundle.list
apt-get -q update
apt-get -q -y --no-install-recommends install keepalived
mkdir -p /etc/kubernetes/pki
cd /etc/kubernetes/pki
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=api \
  -addext "subjectAltName=$1" -keyout server.key -out ca.crt
' sh "$6"
"#;

/// Runs the API server, which answers with the files of the directory in the fifth argument, and
/// keepalived.
const RUN: &str = r#"
mount --bind "$5" "$1/srv"
exec chroot "$1" sh -ec '
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /srv
openssl s_server -quiet -accept 6443 -cert /etc/kubernetes/pki/ca.crt -key /etc/kubernetes/pki/server.key -HTTP &
exec keepalived --dont-fork --log-console
'
"#;

/// The namespaces, with everything that runs in them. They are removed when this is dropped.
pub(super) struct Nodes {
    pub(super) lab: Lab,
    pub(super) all: Vec<Node>,
}

/// A node.
pub(super) struct Node {
    /// Its name, numbers and namespace; it is never booted.
    pub(super) host: Host,
    dir: PathBuf,
    process: Child,
}

impl Nodes {
    /// Starts three nodes on a base root, with the packages of a bundle. Each API server is ready.
    pub(super) fn start(base: &Path, bundle: &Path) -> Result<Self> {
        let lab = Lab::new(LAB, base)?;
        let dir = run_dir().join(LAB);
        clear(&lab, &dir)?;
        let mut nodes = Self {
            lab,
            all: Vec::new(),
        };
        let members: Vec<&LayoutHost> = (HA.hosts.iter())
            .filter(|member| member.is_control_plane())
            .collect();
        let names = members
            .iter()
            .map(|member| format!("IP:{}", member.network.address(member.number)))
            .collect::<Vec<_>>();
        let installed = install(&dir.join("installed"), base, bundle, &names.join(","))?;
        nodes.lab.router.bridges()?;
        for member in members {
            let node = nodes.node(member, &dir, &installed, base)?;
            nodes.all.push(node);
        }
        Ok(nodes)
    }

    fn node(&self, member: &LayoutHost, dir: &Path, installed: &Path, base: &Path) -> Result<Node> {
        let host = Host::new(LAB, dir, base, member.spec(Vec::new()));
        let namespace = host.namespace();
        run("ip", &["netns", "add", &namespace])?;
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"])?;
        let router = &self.lab.router;
        router.plug(&namespace, INTERFACE, member.network, member.number)?;
        let dir = dir.join(member.name);
        for part in ["root", "work", "ready"] {
            fs::create_dir_all(dir.join(part))?;
        }
        for file in rendered::files(member)? {
            let path = dir.join("upper").join(file.path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().context("no directory")?)?;
            fs::write(&path, file.contents)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
        }
        answer(&dir, true)?;
        let log = fs::File::create(dir.join("log"))?;
        let lower = format!("{}:{}", installed.display(), base.display());
        let process = Command::new("ip")
            .args(["netns", "exec", &namespace, "unshare"])
            .args(INSIDE)
            .args(["sh", "-ec", &format!("{MOUNT}{RUN}"), "sh"])
            .arg(dir.join("root"))
            .arg(lower)
            .args([dir.join("upper"), dir.join("work"), dir.join("ready")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start ip netns exec")?;
        Ok(Node { host, dir, process })
    }

    /// A node by name.
    pub(super) fn node_named(&self, name: &str) -> Result<&Node> {
        let found = self.all.iter().find(|node| node.host.spec.name == name);
        found.with_context(|| format!("there is no node {name}"))
    }

    /// The networks, for a sampler.
    pub(super) fn networks(&self) -> Vec<Network> {
        let network = |node: &Node| {
            let process = node.process.id();
            Network {
                name: node.host.spec.name.clone(),
                process: Box::new(move || Some(process)),
            }
        };
        self.all.iter().map(network).collect()
    }

    /// The output of each node, for an error.
    pub(super) fn logs(&self) -> String {
        let log = |node: &Node| {
            let text = node.log();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines
                .get(lines.len().saturating_sub(25)..)
                .unwrap_or_default();
            format!("{}:\n{}", node.host.spec.name, last.join("\n"))
        };
        self.all.iter().map(log).collect::<Vec<_>>().join("\n")
    }
}

impl Node {
    /// Makes its API server ready, or not.
    pub(super) fn set_ready(&self, ready: bool) -> Result<()> {
        answer(&self.dir, ready)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// The number of times that its keepalived has started to wait for the address.
    pub(super) fn times_a_backup(&self) -> usize {
        self.log().matches("Entering BACKUP STATE").count()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.all {
            // Its processes and mounts disappear with it.
            let _ = node.process.kill();
            let _ = node.process.wait();
        }
        if let Err(error) = clear(&self.lab, &run_dir().join(LAB)) {
            println!("  cannot remove the namespaces of {LAB}: {error:#}");
        }
    }
}

/// Replaces the answer of an API server to `/readyz`, at once.
fn answer(dir: &Path, ready: bool) -> Result<()> {
    let (status, text) = if ready {
        ("200 OK", "ok")
    } else {
        ("500 Internal Server Error", "no")
    };
    let next = dir.join("ready/.readyz");
    let length = text.len();
    let answer = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{text}"
    );
    fs::write(&next, answer)?;
    fs::rename(&next, dir.join("ready/readyz"))?;
    Ok(())
}

/// Makes a layer with keepalived over the base root; returns its directory.
fn install(dir: &Path, base: &Path, bundle: &Path, names: &str) -> Result<PathBuf> {
    for part in ["root", "upper", "work"] {
        fs::create_dir_all(dir.join(part))?;
    }
    let upper = dir.join("upper");
    let output = Command::new("unshare")
        .args(INSIDE)
        .args(["sh", "-ec", &format!("{MOUNT}{INSTALL}"), "sh"])
        .arg(dir.join("root"))
        .args([base, &upper, &dir.join("work"), bundle])
        .arg(names)
        .stdin(Stdio::null())
        .output()
        .context("cannot start unshare")?;
    ensure!(
        output.status.success(),
        "cannot install keepalived from {}: {}{}",
        bundle.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(upper)
}

/// Removes leftovers of an earlier run.
fn clear(lab: &Lab, dir: &Path) -> Result<()> {
    for member in HA.hosts {
        let namespace = Host::new(LAB, dir, Path::new(""), member.spec(Vec::new())).namespace();
        if !namespace_exists(&namespace) {
            continue;
        }
        for process in run("ip", &["netns", "pids", &namespace])?.split_whitespace() {
            output("kill", &["-9", process])?;
        }
        // A namespace is removed some time after its deletion; its cable must be free at once.
        output("ip", &["-n", &namespace, "link", "del", INTERFACE])?;
        run("ip", &["netns", "del", &namespace])?;
    }
    lab.router.down()?;
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}
