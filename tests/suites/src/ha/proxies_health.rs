//! API servers whose port accepts connections although they do not serve: one that hangs, and one
//! that is not ready. The proxies skip both, and use them again by themselves.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{ApiPath, Measured, NAME, NAMESPACE, administrator, under_writes};
use super::{BACK, is_complete, leader, proxies, same_content};
use crate::availability::target::{Address, Target, WriteKind};
use crate::availability::writes::Loop;
use crate::test::Counts;

/// The longest time until haproxy has two failed checks: `inter`, `timeout check`, `fastinter`, and
/// again `timeout check` of its configuration.
const DETECTED: Duration = Duration::from_millis(500 + 1000 + 200 + 1000);
/// The longest time for which `/readyz` still succeeds without etcd: the API server checks etcd
/// once a second, with a limit of two, and repeats the last result until then.
const STALE: Duration = Duration::from_secs(1 + 2);
/// Limit of one request of the write loop.
const REQUEST: Duration = Duration::from_secs(1);
/// Limit for events while the API server is out. Its liveness probe must fail eight times, 10 s
/// apart, before the kubelet restarts it.
const SEEN: Duration = Duration::from_secs(60);
/// Time in which the writes at an API server are counted.
const COUNTED: Duration = Duration::from_secs(2);
/// Writers that connect at the same time, more than the connections in which the API servers may
/// differ.
const WRITERS: u32 = 6;

/// The way in which an API server does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// Its process is stopped. The kernel keeps accepting connections for it.
    Hangs,
    /// The process of its member of etcd is stopped. It answers, but `/readyz` fails.
    NotReady,
}

impl Outage {
    /// The name of the test, and of the written objects.
    fn name(self) -> &'static str {
        match self {
            Self::Hangs => "proxy-hangs",
            Self::NotReady => "proxy-not-ready",
        }
    }

    /// The name of the process that is stopped.
    fn process(self) -> &'static str {
        match self {
            Self::Hangs => "kube-apiserver",
            Self::NotReady => "etcd",
        }
    }

    /// Limit of the gap: three times the duration of the checks and of the hanging request.
    fn limit(self) -> Duration {
        let detected = match self {
            Self::Hangs => DETECTED,
            Self::NotReady => STALE + DETECTED,
        };
        (detected + REQUEST) * 3
    }

    fn begin(self, host: &Host) -> Result<()> {
        let stopped = host.run(&["pkill", "-STOP", "-x", self.process()]);
        stopped
            .map(drop)
            .with_context(|| format!("cannot stop the {}", self.process()))
    }

    /// Resumes the process. One that the kubelet has replaced by now runs anyway.
    fn end(self, host: &Host) -> Result<()> {
        let line = format!("pkill -CONT -x {} || true", self.process());
        host.sh(&line).map(drop)
    }
}

/// Each outage once, at the API server that receives the worker's writes.
pub(super) fn leave_out_and_take_back(cluster: &Cluster) -> Result<Counts> {
    proxies::with_proxies(cluster, |cluster| {
        for outage in [Outage::Hangs, Outage::NotReady] {
            Measured::check_of(outage.name(), outage.limit(), || measure(cluster, outage))?;
            same_content(cluster)?;
        }
        Ok(Counts {
            passed: 2,
            failed: 0,
        })
    })
}

fn measure(cluster: &Cluster, outage: Outage) -> Result<Measured> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    under_writes(cluster, ApiPath::Proxy, outage.name(), |_| {
        let host = serving(cluster)?;
        println!("  {}: {} takes the writes", outage.name(), host.spec.name);
        let known = reports(cluster, host)?.len();
        outage.begin(host)?;
        let left_out = is_left_out(cluster, host, outage, known);
        // The tests after this one need the process, whatever the result.
        let ended = outage.end(host);
        left_out?;
        ended?;
        is_taken_back(cluster, host, known)
    })
}

/// The proxy of the worker reports that the API server is down, closes its connections to it, and
/// skips it for longer than the limit of the gap: a client that waited for it all the time would
/// have a gap that is too long.
fn is_left_out(cluster: &Cluster, host: &Host, outage: Outage, known: usize) -> Result<()> {
    let name = &host.spec.name;
    wait::until("the proxy to skip it", SEEN, || {
        let reports = reports(cluster, host)?;
        let down = reports.iter().skip(known).find(|line| is_down(name, line));
        println!("  {}", down.context("no report that it is down")?);
        Ok(())
    })?;
    // The connections of its checks end, too, and there is a pause between them.
    wait::until("the proxy to end its connections to it", SEEN, || {
        let server = format!("{}:6443", host.control_plane_address());
        let list = format!("ss -Htn state established dst {server}");
        let open = cluster.worker.sh(&list)?;
        ensure!(open.trim().is_empty(), "open: {open}");
        Ok(())
    })?;
    if outage == Outage::NotReady {
        wait::until("an answer that it is not ready", SEEN, || {
            let version = status(cluster, host, "version")?;
            let ready = status(cluster, host, "readyz")?;
            let both = (version.as_str(), ready.as_str());
            ensure!(both == ("200", "500"), "/version and /readyz: {both:?}");
            Ok(())
        })?;
    }
    thread::sleep(outage.limit());
    let reports = reports(cluster, host)?;
    let last = reports.last().context("no report of the proxy")?;
    ensure!(is_down(name, last), "it was used again: {last}");
    Ok(())
}

/// The host serves again, the proxy of the worker reports that it is up, and writes reach it.
fn is_taken_back(cluster: &Cluster, host: &Host, known: usize) -> Result<()> {
    wait::until("all hosts to serve again", BACK, || is_complete(cluster))?;
    wait::until("the proxy to use it again", BACK, || {
        let reports = reports(cluster, host)?;
        let last = reports.iter().skip(known).next_back();
        let last = last.context("no report of the proxy")?;
        ensure!(is_up(&host.spec.name, last), "the last report is {last}");
        Ok(())
    })?;
    let mut attempt = 0_u32;
    wait::until("writes to reach it through the proxy", BACK, || {
        attempt += 1;
        let before = created(cluster, host)?;
        let loops = (0..WRITERS)
            .map(|number| connect(cluster, host, &format!("back-{attempt}-{number}")))
            .collect::<Result<Vec<_>>>()?;
        thread::sleep(COUNTED);
        for one in loops {
            one.end()?;
        }
        ensure!(created(cluster, host)? > before, "it has taken no write");
        Ok(())
    })
}

/// An additional writer on the worker, with its own connection through the proxy.
fn connect(cluster: &Cluster, host: &Host, prefix: &str) -> Result<Loop> {
    let target = Target {
        kind: WriteKind::Kubernetes {
            namespace: NAMESPACE.to_owned(),
        },
        url: format!("https://{NAME}:6443"),
        address: Some(Address::Fixed((Ipv4Addr::LOCALHOST, 6443).into())),
        prefix: prefix.to_owned(),
        identity: Some(administrator(host)?),
    };
    Loop::start(&cluster.worker, &target)
}

/// The host whose API server receives the writes, and whose etcd member follows: an election would
/// be a part of the gap. An outage of another API server would not affect the writer.
fn serving(cluster: &Cluster) -> Result<&Host> {
    wait::until("an API server to take the writes", BACK, || {
        let host = taking_writes(cluster)?;
        leader::leading(cluster, Some(&host.spec.name))?;
        // A writer whose request failed while another member took the lead has connected to another
        // one.
        let now = taking_writes(cluster)?;
        let (first, second) = (&host.spec.name, &now.spec.name);
        ensure!(first == second, "first it was {first}, then {second}");
        Ok(now)
    })
}

/// The host whose API server has received most of the writes of the last moment.
fn taking_writes(cluster: &Cluster) -> Result<&Host> {
    let mut counted = Vec::new();
    for host in cluster.control_planes() {
        counted.push((host, created(cluster, host)?));
    }
    thread::sleep(COUNTED);
    let mut most: Option<(f64, &Host)> = None;
    for (host, before) in counted {
        let taken = created(cluster, host)? - before;
        if most.is_none_or(|(found, _)| taken > found) {
            most = Some((taken, host));
        }
    }
    let (taken, host) = most.context("no control plane")?;
    // Kubernetes makes ConfigMaps too, but few.
    ensure!(taken >= 5.0, "no API server has taken more than {taken}");
    Ok(host)
}

/// The number of ConfigMaps that the API server of a host has created. A control plane queries its
/// own API server.
fn created(cluster: &Cluster, host: &Host) -> Result<f64> {
    let metrics = cluster.kubectl_on(&host.spec.name, &["get", "--raw", "/metrics"])?;
    Ok(sum_of_created(&metrics))
}

/// The sum of the counters in the text of the metrics; they are written as floating-point numbers.
fn sum_of_created(metrics: &str) -> f64 {
    let labels = ["code=\"201\"", "resource=\"configmaps\"", "verb=\"POST\""];
    metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// The status of the answer of a host's API server to the worker.
fn status(cluster: &Cluster, host: &Host, path: &str) -> Result<String> {
    let url = format!("https://{}:6443/{path}", host.control_plane_address());
    let get = ["curl", "-sS", "--max-time", "10", "--noproxy", "*"];
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    let ca = ["--cacert", "/etc/kubernetes/pki/ca.crt", &url];
    cluster.worker.run(&[&get[..], &code[..], &ca[..]].concat())
}

/// The lines in which the worker's haproxy reports that the API server of a host is up or down, in
/// order. It has no other interface.
fn reports(cluster: &Cluster, host: &Host) -> Result<Vec<String>> {
    let log = "journalctl -q -u haproxy --no-pager -o cat";
    let text = cluster.worker.sh(log)?;
    let name = &host.spec.name;
    let lines = text
        .lines()
        .filter(|line| is_up(name, line) || is_down(name, line));
    Ok(lines.map(str::to_owned).collect())
}

fn is_up(name: &str, line: &str) -> bool {
    line.contains(&format!("Server kubernetes/{name} is UP"))
}

fn is_down(name: &str, line: &str) -> bool {
    line.contains(&format!("Server kubernetes/{name} is DOWN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_config_maps_are_counted_over_all_lines_and_nothing_else() {
        let line = |code: u16, resource: &str, verb: &str, value: &str| {
            format!(
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"\",\
                 resource=\"{resource}\",scope=\"resource\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {value}\n"
            )
        };
        let text = [
            "# TYPE apiserver_request_total counter\n".to_owned(),
            line(201, "configmaps", "POST", "12"),
            line(201, "configmaps", "POST", "1.5e+06"),
            line(409, "configmaps", "POST", "5"),
            line(200, "configmaps", "GET", "7"),
            line(201, "secrets", "POST", "9"),
        ];
        let sum = sum_of_created(&text.concat());
        assert!((sum - 1_500_012.0).abs() < 0.5, "{sum}");
    }

    #[test]
    fn reports_are_of_one_server() {
        let down = "[WARNING]  (812) : Server kubernetes/cp-1 is DOWN, reason: Layer6 timeout, check duration: 1001ms.";
        let up = "Server kubernetes/cp-10 is UP, reason: Layer7 check passed, code: 200, check duration: 3ms.";
        assert!(is_down("cp-1", down) && !is_up("cp-1", down));
        assert!(is_up("cp-10", up) && !is_up("cp-1", up));
    }
}
