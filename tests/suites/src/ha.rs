//! Three control planes: all serve, the loss of one costs a moment, and hosts leave and come back.

mod leaving;

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::prepare;
use serde_json::Value;

use crate::availability::holders::Sampler;
use crate::availability::record::numbers;
use crate::availability::target::{Identity, Kind, Target};
use crate::availability::writes::Loop;
use crate::cluster::nothing_left;
use crate::site::Site;
use crate::test::{Counts, Test};

/// The address in the cluster document.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 100);
/// The name that leads to it, in the certificate of each API server.
const NAME: &str = "api.demo.internal";
/// Limit for hosts and members to be as they were after a loss.
const BACK: Duration = Duration::from_secs(240);
/// Limit of the gap when the holder of the address loses power: three times the target of the
/// bench.
const GAP: Duration = Duration::from_secs(12);
/// Limit of the time in which two hosts hold the address.
const SHARED: Duration = Duration::from_millis(1500);
/// Where the loop of writes puts its ConfigMaps.
const NAMESPACE: &str = "writes";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: three members vote, and each control plane serves",
        run: complete,
    },
    Test {
        name: "ha: the power cut of the host with the address costs a moment, and no write",
        run: power_cut_of_the_holder,
    },
    Test {
        name: "ha: a budget holds a drain until it allows it",
        run: leaving::drained,
    },
    Test {
        name: "ha: a removed worker is bare, forgotten, and can be added again",
        run: leaving::removed,
    },
    Test {
        name: "ha: a destroyed control plane is replaced",
        run: leaving::replaced,
    },
    Test {
        name: "ha: nothing tried to leave",
        run: nothing_left,
    },
];

/// The site of three control planes and one worker.
pub(super) fn site() -> Site {
    Site {
        lab: "ha".to_owned(),
        made: "ha: bootstrap, two control planes and a worker",
        layout: &HA,
        make: |lab, layout| prepare::cluster(lab, layout, &Board::plain()),
        tests: TESTS.iter().collect(),
    }
}

/// Runs etcdctl in the member of a host, with the answer as JSON.
fn etcdctl(cluster: &Cluster, host: &Host, words: &[&str]) -> Result<Value> {
    let pod = format!("etcd-{}", host.spec.name);
    let mut command = vec![
        "-n",
        "kube-system",
        "exec",
        &pod,
        "--",
        "etcdctl",
        "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
        "--cert=/etc/kubernetes/pki/etcd/server.crt",
        "--key=/etc/kubernetes/pki/etcd/server.key",
        "--write-out=json",
    ];
    command.extend(words);
    let text = cluster.kubectl_on(&host.spec.name, &command)?;
    serde_json::from_str(&text).with_context(|| format!("etcdctl {}: {text}", words.join(" ")))
}

/// Fails unless each control plane has a member with a vote, all of the same content, and an API
/// server that is ready, and every node is Ready.
fn is_complete(cluster: &Cluster) -> Result<()> {
    let planes = cluster.control_planes();
    let wanted: BTreeSet<&str> = planes.iter().map(|host| host.spec.name.as_str()).collect();
    let first = planes.first().context("no control plane")?;
    let list = etcdctl(cluster, first, &["member", "list"])?;
    let members = list["members"].as_array().context("no list of members")?;
    ensure!(
        members.iter().all(|member| member["isLearner"] != true),
        "a member is a learner: {list}"
    );
    let names: BTreeSet<&str> = members.iter().filter_map(|m| m["name"].as_str()).collect();
    ensure!(names == wanted, "the members are {names:?}, not {wanted:?}");
    for host in &planes {
        let ready = cluster.kubectl_on(&host.spec.name, &["get", "--raw", "/readyz"])?;
        ensure!(ready.trim() == "ok", "{}: {ready}", host.spec.name);
        let own = format!("https://{}:6443/readyz", host.control_plane_address());
        let get = ["curl", "-sS", "--fail", "--max-time", "2", "--noproxy", "*"];
        let ca = ["--cacert", "/etc/kubernetes/pki/ca.crt", &own];
        cluster.worker.run(&[&get[..], &ca[..]].concat())?;
    }
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "json"])?;
    let nodes: Value = serde_json::from_str(&nodes)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        let mut all = nodes["items"].as_array().into_iter().flatten();
        let node = all.find(|node| node["metadata"]["name"] == name.as_str());
        let conditions = &node.with_context(|| format!("no node {name}"))?["status"]["conditions"];
        let mut conditions = conditions.as_array().into_iter().flatten();
        let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
        ensure!(ready, "{name} is not Ready");
    }
    Ok(())
}

/// Waits until all members have the same content.
fn same_content(cluster: &Cluster) -> Result<()> {
    let planes = cluster.control_planes();
    let first = planes.first().context("no control plane")?;
    wait::until("equal content of all members", BACK, || {
        let answers = etcdctl(cluster, first, &["endpoint", "hashkv", "--cluster"])?;
        let answers = answers.as_array().context("no list of hashes")?;
        ensure!(answers.len() == planes.len(), "{answers:?}");
        let hash = |answer: &Value| {
            let hash = &answer["HashKV"];
            (hash["hash"].as_u64(), hash["hash_revision"].as_u64())
        };
        let different: BTreeSet<_> = answers.iter().map(hash).collect();
        ensure!(different.len() == 1, "{answers:?}");
        Ok(())
    })
}

fn complete(cluster: &Cluster) -> Result<Counts> {
    is_complete(cluster)?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// The control plane that holds the address.
fn holder(cluster: &Cluster) -> Result<&Host> {
    let planes = cluster.control_planes();
    let sampler = Sampler::start(&planes, VIP);
    let found = wait::until("one holder of the address", BACK, || {
        let now = sampler.samples().now();
        match (now.len(), now.first()) {
            (1, Some(name)) => Ok(name.clone()),
            _ => Err(anyhow!("held by {now:?}")),
        }
    });
    sampler.end()?;
    cluster.host(&found?)
}

fn power_cut_of_the_holder(cluster: &Cluster) -> Result<Counts> {
    let lost = holder(cluster)?;
    let planes = cluster.control_planes();
    let rest = planes.iter().find(|host| host.spec.name != lost.spec.name);
    let rest = rest.context("no other control plane")?;
    let identity = administrator(rest)?;
    // It may be there from an earlier attempt.
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let target = Target {
        kind: Kind::Kubernetes {
            namespace: NAMESPACE.to_owned(),
        },
        url: format!("https://{NAME}:6443"),
        address: Some((VIP, 6443).into()),
        prefix: "power-cut".to_owned(),
        identity: Some(identity),
    };
    let sampler = Sampler::start(&planes, VIP);
    let writes = Loop::start(&cluster.worker, &target)?;
    let name = [lost.spec.name.clone()];
    let listed = || -> Result<BTreeSet<u64>> {
        let names = config_maps(cluster, rest)?;
        Ok(numbers(&target.prefix, names.lines()))
    };
    wait::until("the first writes", Duration::from_secs(20), || {
        let count = listed()?.len();
        ensure!(count > 20, "{count} writes");
        Ok(())
    })?;
    let before = listed()?.len();
    cluster.lab.power_off(&name, false)?;
    wait::until("writes after the power cut", BACK, || {
        let count = listed()?.len();
        ensure!(count > before + 60, "{count} writes, {before} before");
        Ok(())
    })?;
    let record = writes.end()?;
    let held = sampler.end()?;
    let missing = record.missing(&listed()?);
    ensure!(
        missing.is_empty(),
        "acknowledged and not there: {missing:?}"
    );
    let gap = record.longest_gap();
    println!(
        "  {} writes acknowledged, longest gap {:.1} s; two holders for {} ms",
        record.acknowledged().len(),
        gap.length.as_secs_f64(),
        held.longest_shared().as_millis()
    );
    if gap.length > GAP {
        bail!("a gap of {:?}: {:?}", gap.length, gap.errors);
    }
    ensure!(
        held.longest_shared() <= SHARED,
        "two holders: {:?}",
        held.changes()
    );
    cluster.lab.power_on(&name)?;
    wait::until("the lost host to be back", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    Ok(Counts::ONE)
}

/// The identity in the kubeconfig file of a control plane's root.
fn administrator(host: &Host) -> Result<Identity> {
    let text = fs::read_to_string(host.file("/etc/kubernetes/admin.conf"))?;
    let extract = |key: &str, name: &str| -> Result<PathBuf> {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(key));
        let value = value.with_context(|| format!("no {key} in admin.conf"))?;
        let file = host.file(&format!("/root/loop-{name}.pem"));
        fs::write(&file, STANDARD.decode(value.trim().trim_matches('"'))?)?;
        Ok(file)
    };
    Ok(Identity {
        authority: extract("certificate-authority-data:", "authority")?,
        certificate: extract("client-certificate-data:", "certificate")?,
        key: extract("client-key-data:", "key")?,
    })
}

/// Names of the ConfigMaps, asked on a host that is on.
fn config_maps(cluster: &Cluster, host: &Host) -> Result<String> {
    let name = "-o=custom-columns=NAME:.metadata.name";
    let words = ["get", "configmaps", "-n", NAMESPACE, "--no-headers", name];
    cluster.kubectl_on(&host.spec.name, &words)
}
