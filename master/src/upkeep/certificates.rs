//! The certificates of the hosts that are due for renewal, according to their minions.

use std::collections::BTreeMap;

use halite_host_reports::health::{HostHealth, Lifetime};
use halite_names::NodeName;
use halite_pillar::declaration::Declaration;
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use halite_states::certificates::{DAYS, OF_MEMBERS, SHIPPED, renewed_from};
use halite_store::Millis;

use super::schedule::{DueRenewal, Members};

/// The remaining seconds of validity below which the states renew a certificate.
const WINDOW: i64 = renewed_from(DAYS) * 24 * 60 * 60;

/// The earliest end among the host's certificates that states renew and that are in their last
/// third. The kubelet's own and the minion's are excluded: both renew their own.
fn first_due(health: &HostHealth, now: i64) -> Option<i64> {
    let ends = shipped(health).map(|one| one.ends);
    ends.filter(|ends| ends - now < WINDOW).min()
}

/// The certificates that states make.
fn shipped(health: &HostHealth) -> impl Iterator<Item = &Lifetime> {
    let all = health.certificates.iter();
    all.filter(|one| SHIPPED.contains(&one.path.as_str()))
}

/// Returns whether a certificate has expired with which the host's etcd member accepts the others.
fn is_cut_off(health: &HostHealth, now: i64) -> bool {
    let mut all = health.certificates.iter();
    all.any(|one| one.ends <= now && OF_MEMBERS.contains(&one.path.as_str()))
}

/// The hosts with certificates that are due for renewal, not yet tried, sorted by name.
pub(super) fn due(
    declaration: &Declaration,
    answers: &BTreeMap<NodeName, HostHealth>,
    accepted: &[MinionId],
    now: Millis,
) -> Vec<DueRenewal> {
    let seconds = now / 1000;
    let host = |(name, health): (&NodeName, &HostHealth)| {
        let ends = first_due(health, seconds)?;
        let node = declaration.nodes.get(name)?;
        Some(DueRenewal {
            host: accepted.iter().find(|id| *id == name.as_str())?.clone(),
            ends: ends.saturating_mul(1000),
            expired: ends <= seconds,
            cut_off: node.is_member() && is_cut_off(health, seconds),
            alone: node.has(Role::Etcd) || node.has(Role::ControlPlane),
            tried: None,
        })
    };
    answers.iter().filter_map(host).collect()
}

/// The members of etcd, and the number that can accept others.
pub(super) fn members(
    declaration: &Declaration,
    answers: &BTreeMap<NodeName, HostHealth>,
    now: Millis,
) -> Members {
    let members = declaration.nodes.iter();
    let members = members.filter(|(_, node)| node.is_member());
    let names: Vec<&NodeName> = members.map(|(name, _)| name).collect();
    let health = names.iter().filter_map(|name| answers.get(*name));
    Members {
        all: names.len(),
        valid: health.filter(|own| !is_cut_off(own, now / 1000)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn health(paths: &[(&str, i64)]) -> HostHealth {
        let lifetime = |(path, left): &(&str, i64)| Lifetime {
            ends: NOW + left,
            begins: NOW - 1,
            path: (*path).to_owned(),
            subject: String::new(),
            issuer: String::new(),
        };
        HostHealth {
            certificates: paths.iter().map(lifetime).collect(),
            ..HostHealth::default()
        }
    }

    #[test]
    fn a_certificate_is_due_when_the_states_renew_it() {
        let day = 24 * 60 * 60;
        // The rule of `x509.certificate`: fewer days are left than a third of its lifetime.
        assert_eq!(WINDOW, 121 * day);
        let path = SHIPPED[0];
        let due = |left| first_due(&health(&[(path, left)]), NOW);
        assert_eq!(due(WINDOW), None);
        assert_eq!(due(WINDOW - 1), Some(NOW + WINDOW - 1));
        assert_eq!(due(-5), Some(NOW - 5));
    }

    #[test]
    fn certificates_that_renew_themselves_or_cannot_be_renewed_are_left_out() {
        let others = [
            "/var/lib/kubelet/pki/kubelet-client-current.pem",
            "/var/lib/halite/minion/identity.crt",
            "/etc/kubernetes/pki/ca.crt",
            "/etc/kubernetes/pki/of-an-operator.crt",
        ];
        let all: Vec<(&str, i64)> = others.iter().map(|path| (*path, -1)).collect();
        assert_eq!(first_due(&health(&all), NOW), None);
        let mut all = all;
        all.push(("/etc/kubernetes/admin.conf", 9));
        all.push(("/etc/kubernetes/scheduler.conf", 7));
        assert_eq!(first_due(&health(&all), NOW), Some(NOW + 7));
    }

    #[test]
    fn a_member_is_cut_off_by_its_own_two_certificates() {
        for (path, cut_off) in [
            ("/etc/kubernetes/pki/etcd/server.crt", true),
            ("/etc/kubernetes/pki/etcd/peer.crt", true),
            ("/etc/kubernetes/pki/etcd/healthcheck-client.crt", false),
            ("/etc/kubernetes/pki/apiserver.crt", false),
        ] {
            assert_eq!(is_cut_off(&health(&[(path, 0)]), NOW), cut_off, "{path}");
            assert!(!is_cut_off(&health(&[(path, 1)]), NOW), "{path}");
        }
    }
}
