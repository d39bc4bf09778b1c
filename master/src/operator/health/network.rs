//! Checks of the pod network: the pods that each node needs for it, the network of new pods, and
//! the targets that pods reach. Only the first broken part of each host is a finding: the others
//! follow from it.

use std::collections::BTreeSet;

use halite_cluster::pod_network::{Fault, judge};

use super::Finding;
use super::picture::Picture;

impl From<Fault> for Finding {
    fn from(fault: Fault) -> Self {
        Self {
            remedy: Some(fault.remedy),
            ..Self::on(&fault.host, fault.message)
        }
    }
}

/// Pods of kube-proxy and of the pod network that do not run.
pub(super) fn daemons(picture: &Picture) -> Vec<Finding> {
    let seen = picture.seen.iter();
    let faults = seen.flat_map(|seen| seen.daemons.iter().cloned());
    faults.map(Finding::from).collect()
}

/// Hosts on which a new pod gets no network, or another one.
pub(super) fn setup(picture: &Picture) -> Vec<Finding> {
    let faults: Vec<Fault> = setup_faults(picture).collect();
    let seen = picture.seen.iter().flat_map(|seen| &seen.strangers);
    let strangers = seen.filter(|one| !faults.iter().any(|fault| fault.host == one.host));
    let strangers: Vec<Fault> = strangers.cloned().collect();
    let all = faults.into_iter().chain(strangers);
    all.map(Finding::from).collect()
}

fn setup_faults(picture: &Picture) -> impl Iterator<Item = Fault> {
    let seen = picture.seen.iter();
    let answers = seen.flat_map(|seen| seen.pods.iter().map(move |pods| (seen, pods)));
    let with_daemons = with_daemons(picture);
    answers.filter_map(move |(seen, (host, (_, answer)))| {
        let host = host.as_str();
        let setup = answer.setup.as_ref()?;
        // A host that is not Ready has its own finding. Without the API it is unknown which hosts
        // are Ready, and a host that has not joined yet has no network.
        let is_judged = match seen.api_fault {
            None => is_ready(picture, host) && !with_daemons.contains(host),
            Some(_) => setup.configuration.is_some(),
        };
        is_judged.then(|| judge::setup(host, seen.plugin, setup))?
    })
}

fn is_ready(picture: &Picture, host: &str) -> bool {
    let mut hosts = picture.hosts.iter();
    let node = hosts.find(|known| known.name == host);
    node.and_then(|known| known.node.as_ref())
        .is_some_and(|node| node.ready)
}

/// The hosts on which a pod of kube-proxy or of the network does not run.
fn with_daemons(picture: &Picture) -> BTreeSet<String> {
    let seen = picture.seen.iter();
    let faults = seen.flat_map(|seen| &seen.daemons);
    faults.map(|fault| fault.host.clone()).collect()
}

/// Hosts whose pods do not reach their required targets.
pub(super) fn traffic(picture: &Picture) -> Vec<Finding> {
    let Some(seen) = &picture.seen else {
        return Vec::new();
    };
    let mut broken = with_daemons(picture);
    broken.extend(setup_faults(picture).map(|fault| fault.host));
    let is_sound = |host: &str| is_ready(picture, host) && !broken.contains(host);
    let answers = seen.pods.iter();
    let answers = answers.filter(|(host, _)| is_sound(host.as_str()));
    let faults = answers.filter_map(|(host, (question, answer))| {
        judge::traffic(host.as_str(), seen.plugin, question, answer, |other| {
            !is_sound(other)
        })
    });
    faults.map(Finding::from).collect()
}
