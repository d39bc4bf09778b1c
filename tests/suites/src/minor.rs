//! The upgrade of a cluster to the next minor version of Kubernetes, between two real releases with
//! their own etcd and CoreDNS.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CLUSTER, CTL, Cluster, DOCUMENT, ISO_DIRECTORY, NEWER};
use halite_lab::host::Host;
use halite_lab::layout::{HA, Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::{Lab, cluster, wait};
use halite_upstream::versions::{FULL, NEWEST, OLDER_LIGHT, Release};
use halite_upstream::{ISO, prepare};
use serde_json::Value;

use crate::checks::{nothing_to_do, refused};
use crate::cluster::{PODS, nothing_left};
use crate::ha::{GAP, at_the_vip, is_complete, while_written};
use crate::interrupted::Running;
use crate::kubeadm;
use crate::repair::highstate;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};
use crate::versions::runs;

/// The name of its own lab: other clusters have the newest Kubernetes from the start.
const LAB: &str = "minor";

/// The name of the lab of three control planes.
const LAB_OF_THREE: &str = "minorha";

/// Limit for a request to a kubelet to be allowed: the authoriser of a kubelet asks the API server,
/// which may have just started.
const ALLOWED: Duration = Duration::from_secs(60);

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "minor: a cluster goes to the next minor version of Kubernetes while a client writes",
        run: upgraded,
    },
    Test {
        name: "minor: the upgraded cluster equals one that the new kubeadm would make",
        run: as_kubeadm,
    },
    Test {
        name: "minor: the upgraded cluster equals one that kubeadm upgraded",
        run: as_kubeadm_upgrades,
    },
    Test {
        name: "minor: nothing tried to leave",
        run: nothing_left,
    },
];

const OF_THREE: &[Test<Cluster>] = &[
    Test {
        name: "minor: three control planes go to the next minor version, and no write is lost",
        run: three_upgraded,
    },
    Test {
        name: "minor: nothing tried to leave three control planes",
        run: nothing_left,
    },
];

/// The sites of the older release: one control plane and one worker, and three control planes and
/// one worker.
pub(super) fn sites() -> [Site; 2] {
    let site = |lab: &str, made, layout, tests| Site {
        lab: lab.to_owned(),
        made,
        layout,
        release: OLDER_LIGHT,
        make,
        tests: sequence(cases(tests)),
    };
    let made = "minor: bootstrap and node add with the previous minor version";
    let of_three =
        "minor: bootstrap, two control planes and a worker with the previous minor version";
    [
        site(LAB, made, &TWO, TESTS),
        site(LAB_OF_THREE, of_three, &HA, OF_THREE),
    ]
}

/// Makes a cluster of the older release; the newer one is carried to the site, too.
fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let newer = prepare::iso_directory_of(&FULL, &Board::plain())?;
    let older = prepare::iso_directory_of(release, &Board::plain())?;
    let lab = Lab::new(lab, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let carried = [(older.as_path(), ISO_DIRECTORY), (newer.as_path(), NEWER)];
    let cluster = cluster::boot_hosts(lab, layout, &carried)?;
    let minor = |release: &Release| format!("version: \"{}\"", release.minor());
    cluster.bootstrap(&CLUSTER.replace(&minor(&NEWEST), &minor(release)))?;
    for group in layout.joins {
        cluster.join(group)?;
    }
    cluster.wait_for_pods(PODS)?;
    Ok(cluster)
}

fn upgraded(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    prepared(cluster)?;
    let record = while_written(cluster, host, "minor", || run(cluster))?;
    println!("  {}", record.summary());
    completed(cluster)
}

/// The API serves throughout: the virtual address leaves each host before its API server restarts.
fn three_upgraded(cluster: &Cluster) -> Result<Counts> {
    prepared(cluster)?;
    is_complete(cluster)?;
    let written = at_the_vip(cluster, &cluster.bootstrap, "minor", || run(cluster))?;
    written.check("an upgrade to the next minor version", GAP)?;
    wait::until("all hosts to serve", PODS, || is_complete(cluster))?;
    completed(cluster)
}

/// The site has the newer bundle, and nothing has changed yet.
fn prepared(cluster: &Cluster) -> Result<()> {
    let (host, to) = (&cluster.bootstrap, NEWEST.kubernetes);
    of_release(cluster, &OLDER_LIGHT)?;
    host.run(&[CTL, "bundle", "add", &format!("{NEWER}/{ISO}")])?;
    let before = documents(host)?;
    let without_drain = ["ctl", "upgrade", to, "--no-drain", "--yes"];
    refused(host, &without_drain, &["omit --no-drain"])?;
    let planned = host.sh(&format!("ctl upgrade {to} --test 2>&1"))?;
    ensure!(
        planned.contains("objects-ahead"),
        "no rights before the first new API server: {planned}"
    );
    ensure!(
        documents(host)? == before,
        "refused or planned, it changed the documents: {}",
        documents(host)?
    );
    of_release(cluster, &OLDER_LIGHT)
}

/// All hosts have the newer release, nothing is left to do, and nothing needs the older bundle.
fn completed(cluster: &Cluster) -> Result<Counts> {
    let (host, to) = (&cluster.bootstrap, NEWEST.kubernetes);
    of_release(cluster, &NEWEST)?;
    let after = documents(host)?;
    ensure!(
        after.contains(&format!("version: \"{}\"", NEWEST.minor()))
            && after.matches("bundle:").count() == 1
            && !after.contains(OLDER_LIGHT.kubernetes),
        "the documents after the upgrade: {after}"
    );
    nothing_to_do(host)?;
    let changed = highstate(cluster, &[])?.changed;
    ensure!(
        changed.is_empty(),
        "a highstate changed something: {changed:?}"
    );
    wait::until("a status without problems", PODS, || {
        host.run(&["ctl", "status"]).map(drop)
    })?;
    let old = OLDER_LIGHT.bundle();
    let reason = format!("is older than {to}");
    refused(host, &["ctl", "upgrade", &old, "--yes"], &[&reason])?;
    host.run(&["ctl", "bundle", "remove", &old, "--yes"])?;
    Ok(Counts::ONE)
}

/// Upgrades the cluster. As soon as a host has its new API server, that server reaches the kubelets
/// of all hosts.
fn run(cluster: &Cluster) -> Result<()> {
    let began = Instant::now();
    let words = ["ctl", "upgrade", NEWEST.kubernetes, "--yes"];
    let mut running = Running::start(&cluster.bootstrap, &words)?;
    let (mut ended, mut checked) = (0, 0);
    while let Some(line) = running.next_end(ended)? {
        println!("  {}", line.trim());
        ended += 1;
        if line.contains("control-plane ") && !line.contains("images-") {
            reaches_kubelets(cluster)?;
            checked += 1;
        }
    }
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(status.success(), "the upgrade: {said}");
    ensure!(checked > 0, "no step `control-plane` was seen: {said}");
    println!("  the upgrade took {} s", began.elapsed().as_secs());
    Ok(())
}

/// Checks that `kubectl logs` works on each host.
fn reaches_kubelets(cluster: &Cluster) -> Result<()> {
    for host in cluster.hosts() {
        let field = format!("--field-selector=spec.nodeName={}", host.spec.name);
        let of_proxy = ["-n", "kube-system", "-l", "k8s-app=kube-proxy"];
        wait::until("the log of a pod", ALLOWED, || {
            let name = ["get", "pod", &field, "-o", "name"];
            let pod = cluster.kubectl(&[&name[..], &of_proxy].concat())?;
            let words = ["logs", "-n", "kube-system", "--tail=1", pod.trim()];
            cluster.kubectl(&words).map(drop)
        })?;
    }
    Ok(())
}

/// The documents in /etc/halite, as one text.
fn documents(host: &Host) -> Result<String> {
    let mut all = fs::read_to_string(host.file(DOCUMENT))?;
    let nodes = host.sh("cat /etc/halite/nodes/*.yaml")?;
    all.push_str(&nodes);
    Ok(all)
}

/// Asks the member of a host for its version.
const ETCD_VERSION: &str = "pki=/etc/kubernetes/pki && curl -sS --fail --max-time 5 --noproxy '*' \
     --cacert $pki/etcd/ca.crt --cert $pki/apiserver-etcd-client.crt --key $pki/apiserver-etcd-client.key \
     https://127.0.0.1:2379/version";

/// Checks that all programs that answer are those of a release: API server, kubectl, kubelets, the
/// images on each host, etcd, CoreDNS.
fn of_release(cluster: &Cluster, release: &Release) -> Result<()> {
    cluster.wait_for_pods(PODS)?;
    for host in cluster.hosts() {
        // The API shows the pod of a new manifest some time after the host runs it.
        wait::until("the release on a host", PODS, || {
            runs(cluster, host, release)
        })?;
    }
    let json = |text: String| -> Result<Value> { Ok(serde_json::from_str(&text)?) };
    let version = json(cluster.kubectl(&["version", "-o", "json"])?)?;
    for side in ["clientVersion", "serverVersion"] {
        let found = &version[side]["gitVersion"];
        ensure!(found == release.kubernetes, "{side} is {found}");
    }
    let wanted = release.etcd_module.trim_start_matches('v');
    for host in cluster.control_planes() {
        let etcd = json(host.sh(ETCD_VERSION)?)?;
        ensure!(
            etcd["etcdserver"] == wanted,
            "etcd of {} is {etcd}",
            host.spec.name
        );
    }
    let deployment = [
        "-n",
        "kube-system",
        "get",
        "deployment",
        "coredns",
        "-o",
        "json",
    ];
    let dns = json(cluster.kubectl(&deployment)?)?;
    let image = dns["spec"]["template"]["spec"]["containers"][0]["image"]
        .as_str()
        .context("CoreDNS has no image")?;
    ensure!(
        image.contains(&format!(":{}@", release.coredns)),
        "CoreDNS is {image}"
    );
    Ok(())
}

fn as_kubeadm(cluster: &Cluster) -> Result<Counts> {
    kubeadm::compare_running(cluster, &NEWEST)
}

fn as_kubeadm_upgrades(cluster: &Cluster) -> Result<Counts> {
    kubeadm::upgraded::compare(cluster, &OLDER_LIGHT, &FULL)
}
