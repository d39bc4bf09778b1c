//! Three control planes: all serve, the loss of one costs a moment, and hosts leave and return.

mod all_off;
mod backups;
mod bad_flag;
mod boundaries;
mod bridge;
mod cancelled;
mod damaged;
mod destroyed;
mod dies;
mod encryption;
mod etcd;
mod etcd_hosts;
mod expired;
mod failovers;
mod fewer;
mod full_disk;
mod last_worker;
mod leader;
mod leaving;
mod links;
mod losses;
mod lost_data;
mod master_dies;
mod operators;
mod orders;
mod pod;
mod proxies;
mod proxies_health;
mod quorum;
mod reboot;
mod release;
mod retiring;
mod returned;
mod roles;
mod stalls;
mod standbys;
mod switches;
mod taints;
mod taken_out;
mod touched;
mod upgrade_back;
mod upgrade_dies;
mod upgrade_lost_master;
mod upgrade_meanwhile;
mod upgrade_stops;
mod upgraded;
mod wiped;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_upstream::versions;
use serde_json::Value;

use crate::cluster::nothing_left;
use crate::etcdctl::etcdctl;
use crate::firewall;
use crate::kubeadm::control_plane;
use crate::site::{Site, from_the_iso};
use crate::test::{Counts, Test, cases, sequence};

pub(crate) use leaving::wait_until_lost;
pub use links::both_ways as links_cut_both_ways;
pub use losses::{ApiPath, Measured, api_server, behind_the_proxy, keepalived, power};
pub(crate) use losses::{ConfigMapWriter, GAP, at_the_vip, from_the_router, while_written};
pub use proxies::with_proxies;
pub use reboot::{behind_the_proxy as rebooted_behind_the_proxy, of_another_holder};
pub use release::add_release;
pub(crate) use release::{add_release_with_halite, has as has_release};
pub use retiring::first_host_leaves;
pub(crate) use standbys::{STANDBYS, wait_for_followers};
pub use touched::Since;
pub use upgraded::timed as timed_upgrade;
pub(crate) use upgraded::to_published as upgraded_to_published;

/// Limit for hosts and members to recover after a loss. A kubelet waits for up to five minutes
/// before it restarts a program that exited several times, and Kubernetes repeats some changes of a
/// node only after as long.
const BACK: Duration = Duration::from_secs(420);

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: three members vote, and each control plane serves",
        run: complete,
    },
    Test {
        name: "ha: two control planes follow the master",
        run: standbys::follow,
    },
    Test {
        name: "ha: an additional control plane equals one made by kubeadm join",
        run: control_plane::compare,
    },
    Test {
        name: "ha: standbys hold backups of their own, also while the master is off",
        run: backups::of_standbys,
    },
    Test {
        name: "ha: an etcd starts with a backup, its keys are counted, and a changed byte is reported",
        run: backups::started,
    },
    Test {
        name: "ha: a standby with a flipped bit in its copy saves nothing of it, and takes another",
        run: damaged::copy,
    },
    Test {
        name: "ha: ctl and kubectl work as root on each control plane",
        run: operators::on_each,
    },
    Test {
        name: "ha: a killed API server costs a moment, and no write",
        run: losses::of_the_api_server,
    },
    Test {
        name: "ha: a killed keepalived costs a moment, and no write",
        run: losses::of_keepalived,
    },
    Test {
        name: "ha: the power cut of the host with the address costs a moment, and no write",
        run: losses::of_power,
    },
    Test {
        name: "ha: links that are cut in one and in both directions heal, with one holder of the address",
        run: links::heal,
    },
    Test {
        name: "ha: a reboot of the host with the address moves the address first, and changes nothing else",
        run: reboot::of_the_holder,
    },
    Test {
        name: "ha: a host that stays changes its roles",
        run: roles::given_and_taken,
    },
    Test {
        name: "ha: without an address the proxies forward to the API servers that answer",
        run: proxies::lead_to_those_that_answer,
    },
    Test {
        name: "ha: all hosts come back with certificates that expired while they were off",
        run: expired::comes_back,
    },
    Test {
        name: "ha: a disruption budget blocks a drain until it allows it",
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
];

/// Longer ones, which leave the hosts unchanged.
const LONGER: &[Test<Cluster>] = &[
    Test {
        name: "ha: an unknown etcd flag stops the run at the first host, which rolls back",
        run: bad_flag::stops_at_the_first,
    },
    Test {
        name: "ha: all hosts come back by themselves after a power cut",
        run: all_off::in_reverse,
    },
    Test {
        name: "ha: the last member of etcd becomes a cluster, and the lost ones are replaced",
        run: etcd::recovered,
    },
];

/// Tests that leave the cluster unchanged. They need the bundle of the first ISO.
const BEFORE: &[Test<Cluster>] = &[
    Test {
        name: "ha: all hosts come back in the other order, too",
        run: all_off::in_order,
    },
    Test {
        name: "ha: links that are cut for three minutes heal, with one holder of the address and every host back",
        run: links::heal_after_minutes,
    },
    Test {
        name: "ha: a control plane is a worker for a while, and no write is lost",
        run: fewer::as_a_worker,
    },
    Test {
        name: "ha: three control planes become one, and three again, and no write is lost",
        run: fewer::one_and_three_again,
    },
    Test {
        name: "ha: scans of all ports of a second control plane and of the worker equal the tables of their roles",
        run: firewall::all_ports_of_others,
    },
    Test {
        name: "ha: the API's address changes between keepalived, an external one and proxies, in all directions",
        run: switches::in_all_directions,
    },
    Test {
        name: "ha: the proxies skip an API server that hangs or is not ready, and use it again by themselves",
        run: proxies_health::leave_out_and_take_back,
    },
    Test {
        name: "ha: a step reports that it waits for images, and continues when they arrive",
        run: stalls::of_an_image,
    },
    Test {
        name: "ha: a step reports that its host is lost, and the host is replaced",
        run: stalls::of_a_dead_host,
    },
    Test {
        name: "ha: members of etcd without a quorum are repaired in parallel",
        run: quorum::repaired_in_parallel,
    },
    Test {
        name: "ha: a full disk under one member of etcd stops only that member, and it comes back by itself once there is space",
        run: full_disk::of_the_leader,
    },
    Test {
        name: "ha: a member that lost its data is removed and added again, as the guide says",
        run: lost_data::removed_and_added_again,
    },
];

/// Tests on which others do not depend. The last one leaves the master on its host.
const FULL: &[Test<Cluster>] = &[
    Test {
        name: "ha: the former master's host, powered on after its replacement, stays out",
        run: returned::stays_out,
    },
    Test {
        name: "ha: a standby that removes the master's dead host becomes the master first",
        run: taken_out::by_a_standby,
    },
    Test {
        name: "ha: a standby recovers etcd from its own member when the master is lost",
        run: etcd::recovered_on_a_standby,
    },
    Test {
        name: "ha: a standby takes over from a destroyed master, and dies at the end of each step",
        run: standbys::replaces_the_lost_master_and_dies,
    },
    Test {
        name: "ha: the master's own host is lost while a host is added, and a standby finishes that",
        run: master_dies::while_added,
    },
    Test {
        name: "ha: the master's own host is lost while a host is removed, and a standby finishes that",
        run: master_dies::while_removed,
    },
];

/// The tests after the numbered ones. The last one needs the bundle of the first ISO, so an upgrade
/// follows it.
const THEN: &[Test<Cluster>] = &[
    Test {
        name: "ha: etcd is defragmented member by member",
        run: etcd::defragmented,
    },
    Test {
        name: "ha: all control planes are wiped, one is restored from a backup, and the others join again",
        run: wiped::restored,
    },
];

/// The master is on another host after it.
const MOVED: &[Test<Cluster>] = &[Test {
    name: "ha: a standby takes over from a destroyed master, and replaces its host",
    run: standbys::replaces_the_lost_master,
}];

/// The master is on the first host after them, and the others are standbys.
const BACK_AGAIN: &[Test<Cluster>] = &[
    Test {
        name: "ha: a master that comes back after a promotion stands by",
        run: standbys::outlives_its_master,
    },
    Test {
        name: "ha: the master moves to a standby and back",
        run: retiring::moves_and_returns,
    },
];

/// Tests that leave the master on its host.
const CUT_OFF: &[Test<Cluster>] = &[
    Test {
        name: "ha: the former master's host becomes a worker for a while, and keeps nothing of the master",
        run: fewer::former_master_as_a_worker,
    },
    Test {
        name: "ha: a master that is cut off starts nothing, and stands by when the link is back",
        run: standbys::cut_off,
    },
];

/// Each destroys the cluster and makes another one.
const DESTROYED: &[Test<Cluster>] = &[
    Test {
        name: "ha: ctl destroy leaves nothing on the hosts of standbys",
        run: destroyed::with_standbys,
    },
    Test {
        name: "ha: ctl destroy names a host that is off, and the files that stay there",
        run: destroyed::with_a_host_off,
    },
    Test {
        name: "ha: three dedicated etcd hosts serve a cluster, and a lost one is replaced",
        run: etcd_hosts::hold_the_cluster,
    },
];

const LAST: &[Test<Cluster>] = &[
    Test {
        name: "ha: a scan of all ports of the first host equals the table of its roles",
        run: scanned,
    },
    // After the others: the first host is bare then.
    Test {
        name: "ha: a retired first host is bare, and the cluster continues",
        run: retiring::leaves,
    },
    // Based on the previous one: the second host has the master, and the third one follows.
    Test {
        name: "ha: the second to last control plane is removed, and the last one serves",
        run: fewer::one_is_left,
    },
    Test {
        name: "ha: the last host after the first one has left is wiped, and restored from a backup",
        run: wiped::restored_without_the_first_host,
    },
];

const END: &[Test<Cluster>] = &[Test {
    name: "ha: nothing tried to leave",
    run: nothing_left,
}];

/// The site of three control planes and one worker. Failovers, boundaries and permanent losses are
/// numbered.
pub(super) fn site() -> Result<Site> {
    let moved = [
        MOVED,
        BACK_AGAIN,
        CUT_OFF,
        bridge::TESTS,
        DESTROYED,
        LAST,
        END,
    ];
    Ok(Site {
        lab: "ha".to_owned(),
        made: "ha: bootstrap, two control planes and a worker",
        layout: &HA,
        release: versions::FULL,
        make: from_the_iso,
        tests: cases(TESTS)
            .into_iter()
            .chain(failovers::numbered())
            .chain(boundaries::every()?)
            .chain(dies::numbered()?)
            .chain(cases(expired::TESTS))
            .chain(cases(encryption::TESTS))
            .chain(cases(BEFORE))
            .chain(cases(THEN))
            .chain(cases(LONGER))
            .chain(cases(upgrade_stops::TESTS))
            .chain(cases(upgrade_back::TESTS))
            .chain(upgrade_dies::numbered()?)
            .chain(cases(upgraded::INTERRUPTED))
            .chain(cases(upgrade_meanwhile::TESTS))
            .chain(cases(upgrade_lost_master::TESTS))
            .chain(cases(FULL))
            .chain(sequence(moved.into_iter().flat_map(cases).collect()))
            .collect(),
    })
}

/// Fails unless each control plane has a voting member, all with the same content, and a ready API
/// server, and every node is Ready.
///
/// # Errors
/// The first violated condition.
pub fn is_complete(cluster: &Cluster) -> Result<()> {
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

/// Waits until all members, one on each control plane, have the same content.
fn same_content(cluster: &Cluster) -> Result<()> {
    same_content_of(cluster, &cluster.control_planes())
}

/// The same while only these control planes exist; the first one is queried.
fn same_content_of(cluster: &Cluster, planes: &[&Host]) -> Result<()> {
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
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    // Both replicas started on the first host.
    let path = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    let words = [
        "get",
        "pods",
        "-n",
        "kube-system",
        "-l",
        "k8s-app=kube-dns",
        "-o",
        path,
    ];
    let nodes = cluster.kubectl(&words)?;
    let different: BTreeSet<&str> = nodes.lines().collect();
    ensure!(
        different.len() == 2,
        "the replicas of CoreDNS are on {nodes}"
    );
    Ok(Counts::ONE)
}

/// The first host has the master, and another one may hold the address.
fn scanned(cluster: &Cluster) -> Result<Counts> {
    let holder = losses::wait_for_one_holder(cluster)?;
    firewall::all_ports(cluster, losses::VIP.into(), cluster.host(&holder)?)
}
