//! The firewall: a scan of all ports from all sources must equal the table that follows from the
//! roles, in both directions; foreign settings stay.

mod during;
mod foreign;
mod of_three;
mod source;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::net::Network;
use halite_lab::wait;

use self::source::{INTERFACE, ScanSource, Stranger, link_local};
use self::table::{Arrival, SSH, Table};
use crate::cluster::{PODS, delete};
use crate::test::{Counts, Test};

pub(super) use self::during::during;
pub(super) use self::of_three::{all_ports, all_ports_of_others};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "firewall: scans equal the table of the roles",
        run: scans,
    },
    Test {
        name: "firewall: foreign settings stay",
        run: foreign::stays,
    },
];

/// Host number of a stranger on each network.
const STRANGER: u8 = 200;

/// The port of the pod network between nodes.
const VXLAN: u16 = 8472;
/// UDP ports that are scanned in addition to the NodePort: DNS, DHCP, VXLAN with both its ports,
/// WireGuard, and Halite's TCP ports.
const UDP: [u16; 10] = [53, 68, 546, 2379, 4550, 4789, 6443, VXLAN, 10250, 51820];

/// Manifests of a server on each host behind one NodePort, TCP and UDP.
const SERVERS: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: scan}}
- apiVersion: apps/v1
  kind: DaemonSet
  metadata: {name: target, namespace: scan}
  spec:
    selector: {matchLabels: {app: target}}
    template:
      metadata: {labels: {app: target}}
      spec:
        terminationGracePeriodSeconds: 1
        tolerations: [{operator: Exists}]
        containers:
        - name: server
          image: registry.lab.internal/lab-pod:1
          args: [serve, --http-port=8080, --udp-port=8081]
          # One that is late stays in the Service.
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 30}
- apiVersion: v1
  kind: Service
  metadata: {name: target, namespace: scan}
  spec:
    type: NodePort
    selector: {app: target}
    ports:
    - {name: http, port: 80, targetPort: 8080, nodePort: 31337}
    - {name: udp, port: 80, targetPort: 8081, nodePort: 31337, protocol: UDP}
"#;

/// The NodePort of [`SERVERS`].
const NODE_PORT: u16 = 31337;

/// Limit until everything is let in that the table opens.
const LET_IN: Duration = Duration::from_secs(180);

fn scans(cluster: &Cluster) -> Result<Counts> {
    fs::write(cluster.bootstrap.root().join("root/scan.yaml"), SERVERS)?;
    cluster.kubectl(&["apply", "-f", "/root/scan.yaml"])?;
    let result = cluster.wait_for_pods(PODS).and_then(|()| scan_all(cluster));
    delete(cluster, &["-f", "/root/scan.yaml"])?;
    result
}

/// A scan of one address of one host from one source.
struct Ask<'a> {
    source: &'a ScanSource,
    host: &'a Host,
    to: IpAddr,
    /// The source's own interface to the target's link, for a link-local address.
    interface: Option<&'static str>,
}

fn scan_all(cluster: &Cluster) -> Result<Counts> {
    let (bootstrap, worker) = (&cluster.bootstrap, &cluster.worker);
    let on_bootstrap = ScanSource::host(bootstrap);
    let on_worker = ScanSource::host(worker);
    let control = Stranger::plug(cluster, Network::ControlPlane0, STRANGER)?;
    let workload = Stranger::plug(cluster, Network::Workload, STRANGER)?;
    let pod_on_bootstrap = pod(cluster, bootstrap)?;
    let pod_on_worker = pod(cluster, worker)?;

    let address = |text: String| {
        text.parse::<IpAddr>()
            .with_context(|| format!("{text:?} is not an address"))
    };
    let plane = |host: &Host| address(host.control_plane_address());
    let work = |host: &Host| address(host.workload_address());
    let link =
        |host: &Host, interface| link_local(|args| host.run(&[&["ip"], args].concat()), interface);
    let vip = address("10.10.0.100".to_owned())?;
    let ask = |source, host, to| Ask {
        source,
        host,
        to,
        interface: None,
    };
    let near = |source, host, to| Ask {
        source,
        host,
        to,
        interface: Some(INTERFACE),
    };
    let asks = [
        ask(&on_worker, bootstrap, plane(bootstrap)?),
        ask(&on_worker, bootstrap, work(bootstrap)?),
        ask(&on_worker, bootstrap, vip),
        ask(&on_bootstrap, worker, plane(worker)?),
        ask(&on_bootstrap, worker, work(worker)?),
        ask(&control.source, bootstrap, plane(bootstrap)?),
        near(&control.source, bootstrap, link(bootstrap, "eth0")?),
        ask(&control.source, bootstrap, work(bootstrap)?),
        ask(&control.source, worker, plane(worker)?),
        ask(&workload.source, bootstrap, work(bootstrap)?),
        ask(&workload.source, bootstrap, plane(bootstrap)?),
        near(&workload.source, bootstrap, link(bootstrap, "eth1")?),
        ask(&workload.source, worker, work(worker)?),
        near(&workload.source, worker, link(worker, "eth1")?),
        ask(&pod_on_bootstrap, bootstrap, plane(bootstrap)?),
        ask(&pod_on_bootstrap, bootstrap, work(bootstrap)?),
        near(&pod_on_bootstrap, bootstrap, link(bootstrap, "cni0")?),
        ask(&pod_on_bootstrap, worker, plane(worker)?),
        ask(&pod_on_worker, worker, plane(worker)?),
        ask(&pod_on_worker, worker, work(worker)?),
        ask(&pod_on_worker, bootstrap, plane(bootstrap)?),
        ask(&pod_on_worker, bootstrap, work(bootstrap)?),
    ];
    let tables = [
        Table::of(&bootstrap.spec.name, NODE_PORT)?,
        Table::of(&worker.spec.name, NODE_PORT)?,
    ];
    let table = |host: &Host| {
        if host.spec.name == BOOTSTRAP {
            &tables[0]
        } else {
            &tables[1]
        }
    };
    let mut wrong = Vec::new();
    for ask in &asks {
        wrong.extend(one(ask, table(ask.host))?);
    }
    if !wrong.is_empty() {
        bail!("{} differences:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(Counts {
        passed: asks.len(),
        failed: 0,
    })
}

/// A difference between a scan and the table.
struct Difference {
    text: String,
    /// True if something is let in that no role opens.
    is_open: bool,
}

/// Scans and returns the differences from the table. A port that is only missing is scanned again
/// until it is let in: the virtual address disappears for seconds while the API server is slow, and
/// a busy machine loses packets. An open port is a difference at once.
fn one(ask: &Ask, table: &Table) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let let_in = wait::until("all to be let in that a role opens", LET_IN, || {
        found = once(ask, table)?;
        let is_missing = !found.is_empty() && !found.iter().any(|difference| difference.is_open);
        ensure!(!is_missing, "{} differences", found.len());
        Ok(())
    });
    // At the limit the differences are the result.
    if found.is_empty() {
        let_in?;
    }
    Ok(found
        .into_iter()
        .map(|difference| difference.text)
        .collect())
}

/// Scans once and returns the differences from the table.
fn once(ask: &Ask, table: &Table) -> Result<Vec<Difference>> {
    let ports: Vec<u16> = UDP.into_iter().chain([NODE_PORT]).collect();
    let target = ask
        .interface
        .map_or_else(|| ask.to.to_string(), |i| format!("{}%{i}", ask.to));
    let family = if ask.to.is_ipv4() { "ipv4" } else { "ipv6" };
    let to = ask.to.to_string();
    let tracked = ["-f", family, "-p", "udp", "--orig-dst", &to];
    // conntrack fails if there is nothing to delete.
    ask.host
        .output(&[&["conntrack", "-D"], &tracked[..]].concat())?;
    let found = ask.source.scan(&target, &ports, &table.all_tcp())?;
    let arrival = Arrival {
        from: ask.source.seen_as(ask.host, ask.to, found.from)?,
        to: ask.to,
        from_pod: ask.source.lives_on(ask.host),
        from_pod_of_another: ask.source.pod && !ask.source.lives_on(ask.host),
    };
    // A rejected packet is never entered in the connection table, whether or not a program listens
    // on the port.
    let entries = ask
        .host
        .run(&[&["conntrack", "-L"], &tracked[..]].concat())?;
    // A pod of another host would arrive as its node, which has flannel's own entries.
    let is_known = |port: &u16| !(arrival.from_pod_of_another && *port == VXLAN);
    let udp: BTreeSet<u16> = entries
        .lines()
        .filter_map(|line| entered(line, arrival.from))
        .filter(|port| ports.contains(port) && is_known(port))
        .collect();

    let mut wrong = Vec::new();
    let mut compare = |what: &str, expected: &BTreeSet<u16>, seen: &BTreeSet<u16>| {
        let more: Vec<_> = seen.difference(expected).collect();
        let less: Vec<_> = expected.difference(seen).collect();
        if !more.is_empty() || !less.is_empty() {
            let names = (&ask.source.name, arrival.from, &ask.host.spec.name, ask.to);
            let text = format!(
                "{} (as {}) to {} {}, {what}: in no role but let in: {more:?}; declared but not let in: {less:?}",
                names.0, names.1, names.2, names.3
            );
            let is_open = !more.is_empty();
            wrong.push(Difference { text, is_open });
        }
    };
    let tcp = table.tcp(arrival);
    compare("tcp", &tcp, &found.reached());
    compare("udp", &table.udp(arrival), &udp);
    let home = ask.to.is_ipv4() && ask.to.to_string() == ask.host.control_plane_address();
    let answering: BTreeSet<u16> = tcp
        .into_iter()
        .filter(|port| *port != SSH && (home || *port == NODE_PORT))
        .collect();
    let open: BTreeSet<u16> = found.open.intersection(&answering).copied().collect();
    compare("tcp, a program listens", &answering, &open);
    Ok(wrong)
}

/// The port of an entry `udp 17 29 src=… dst=… sport=… dport=… …` from that source.
fn entered(line: &str, from: IpAddr) -> Option<u16> {
    let field = |key: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(key))
    };
    let source: IpAddr = field("src=")?.parse().ok()?;
    if source == from {
        field("dport=")?.parse().ok()
    } else {
        None
    }
}

/// The server of [`SERVERS`] on that host, once it has an address and the Service reaches it.
fn pod(cluster: &Cluster, host: &Host) -> Result<ScanSource> {
    let node = format!("spec.nodeName={}", host.spec.name);
    let query = [
        "-n",
        "scan",
        "get",
        "pods",
        "--field-selector",
        &node,
        "-o",
        "jsonpath={.items[0].status.podIP}",
    ];
    let address = cluster.kubectl(&query)?;
    let url = format!("http://{}:{NODE_PORT}/", host.workload_address());
    let other = if host.spec.name == WORKER {
        &cluster.bootstrap
    } else {
        &cluster.worker
    };
    wait::until(&format!("{url} to answer"), Duration::from_secs(90), || {
        other.run(&[
            "curl",
            "-sS",
            "--max-time",
            "2",
            "--output",
            "/dev/null",
            &url,
        ])
    })?;
    ScanSource::pod(host, &format!("on {}", host.spec.name), &address)
}
