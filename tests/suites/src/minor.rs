//! The upgrade of a cluster to the next minor version of Kubernetes by the commands of the guide,
//! between two real releases with their own etcd and CoreDNS. With three control planes it leads to
//! an earlier patch release, and from there to the newest one.

mod declared;
mod page;

use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_api::{UpgradeState, UpgradeStatus};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::layout::{HA, Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::prepare;
use halite_upstream::versions::{OLDER_PATCH, Release, UPGRADE_FROM, UPGRADE_TO};
use serde_json::Value;

use crate::checks::{nothing_to_do, refused};
use crate::cluster::{PODS, nothing_left};
use crate::ctl_answer;
use crate::guide::{self, GuideWalk};
use crate::ha::{GAP, at_the_vip, is_complete, upgraded_to_published, while_written};
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

/// The script of the block that upgrades, on the first host.
const SCRIPT: &str = "/root/upgrade.sh";

/// Limit for a request to a kubelet to be allowed: the authoriser of a kubelet asks the API server,
/// which may have just started.
const ALLOWED: Duration = Duration::from_secs(60);

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "minor: a cluster goes to the next minor version of Kubernetes while a client writes",
        run: upgraded,
    },
    Test {
        name: "minor: the addon, the chart and the operator's own states work in the upgraded cluster",
        run: works,
    },
    Test {
        name: "minor: Secrets stay encrypted, writes are audited and privileged pods are refused in the upgraded cluster",
        run: is_hardened,
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
        name: "minor: a newer patch release with its own programs is installed host by host, and no write is lost",
        run: three_patched,
    },
    Test {
        name: "minor: nothing tried to leave three control planes",
        run: nothing_left,
    },
];

/// The sites of the older release: one control plane and one worker, and three control planes and
/// one worker.
pub(super) fn sites() -> [Site; 2] {
    let site = |lab: &str, made, layout, make, tests| Site {
        lab: lab.to_owned(),
        made,
        layout,
        release: UPGRADE_FROM,
        make,
        tests: sequence(cases(tests)),
    };
    let made = "minor: bootstrap and node add with the previous minor version, an addon, a chart and own states";
    let of_three =
        "minor: bootstrap, two control planes and a worker with the previous minor version";
    [
        site(LAB, made, &TWO, make_declared, TESTS),
        site(LAB_OF_THREE, of_three, &HA, make_three, OF_THREE),
    ]
}

/// Makes a cluster of the older release, with the newer release on the site.
fn make_three(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let board = Board::plain();
    // The second upgrade needs it. Now no cluster runs while it is built.
    prepare::iso_directory_of(&UPGRADE_TO, &board)?;
    prepare::cluster_beside(lab, layout, release, Some(&OLDER_PATCH), &board)
}

/// The same with a hardened API server, an addon, a chart and the operator's own states.
fn make_declared(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let (releases, board) = ((release, Some(&UPGRADE_TO)), Board::plain());
    let document = declared::document(release);
    let cluster = prepare::cluster_declared(lab, layout, releases, &document, &board)?;
    declared::install(&cluster)?;
    Ok(cluster)
}

fn works(cluster: &Cluster) -> Result<Counts> {
    declared::works(cluster)?;
    Ok(Counts::ONE)
}

fn is_hardened(cluster: &Cluster) -> Result<Counts> {
    declared::is_hardened(cluster)?;
    Ok(Counts::ONE)
}

fn upgraded(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let mut page = page::walk(host, &UPGRADE_TO)?;
    prepared(
        cluster,
        &mut page,
        &UPGRADE_TO,
        declared::lose_own_file(cluster)?,
    )?;
    let script = page.next(page::UPGRADE)?;
    let record = while_written(cluster, host, "minor", || run(cluster, &script))?;
    println!("  {}", record.summary());
    completed(cluster, page, &UPGRADE_TO)
}

/// The API serves throughout: the virtual address leaves each host before its API server restarts.
/// The upgrade is paused at its first host.
fn three_upgraded(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let mut page = page::walk(host, &OLDER_PATCH)?;
    prepared(cluster, &mut page, &OLDER_PATCH, "objects-ahead")?;
    is_complete(cluster)?;
    let script = page.next(page::UPGRADE)?;
    let written = at_the_vip(cluster, host, "minor", || with_a_pause(cluster, &script))?;
    written.check("an upgrade to the next minor version", GAP)?;
    wait::until("all hosts to serve", PODS, || is_complete(cluster))?;
    completed(cluster, page, &OLDER_PATCH)
}

fn three_patched(cluster: &Cluster) -> Result<Counts> {
    upgraded_to_published(cluster, &OLDER_PATCH, &UPGRADE_TO)?;
    of_release(cluster, &UPGRADE_TO)?;
    Ok(Counts::ONE)
}

/// The site gets the newer bundle, and nothing else changes. The plan also names `planned`.
fn prepared(cluster: &Cluster, page: &mut GuideWalk, newer: &Release, planned: &str) -> Result<()> {
    let (host, to) = (&cluster.bootstrap, newer.kubernetes);
    of_release(cluster, &UPGRADE_FROM)?;
    page.run(host, page::LOOK)?;
    page.run(host, page::ADD)?;
    let before = documents(host)?;
    let without_drain = ["ctl", "upgrade", to, "--no-drain", "--yes"];
    refused(host, &without_drain, &["omit --no-drain"])?;
    let said = page.run(host, page::PLAN)?;
    ensure!(
        said.contains("objects-ahead"),
        "no rights before the first new API server: {said}"
    );
    ensure!(said.contains(planned), "{planned} is not planned: {said}");
    ensure!(
        documents(host)? == before,
        "refused or planned, it changed the documents: {}",
        documents(host)?
    );
    of_release(cluster, &UPGRADE_FROM)
}

/// All hosts have the newer release, nothing is left to do, and nothing needs the older bundle.
fn completed(cluster: &Cluster, mut page: GuideWalk, newer: &Release) -> Result<Counts> {
    let (host, to) = (&cluster.bootstrap, newer.kubernetes);
    of_release(cluster, newer)?;
    let after = documents(host)?;
    ensure!(
        after.contains(&format!("version: \"{}\"", newer.minor()))
            && after.matches("bundle:").count() == 1
            && !after.contains(UPGRADE_FROM.kubernetes),
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
    let said = page.run(host, page::CHECK)?;
    let etcd = newer.etcd_module.trim_start_matches('v');
    for part in [
        &format!("Client Version: {to}"),
        &format!("Server Version: {to}"),
        &format!("etcd Version: {etcd}"),
    ] {
        ensure!(said.contains(part), "{part:?} is not in {said}");
    }
    let old = UPGRADE_FROM.bundle();
    let reason = format!("is older than {to}");
    refused(host, &["ctl", "upgrade", &old, "--yes"], &[&reason])?;
    page.run(host, page::REMOVE)?;
    page.end()?;
    Ok(Counts::ONE)
}

/// Upgrades the cluster by the script.
fn run(cluster: &Cluster, script: &str) -> Result<()> {
    fs::write(cluster.bootstrap.file(SCRIPT), script)?;
    let (status, said) = followed(cluster, &["sh", SCRIPT], |_| Ok(()))?;
    ensure!(status.success(), "the upgrade: {said}");
    Ok(())
}

/// The same with a pause, which begins when the first host has its new API server: that host gets
/// the whole bundle, and no other host changes. The lock of etcd's members is free then, and only a
/// backup leads back. The command that continues completes the upgrade.
fn with_a_pause(cluster: &Cluster, script: &str) -> Result<()> {
    let (host, to) = (&cluster.bootstrap, OLDER_PATCH);
    let (first, bundle) = (host.spec.name.as_str(), to.bundle());
    fs::write(host.file(SCRIPT), script)?;
    let pause = guide::upgrade_command("ctl upgrade pause", &bundle, &[])?;
    let has_api_server = format!("  {first}-control-plane ✓");
    let (status, said) = followed(cluster, &["sh", SCRIPT], |line| {
        if line.contains(&has_api_server) {
            let said = host.run(&pause)?;
            ensure!(said.contains("pauses before the next host"), "{said}");
        }
        Ok(())
    })?;
    ensure!(
        status.code() == Some(1) && said.contains("`ctl upgrade resume` continues it"),
        "the paused upgrade ended with {status}: {said}"
    );
    let status: UpgradeStatus = ctl_answer::of(host, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Paused && status.done == [first] && status.left.len() == 3,
        "{status:?}"
    );
    for other in cluster.hosts() {
        if other.spec.name != first {
            runs(cluster, other, &UPGRADE_FROM)?;
        }
    }
    // The API shows a restarted pod as ready some time after it is.
    let seen = wait::until("a cluster without failures", PODS, || {
        host.run(&["ctl", "status"])
    })?;
    ensure!(seen.contains("is paused since"), "{seen}");
    host.run(&["timeout", "120", "ctl", "etcd", "defrag"])?;
    refused(
        host,
        &guide::upgrade_command("ctl upgrade back", &bundle, &["--yes"])?,
        &[
            &format!(
                "the API server of {first} has got Kubernetes {}",
                to.kubernetes
            ),
            "cannot be downgraded to another minor version",
            "only a restored backup leads back",
            "the newest one from before the upgrade is",
            "would be lost",
        ],
    )?;
    let resume = guide::upgrade_command("ctl upgrade resume", &bundle, &["--yes"])?;
    let (status, said) = followed(cluster, &resume, |_| Ok(()))?;
    ensure!(status.success(), "the resumed upgrade: {said}");
    Ok(())
}

/// Upgrades the cluster by a command, and gives the line of each step that has ended to a function.
/// As soon as a host has its new API server, that server reaches the kubelets of all hosts.
fn followed<S: AsRef<str>>(
    cluster: &Cluster,
    words: &[S],
    mut at_end: impl FnMut(&str) -> Result<()>,
) -> Result<(ExitStatus, String)> {
    let began = Instant::now();
    let mut running = Running::start(&cluster.bootstrap, words)?;
    let (mut ended, mut checked) = (0, 0);
    while let Some(line) = running.next_end(ended)? {
        println!("  {}", line.trim());
        ended += 1;
        at_end(&line)?;
        if line.contains("control-plane ") && !line.contains("images-") {
            reaches_kubelets(cluster)?;
            checked += 1;
        }
    }
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(checked > 0, "no step `control-plane` was seen: {said}");
    println!("  the upgrade took {} s", began.elapsed().as_secs());
    Ok((status, said))
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
    kubeadm::compare_running(cluster, &UPGRADE_TO)
}

fn as_kubeadm_upgrades(cluster: &Cluster) -> Result<Counts> {
    kubeadm::upgraded::compare(cluster, &UPGRADE_FROM, &UPGRADE_TO)
}
