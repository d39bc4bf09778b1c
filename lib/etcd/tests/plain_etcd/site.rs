//! The hosts of one test: each has an address, a certificate, a data directory and a process.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use halite_etcd::{Access, Changes, Client, Joined, Member, MemberHost, Members, Pace, RealPace};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use tempfile::TempDir;

/// The last byte of the next address: tests of one process share its part of 127.0.0.0/8.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// The timeout of a condition on a machine that also builds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The hosts of one test.
pub struct Site {
    dir: TempDir,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
    nodes: Vec<Node>,
}

/// A host. Its process is killed when the site is dropped.
pub struct Node {
    pub host: MemberHost,
    pub client_url: String,
    /// Further flags.
    pub flags: Vec<String>,
    address: Ipv4Addr,
    dir: PathBuf,
    process: Option<Child>,
}

impl Site {
    /// Hosts of these names; none runs.
    pub fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "etcd-ca");
        let ca = params.self_signed(&key).unwrap().pem();
        let mut site = Self {
            dir,
            ca,
            issuer: Issuer::new(params, key),
            nodes: Vec::new(),
        };
        for name in names {
            site.declare(name, address());
        }
        site
    }

    /// Another host, at its own address or at the address of a former host.
    pub fn declare(&mut self, name: &str, address: Ipv4Addr) {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let (certificate, key) = self.certificate(name, Some(address));
        std::fs::write(dir.join("ca.crt"), &self.ca).unwrap();
        std::fs::write(dir.join("tls.crt"), certificate).unwrap();
        std::fs::write(dir.join("tls.key"), key).unwrap();
        let host = MemberHost {
            name: name.to_owned(),
            peer_url: format!("https://{address}:2380"),
        };
        self.nodes.push(Node {
            host,
            client_url: format!("https://{address}:2379"),
            flags: Vec::new(),
            address,
            dir,
            process: None,
        });
    }

    fn certificate(&self, name: &str, address: Option<Ipv4Addr>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        // etcd compares a peer's names with the peer's source address, which is this one on
        // loopback.
        let addresses = address.map(|own| [own, Ipv4Addr::LOCALHOST]);
        let addresses = addresses.into_iter().flatten().map(IpAddr::V4);
        params.subject_alt_names = addresses.map(SanType::IpAddress).collect();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client's certificate.
    pub fn access(&self) -> Access {
        let (certificate, key) = self.certificate("halite-master", None);
        let ca = self.ca.clone();
        Access {
            ca,
            certificate,
            key,
        }
    }

    /// A client that knows all hosts, members or not.
    pub fn client(&self) -> Client {
        let urls = self.nodes.iter().map(|node| node.client_url.clone());
        Client::new(urls.collect(), &self.access()).unwrap()
    }

    pub fn node(&self, name: &str) -> &Node {
        self.nodes
            .iter()
            .find(|node| node.host.name == name)
            .unwrap()
    }

    pub fn node_mut(&mut self, name: &str) -> &mut Node {
        let found = self.nodes.iter_mut().find(|node| node.host.name == name);
        found.unwrap()
    }

    /// Founds the cluster with one member and waits until it answers.
    pub async fn found(&mut self, name: &str, client: &Client) {
        let node = self.node_mut(name);
        let cluster = format!("{name}={}", node.host.peer_url);
        node.start("new", &cluster);
        eventually("the first member answers", async || {
            client.list().await.is_ok()
        })
        .await;
    }

    /// Adds a learner and starts it.
    pub async fn add(&mut self, name: &str, client: &Client) -> Joined {
        let pace = pace();
        let changes = changes(client, &pace, PATIENCE);
        let node = self.node_mut(name);
        let joined = changes.add_learner(&node.host, true).await.unwrap();
        node.start("existing", &joined.initial_cluster);
        joined
    }

    /// Adds a member, starts it and gives it its vote.
    pub async fn join(&mut self, name: &str, client: &Client) -> Joined {
        let joined = self.add(name, client).await;
        let pace = pace();
        let changes = changes(client, &pace, PATIENCE);
        changes.promote(&self.node(name).host).await.unwrap();
        joined
    }
}

impl Node {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts etcd as a member of this initial cluster. A member that has data ignores it.
    pub fn start(&mut self, state: &str, initial_cluster: &str) {
        assert!(self.process.is_none(), "{} runs", self.host.name);
        let program = std::env::var_os("HALITE_ETCD").map(PathBuf::from);
        let program = program
            .expect("HALITE_ETCD has to name the program; `cargo lab test source:` builds it");
        let file = |name: &str| self.dir.join(name).display().to_string();
        let urls = [&self.client_url, &self.host.peer_url];
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .unwrap();
        let mut command = Command::new(program);
        command
            .args(["--name", &self.host.name, "--data-dir", &file("data")])
            .args([
                "--listen-client-urls",
                urls[0],
                "--advertise-client-urls",
                urls[0],
            ])
            .args([
                "--listen-peer-urls",
                urls[1],
                "--initial-advertise-peer-urls",
                urls[1],
            ])
            .args([
                "--initial-cluster",
                initial_cluster,
                "--initial-cluster-state",
                state,
            ])
            .args([
                "--cert-file",
                &file("tls.crt"),
                "--key-file",
                &file("tls.key"),
            ])
            .args([
                "--peer-cert-file",
                &file("tls.crt"),
                "--peer-key-file",
                &file("tls.key"),
            ])
            .args(["--trusted-ca-file", &file("ca.crt"), "--client-cert-auth"])
            .args([
                "--peer-trusted-ca-file",
                &file("ca.crt"),
                "--peer-client-cert-auth",
            ])
            // A killed process loses nothing that the kernel has; the lab tests power cuts.
            .arg("--unsafe-no-fsync")
            .args([
                "--log-level",
                "warn",
                "--heartbeat-interval",
                "200",
                "--election-timeout",
                "2000",
            ])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Starts a member that has data.
    pub fn start_again(&mut self) {
        let cluster = format!("{}={}", self.host.name, self.host.peer_url);
        self.start("existing", &cluster);
    }

    /// Returns whether the process has ended by itself.
    pub fn has_ended(&self) -> bool {
        let id = self.process.as_ref().unwrap().id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        // The name is in brackets and may have spaces; a process that has ended is a zombie.
        stat.rsplit(')').next().unwrap().starts_with(" Z")
    }

    /// Kills the process (SIGKILL), as a power cut of the host does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Its warnings and errors so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap()
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn wipe(&self) {
        std::fs::remove_dir_all(self.data()).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An unused address of this process.
pub fn address() -> Ipv4Addr {
    let [high, low] = u16::try_from(std::process::id() % 0xfa00)
        .unwrap()
        .to_be_bytes();
    Ipv4Addr::new(127, high + 2, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Changes with this limit.
pub fn changes<'a>(members: &'a dyn Members, pace: &'a dyn Pace, limit: Duration) -> Changes<'a> {
    Changes {
        members,
        pace,
        limit,
        prefer: None,
    }
}

pub fn pace() -> RealPace {
    RealPace::new(Duration::from_millis(100))
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        // Without a pause, the questions would take the processor from the members.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks until there is an answer: while a leader is elected, after a kill or on a busy machine,
/// etcd refuses reads.
pub async fn answered<T, E: std::fmt::Display>(
    what: &str,
    question: impl AsyncFn() -> Result<T, E>,
) -> T {
    let start = Instant::now();
    loop {
        match question().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(start.elapsed() < PATIENCE, "no answer to {what}: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The names of the voting members, sorted.
pub async fn voters(client: &Client) -> Vec<String> {
    let members = answered("who is a member", async || client.list().await).await;
    let mut names: Vec<String> = members
        .iter()
        .filter(|member| !member.is_learner)
        .map(Member::title)
        .collect();
    names.sort();
    names
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .unwrap();
    assert!(copied.success());
}
