//! Checks of the certificates on the hosts.

use halite_host_reports::health::Lifetime;

use super::Finding;
use super::picture::Picture;
use crate::operator::certificates::{end_of, is_copy, owner_remedy};

/// The last part of its lifetime in which a certificate counts as ending soon. States renew in the
/// last third: a certificate in its last sixth has missed that.
const PART: i64 = 6;
const DAY: i64 = 24 * 60 * 60;

pub(super) fn ended(picture: &Picture) -> Vec<Finding> {
    let now = picture.now / 1000;
    each(picture, |host, one| {
        let message = format!("a certificate on {host} has expired: {}", one.path);
        (one.ends <= now).then(|| Finding::on(host, message))
    })
}

pub(super) fn ending(picture: &Picture) -> Vec<Finding> {
    let now = picture.now / 1000;
    let is_ending = |begins: i64, ends: i64| ends > now && ends - now < (ends - begins) / PART;
    let seen = picture.seen.as_ref();
    let is_foreign = |name: &str| name == "etcd" && seen.is_some_and(|seen| seen.etcd_is_external);
    let cas = picture.authorities.iter().filter(|(ca, begins)| {
        is_ending(*begins, ca.expires.as_millis() / 1000) && !is_foreign(&ca.name)
    });
    let cas = cas.map(|(ca, _)| {
        let [message, remedy] = end_of(ca);
        Finding {
            remedy: Some(remedy),
            ..Finding::on("", message)
        }
    });
    let on_hosts = each(picture, |host, one| {
        if !is_ending(one.begins, one.ends) {
            return None;
        }
        let when = match (one.ends - now) / DAY {
            0 => "within a day".to_owned(),
            1 => "in 1 day".to_owned(),
            days => format!("in {days} days"),
        };
        let message = format!("a certificate on {host} ends {when}: {}", one.path);
        Some(Finding {
            remedy: owner_remedy(host, &one.path),
            ..Finding::on(host, message)
        })
    });
    cas.chain(on_hosts).collect()
}

pub(super) fn renewals(picture: &Picture) -> Vec<Finding> {
    let notes = picture.renewals.iter();
    notes
        .map(|note| Finding::on(note.host.as_str(), note.text(picture.now)))
        .collect()
}

/// Judges the certificates on the hosts without copies of the master's CAs, which no state renews.
fn each(picture: &Picture, judge: impl Fn(&str, &Lifetime) -> Option<Finding>) -> Vec<Finding> {
    let answers = picture.answers();
    let all = answers.flat_map(|(host, health)| {
        let certificates = health.certificates.iter();
        let certificates = certificates.filter(|one| {
            let mut cas = picture.authorities.iter();
            !cas.any(|(ca, _)| is_copy(one, ca))
        });
        certificates.map(move |one| (host.as_str(), one))
    });
    all.filter_map(|(host, one)| judge(host, one)).collect()
}
