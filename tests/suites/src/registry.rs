//! Two hosts that serve the bundle: the second copies it, and a client that loses one of them in
//! the middle of a transfer continues with the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_lab::cluster::{BUNDLE, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::repair;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "registry: a second host copies the bundle and serves the same bytes",
        run: second,
    },
    Test {
        name: "registry: what would write is refused, what is there is listed",
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
        name: "registry: a damaged copy is mended, fetching nothing else",
        run: mended,
    },
    Test {
        name: "registry: a host that no longer serves forgets the bundles",
        run: back,
    },
];

/// Path of the site CA's certificate on every host.
pub(super) const CA: &str = "/etc/halite/pki/site-ca.crt";

/// nginx configuration for a slow server, so that a transfer can be interrupted: nginx's own limit
/// for each connection.
const SLOW: &str = "/etc/nginx/conf.d/halite-lab-slow.conf";

/// Directory in which containerd stores unfinished downloads.
const INGEST: &str = "/var/lib/containerd/io.containerd.content.v1.content/ingest";

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
    // Check every file with the bundle's own checksums, and then the files as the servers deliver
    // them.
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

/// The reference of a bundle's image, by its component.
fn image(cluster: &Cluster, component: &str) -> Result<String> {
    let manifest = fs::read(
        cluster
            .bootstrap
            .root()
            .join(BUNDLE.trim_start_matches('/'))
            .join("manifest.json"),
    )?;
    let manifest: Value = serde_json::from_slice(&manifest)?;
    Ok(manifest["images"][component]
        .as_str()
        .context("no such image")?
        .to_owned())
}

/// A pod on the worker that prints its program's version and ends; the pod and its image are
/// removed on drop.
struct Pod<'a> {
    cluster: &'a Cluster,
    component: &'static str,
    image: String,
}

impl<'a> Pod<'a> {
    fn start(cluster: &'a Cluster, component: &'static str) -> Result<Self> {
        let image = image(cluster, component)?;
        let there = cluster.worker.sh("ctr -n k8s.io images ls -q")?;
        ensure!(
            !there.lines().any(|name| name == image),
            "{image} is on {WORKER} already: it shows nothing"
        );
        let pod = Self {
            cluster,
            component,
            image,
        };
        let spec = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name()},
            "spec": {"nodeName": WORKER, "restartPolicy": "Never", "containers": [{
                "name": "it", "image": pod.image, "command": [component, "--version"],
            }]},
        });
        fs::write(
            cluster.bootstrap.root().join("root/pod.json"),
            spec.to_string(),
        )?;
        cluster.kubectl(&["apply", "-f", "/root/pod.json"])?;
        Ok(pod)
    }

    fn name(&self) -> String {
        format!("pulled-{}", self.component)
    }

    /// Waits until containerd has downloaded a part of the image, but not all of it.
    fn wait_for_the_middle(&self) -> Result<()> {
        wait::promptly(
            "the pull to be in its middle",
            Duration::from_secs(30),
            || {
                let text = self
                    .cluster
                    .worker
                    .sh(&format!("find {INGEST} -name data -size +2048k"))
                    .map_err(|error| error.to_string())?;
                if text.trim().is_empty() {
                    Err("nothing has come".to_owned())
                } else {
                    Ok(())
                }
            },
        )
    }

    fn wait_until_done(&self, limit: Duration) -> Result<()> {
        wait::until("the pod to have run", limit, || {
            let answer = self
                .cluster
                .kubectl(&["get", "pod", &self.name(), "-o", "json"]);
            let pod: Value = serde_json::from_str(&answer.map_err(|error| error.to_string())?)
                .map_err(|error| error.to_string())?;
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => Ok(()),
                _ => Err(pod["status"].to_string()),
            }
        })?;
        let said = self.cluster.kubectl(&["logs", &self.name()])?;
        ensure!(!said.trim().is_empty(), "{} said nothing", self.name());
        Ok(())
    }
}

impl Drop for Pod<'_> {
    /// Removes pod and image even after a failure, for the tests that follow.
    fn drop(&mut self) {
        let _ = self.cluster.kubectl(&[
            "delete",
            "pod",
            &self.name(),
            "--wait=true",
            "--timeout=60s",
        ]);
        let line = format!(
            "for name in $(ctr -n k8s.io images ls | awk -v d=\"$(ctr -n k8s.io images ls | awk '$1 == \"{}\" {{print $3}}')\" \
             'd != \"\" && $3 == d {{print $1}}'); do ctr -n k8s.io images rm --sync \"$name\"; done",
            self.image
        );
        let _ = self.cluster.worker.sh(&line);
    }
}

/// Makes a host serve slowly; undone on drop.
struct Slow<'a>(&'a Host);

impl<'a> Slow<'a> {
    fn new(host: &'a Host) -> Result<Self> {
        fs::write(host.file(SLOW), "limit_rate 3m;\n")?;
        let slow = Self(host);
        host.sh("systemctl reload nginx")?;
        Ok(slow)
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.file(SLOW));
        let _ = self.0.sh("systemctl restart nginx");
    }
}

/// A host whose server is stopped; undone on drop.
struct Dead<'a>(&'a Host);

impl<'a> Dead<'a> {
    fn new(host: &'a Host) -> Result<Self> {
        let dead = Self(host);
        host.sh("systemctl kill --signal=KILL nginx")?;
        wait::promptly("nginx to be gone", Duration::from_secs(5), || {
            match host.sh("pgrep -x nginx || true") {
                Ok(text) if text.trim().is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })?;
        Ok(dead)
    }
}

impl Drop for Dead<'_> {
    fn drop(&mut self) {
        let _ = self
            .0
            .sh("systemctl reset-failed nginx; systemctl start nginx");
    }
}

/// A host whose server's packets are dropped without an answer; undone on drop.
struct Silent<'a>(&'a Host);

impl<'a> Silent<'a> {
    fn new(host: &'a Host) -> Result<Self> {
        let silent = Self(host);
        host.sh(
            "nft add table inet halite_lab && nft 'add chain inet halite_lab in { type filter hook input priority -300; }' && \
             nft add rule inet halite_lab in tcp dport 4551 drop",
        )?;
        Ok(silent)
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = self.0.sh("nft delete table inet halite_lab");
    }
}

fn killed(cluster: &Cluster) -> Result<Counts> {
    let _slow = Slow::new(&cluster.worker)?;
    let pod = Pod::start(cluster, "kube-apiserver")?;
    pod.wait_for_the_middle()?;
    // The worker uses its own server first.
    let _dead = Dead::new(&cluster.worker)?;
    pod.wait_until_done(Duration::from_secs(60))?;
    // Check that one pull continued, not that one failed and another followed.
    let events = cluster.kubectl(&[
        "get",
        "events",
        "--field-selector",
        &format!("involvedObject.name={}", pod.name()),
    ])?;
    ensure!(
        !events.contains("Failed") && !events.contains("BackOff"),
        "the pull broke off: {events}"
    );
    Ok(Counts::ONE)
}

fn silent(cluster: &Cluster) -> Result<Counts> {
    let _slow = Slow::new(&cluster.worker)?;
    let pod = Pod::start(cluster, "kube-controller-manager")?;
    pod.wait_for_the_middle()?;
    let _silent = Silent::new(&cluster.worker)?;
    // containerd's pull times out after `image_pull_progress_timeout`; the kubelet tries again
    // after a pause.
    pod.wait_until_done(Duration::from_secs(150))?;
    Ok(Counts::ONE)
}

fn first_dead(cluster: &Cluster) -> Result<Counts> {
    let _swapped = Swapped::new(cluster)?;
    let _dead = Dead::new(&cluster.bootstrap)?;
    Pod::start(cluster, "kube-scheduler")?.wait_until_done(Duration::from_secs(30))?;
    Ok(Counts::ONE)
}

/// Makes the worker use the first host's server before its own; undone on drop.
struct Swapped {
    file: PathBuf,
    text: String,
}

impl Swapped {
    fn new(cluster: &Cluster) -> Result<Self> {
        let (first, own) = (
            cluster.bootstrap.control_plane_address(),
            cluster.worker.control_plane_address(),
        );
        let file = cluster
            .worker
            .file("/etc/containerd/certs.d/_default/hosts.toml");
        let text = fs::read_to_string(&file)?;
        let swapped = text
            .replace(&first, "FIRST")
            .replace(&own, &first)
            .replace("FIRST", &own);
        ensure!(swapped != text, "{text}");
        fs::write(&file, swapped)?;
        Ok(Self { file, text })
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.text);
    }
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

fn mended(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let blob = worker.sh(&format!(
        "cd {BUNDLE} && ls -S images/blobs/sha256/* | tail -1"
    ))?;
    let damaged = Path::new(BUNDLE.trim_start_matches('/')).join(blob.trim());
    let whole = fs::read(worker.root().join(&damaged))?;
    // Truncate a new inode: hard links to the old one stay whole.
    fs::remove_file(worker.root().join(&damaged))?;
    fs::write(worker.root().join(&damaged), &whole[..whole.len() / 2])?;
    let answer = cluster.bootstrap.run(&[CTL, "highstate", "-o", "json"])?;
    ensure!(
        fs::read(worker.root().join(&damaged))? == whole,
        "{} was not repaired",
        damaged.display()
    );
    let answer: Value = serde_json::from_str(&answer)?;
    let states = answer["minions"][WORKER]["states"]
        .as_array()
        .context("no states")?;
    let copy = states
        .iter()
        .find(|state| state["__id__"] == format!("bundle-{}", version()));
    let said = copy.context("no such state")?["changes"].to_string();
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
    let listening = worker.sh("ss -Hltn 'sport = :4551'")?;
    ensure!(listening.trim().is_empty(), "it still listens: {listening}");
    worker.sh("systemctl disable --now nginx && rm -f /usr/local/bin/ctl")?;
    let hosts = fs::read_to_string(
        worker
            .root()
            .join("etc/containerd/certs.d/_default/hosts.toml"),
    )?;
    ensure!(!hosts.contains("[host."), "it still asks itself: {hosts}");
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}
