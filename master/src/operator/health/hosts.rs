//! Checks of the hosts: minions, highstates, Kubernetes nodes.

use halite_api::HighstateResult;

use super::Finding;
use super::picture::{HostPicture, Picture};

pub(super) fn minions(picture: &Picture) -> Vec<Finding> {
    let away = picture
        .hosts
        .iter()
        .filter(|host| host.declared && host.accepted && !host.connected);
    away.map(|host| {
        Finding::on(
            &host.name,
            format!("the minion on {} is not connected", host.name),
        )
    })
    .collect()
}

pub(super) fn enrolment(picture: &Picture) -> Vec<Finding> {
    let bare = picture
        .hosts
        .iter()
        .filter(|host| host.declared && !host.accepted);
    bare.map(|host| {
        let name = &host.name;
        Finding::on(name, format!("{name} is declared and has not enrolled"))
    })
    .collect()
}

pub(super) fn highstate(picture: &Picture) -> Vec<Finding> {
    let one = |host: &HostPicture| {
        let what = match host.highstate.as_ref()? {
            HighstateResult::Failed => "failed",
            HighstateResult::Interrupted => "was interrupted",
            HighstateResult::Lost => "has no return",
            _ => return None,
        };
        let message = format!("the last highstate of {} {what}", host.name);
        Some(Finding::on(&host.name, message))
    };
    picture.hosts.iter().filter_map(one).collect()
}

/// Nodes that are not Ready or under pressure. A cordoned node is intended. A host that has not
/// enrolled has no node yet, and without the API no node is known.
pub(super) fn nodes(picture: &Picture) -> Vec<Finding> {
    let known = (picture.seen.as_ref()).is_some_and(|seen| seen.api_fault.is_none());
    if !known {
        return Vec::new();
    }
    let one = |host: &HostPicture| {
        let name = &host.name;
        let Some(node) = &host.node else {
            // Its highstate has run: it should have registered.
            let should = host.runs_containers && host.accepted && host.highstate.is_some();
            return should.then(|| {
                Finding::on(
                    name,
                    format!("{name} has not registered with the Kubernetes API"),
                )
            });
        };
        let reasons = node.reasons.join("; ");
        match node.ready {
            true if reasons.is_empty() => None,
            true => Some(Finding::on(
                name,
                format!("{name} accepts no pods: {reasons}"),
            )),
            false => Some(Finding::on(name, format!("{name} is not Ready: {reasons}"))),
        }
    };
    picture.hosts.iter().filter_map(one).collect()
}
