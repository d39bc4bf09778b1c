//! Two hosts that serve the bundle: the second copies it, and a client that loses one of them in
//! the middle of a transfer continues with the other.

mod failures;
mod foreign;
mod pod;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::JobOutcome;
use halite_lab::cluster::{BUNDLE, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use self::failures::{Dead, Silent, Slow, Swapped};
pub(crate) use self::pod::Pod;
use super::repair;
use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "registry: a second host copies the bundle and serves the same bytes",
        run: second,
    },
    Test {
        name: "registry: writes are refused, and contents are listed",
        run: read_only,
    },
    Test {
        name: "registry: a server killed in the middle of a pull is replaced by the other",
        run: killed,
    },
    Test {
        name: "registry: a server that falls silent in the middle of a pull is replaced too",
        run: silent,
    },
    Test {
        name: "registry: with the first server dead pods still start",
        run: first_dead,
    },
    Test {
        name: "registry: apt installs with either server dead",
        run: apt,
    },
    Test {
        name: "registry: a server's own image under the names of the scheduler is refused",
        run: foreign::refused,
    },
    Test {
        name: "registry: a damaged copy is repaired, fetching nothing else",
        run: repaired,
    },
    Test {
        name: "registry: a host that no longer serves forgets the bundles",
        run: back,
    },
];

/// Path of the site CA's certificate on every host.
pub(super) const CA: &str = "/etc/halite/pki/site-ca.crt";

/// Limit for the kubelet to report its actions.
const REPORTED: Duration = Duration::from_secs(60);
/// Limit for nginx to close the sockets that its new configuration lacks.
const RELOADED: Duration = Duration::from_secs(30);

fn roles(cluster: &Cluster, roles: &str) -> Result<()> {
    let path = cluster
        .bootstrap
        .root()
        .join(format!("etc/halite/nodes/{WORKER}.yaml"));
    let text = fs::read_to_string(&path)?;
    let lines = text.lines().map(|line| {
        if line.starts_with("roles:") {
            roles
        } else {
            line
        }
    });
    fs::write(
        &path,
        lines.map(|line| format!("{line}\n")).collect::<String>(),
    )?;
    cluster.bootstrap.run(&[CTL, "highstate"])?;
    Ok(())
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The URL at which a host serves the bundle.
fn url(host: &Host) -> String {
    format!(
        "https://{}:4551/bundles/{}",
        host.control_plane_address(),
        version()
    )
}

pub(super) fn curl(from: &Host, options: &str, url: &str) -> Result<String> {
    from.sh(&format!(
        "curl -sS --noproxy '*' --cacert {CA} {options} '{url}'"
    ))
}

fn second(cluster: &Cluster) -> Result<Counts> {
    roles(cluster, "roles: [worker, registry]")?;
    repair::quiet(cluster)?;
    let manifest = fs::read(
        cluster
            .bootstrap
            .root()
            .join(BUNDLE.trim_start_matches('/'))
            .join("manifest.json"),
    )?;
    let manifest: Value = serde_json::from_slice(&manifest)?;
    let files = manifest["files"]
        .as_object()
        .context("a manifest without files")?;
    // Check every file with the bundle's own checksums, and then the files as delivered by the
    // servers.
    cluster.worker.sh(&format!(
        "cd {BUNDLE} && sha256sum --quiet -c manifest.json.sha256"
    ))?;
    let list: String = files
        .iter()
        .map(|(path, entry)| format!("{}  {path}\n", entry["sha256"].as_str().unwrap_or_default()))
        .collect();
    fs::write(cluster.worker.root().join("root/bundle.sha256"), list)?;
    cluster.worker.sh(&format!(
        "cd {BUNDLE} && sha256sum --quiet -c /root/bundle.sha256 && rm /root/bundle.sha256"
    ))?;
    for path in [
        "manifest.json",
        "bin/halite-minion",
        "apt/dists/stable/InRelease",
        "images/index.json",
    ] {
        let sums = [&cluster.bootstrap, &cluster.worker].map(|server| {
            // The other host sends the request.
            let from = if server.spec.name == WORKER {
                &cluster.bootstrap
            } else {
                &cluster.worker
            };
            from.sh(&format!(
                "curl -fsS --noproxy '*' --cacert {CA} {}/{path} | sha256sum",
                url(server)
            ))
        });
        let [one, other] = sums;
        ensure!(one? == other?, "{path} is not the same on both");
    }
    let hosts = "/etc/containerd/certs.d/_default/hosts.toml";
    let order = |host: &Host, first: &Host, last: &Host| -> Result<()> {
        let text = fs::read_to_string(host.root().join(hosts.trim_start_matches('/')))?;
        ensure!(
            text.contains(&format!("server = \"{}/v2\"", url(last)))
                && text.contains(&format!("[host.\"{}/v2\"]", url(first))),
            "{}: {text}",
            host.spec.name
        );
        Ok(())
    };
    order(&cluster.bootstrap, &cluster.bootstrap, &cluster.worker)?;
    order(&cluster.worker, &cluster.worker, &cluster.bootstrap)?;
    Ok(Counts::ONE)
}

fn read_only(cluster: &Cluster) -> Result<Counts> {
    for (server, from) in [
        (&cluster.bootstrap, &cluster.worker),
        (&cluster.worker, &cluster.bootstrap),
    ] {
        let own = server.control_plane_address();
        for root in [url(server), format!("https://{own}:4551")] {
            for (method, path) in [
                ("PUT", "v2/pause/manifests/evil"),
                ("POST", "v2/pause/blobs/uploads/"),
                ("DELETE", "v2/pause/manifests/3.10"),
                ("PATCH", "v2/_catalog"),
            ] {
                let code = curl(
                    from,
                    &format!("-o /dev/null -w '%{{http_code}}' -X {method}"),
                    &format!("{root}/{path}"),
                )?;
                ensure!(code == "405", "{method} {root}/{path}: {code}");
            }
            let catalog: Value =
                serde_json::from_str(&curl(from, "-f", &format!("{root}/v2/_catalog"))?)?;
            let names = catalog["repositories"]
                .as_array()
                .context("no list of repositories")?;
            ensure!(
                names.iter().any(|name| name == "registry.k8s.io/etcd"),
                "{names:?}"
            );
            for name in names {
                let name = name.as_str().unwrap_or_default();
                let tags: Value = serde_json::from_str(&curl(
                    from,
                    "-f",
                    &format!("{root}/v2/{name}/tags/list"),
                )?)?;
                for tag in tags["tags"].as_array().context("no list of tags")? {
                    let tag = tag.as_str().unwrap_or_default();
                    curl(
                        from,
                        "-f -o /dev/null -I",
                        &format!("{root}/v2/{name}/manifests/{tag}"),
                    )?;
                }
            }
        }
    }
    Ok(Counts::ONE)
}

fn killed(cluster: &Cluster) -> Result<Counts> {
    let _slow = Slow::new(&cluster.worker)?;
    let pod = Pod::start(cluster, "kube-apiserver")?;
    pod.wait_for_the_middle()?;
    // The worker uses its own server first.
    let _dead = Dead::new(&cluster.worker)?;
    pod.wait_until_done(Duration::from_secs(180))?;
    // Check that one pull continued, not that one failed and another followed. The kubelet sends
    // events in the background, and after an error only ten seconds later.
    let of_pod = format!("involvedObject.name={}", pod.name());
    let events = wait::until("the event of the pull", REPORTED, || {
        let events = cluster.kubectl(&[
            "get",
            "events",
            "--field-selector",
            &of_pod,
            "-o",
            "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}",
        ])?;
        ensure!(events.contains("Successfully pulled"), "{events}");
        Ok(events)
    })?;
    // The kubelet's reasons for a pull. A volume that was not ready at once (FailedMount) does not
    // count.
    let broke_off = |line: &str| line.starts_with("Failed: ") || line.starts_with("BackOff: ");
    ensure!(
        !events.lines().any(broke_off),
        "the pull broke off: {events}"
    );
    Ok(Counts::ONE)
}

fn silent(cluster: &Cluster) -> Result<Counts> {
    let _slow = Slow::new(&cluster.worker)?;
    let pod = Pod::start(cluster, "kube-controller-manager")?;
    pod.wait_for_the_middle()?;
    let _silent = Silent::new(&cluster.worker)?;
    // containerd's pull times out after `image_pull_progress_timeout`; the kubelet retries after a
    // pause.
    pod.wait_until_done(Duration::from_secs(300))?;
    Ok(Counts::ONE)
}

fn first_dead(cluster: &Cluster) -> Result<Counts> {
    let _swapped = Swapped::new(cluster)?;
    let _dead = Dead::new(&cluster.bootstrap)?;
    // The kubelet waits before it retries a failed pull.
    Pod::start(cluster, "kube-scheduler")?.wait_until_done(Duration::from_secs(300))?;
    Ok(Counts::ONE)
}

fn apt(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    for dead in [&cluster.bootstrap, worker] {
        let name = &dead.spec.name;
        let _dead = Dead::new(dead)?;
        let updated = worker.sh("apt-get update 2>&1")?;
        for bad in ["Failed to fetch", "E: ", "W: Some index"] {
            ensure!(!updated.contains(bad), "with {name} dead: {updated}");
        }
        worker.sh("apt-get clean && apt-get install -y --reinstall socat >/root/apt.log 2>&1 || { cat /root/apt.log; exit 1; }")
            .with_context(|| format!("with {name} dead"))?;
        let log = worker.sh("cat /root/apt.log; rm /root/apt.log")?;
        ensure!(
            log.contains("socat") && log.contains("Get:"),
            "with {name} dead nothing was fetched: {log}"
        );
    }
    Ok(Counts::ONE)
}

fn repaired(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let blob = worker.sh(&format!(
        "cd {BUNDLE} && ls -S images/blobs/sha256/* | tail -1"
    ))?;
    let damaged = Path::new(BUNDLE.trim_start_matches('/')).join(blob.trim());
    let whole = fs::read(worker.root().join(&damaged))?;
    // Truncate a new inode: hard links to the old one stay intact.
    fs::remove_file(worker.root().join(&damaged))?;
    fs::write(worker.root().join(&damaged), &whole[..whole.len() / 2])?;
    let answer: JobOutcome = ctl_answer::of(&cluster.bootstrap, &["highstate"])?;
    ensure!(
        fs::read(worker.root().join(&damaged))? == whole,
        "{} was not repaired",
        damaged.display()
    );
    let outcome = answer.minions.get(WORKER).context("no answer")?;
    let mut states = outcome.states.iter().flatten();
    let copy = states.find(|state| state.id == format!("bundle-{}", version()));
    let said = &copy.context("no such state")?.changes;
    let said = serde_json::to_string(said)?;
    let fetched = format!("\\\"fetched\\\":{}", whole.len());
    let shown = said.replace(' ', "");
    ensure!(
        shown.contains(&fetched) || shown.contains("0.0MBfetched"),
        "more was fetched than that: {said}"
    );
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn back(cluster: &Cluster) -> Result<Counts> {
    roles(cluster, "roles: [worker]")?;
    let worker = &cluster.worker;
    if worker.root().join(BUNDLE.trim_start_matches('/')).exists() {
        bail!("the copy is still there");
    }
    // The highstate makes nginx reload its files, and does not wait for that.
    wait::until("nginx to stop listening", RELOADED, || {
        let listening = worker.sh("ss -Hltn 'sport = :4551'")?;
        ensure!(listening.trim().is_empty(), "it still listens: {listening}");
        Ok(())
    })?;
    worker.sh("systemctl disable --now nginx && rm -f /usr/local/bin/ctl")?;
    let hosts = fs::read_to_string(
        worker
            .root()
            .join("etc/containerd/certs.d/_default/hosts.toml"),
    )?;
    ensure!(!hosts.contains("[host."), "it still uses itself: {hosts}");
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}
