//! Checks of the certificates on the hosts.

use halite_host_reports::health::Lifetime;

use super::Finding;
use super::picture::Picture;

/// The last part of its lifetime in which a certificate counts as ending soon. States renew in the
/// last third: a certificate in its last sixth has missed that.
const PART: i64 = 6;
const DAY: i64 = 24 * 60 * 60;

pub(super) fn ended(picture: &Picture) -> Vec<Finding> {
    let now = picture.now / 1000;
    each(picture, |one| {
        (one.ends <= now).then(|| format!("has expired: {}", one.path))
    })
}

pub(super) fn ending(picture: &Picture) -> Vec<Finding> {
    let now = picture.now / 1000;
    each(picture, |one| {
        let left = one.ends - now;
        let soon = left > 0 && left < (one.ends - one.begins) / PART;
        soon.then(|| match left / DAY {
            0 => format!("ends within a day: {}", one.path),
            1 => format!("ends in 1 day: {}", one.path),
            days => format!("ends in {days} days: {}", one.path),
        })
    })
}

pub(super) fn renewals(picture: &Picture) -> Vec<Finding> {
    let notes = picture.renewals.iter();
    notes
        .map(|note| Finding::on(note.host.as_str(), note.text(picture.now)))
        .collect()
}

fn each(picture: &Picture, judge: impl Fn(&Lifetime) -> Option<String>) -> Vec<Finding> {
    let hosts = picture.answers();
    let found = hosts.flat_map(|(host, health)| {
        let faults = health.certificates.iter().filter_map(&judge);
        let finding =
            move |fault| Finding::on(host.as_str(), format!("a certificate on {host} {fault}"));
        faults.map(finding).collect::<Vec<_>>()
    });
    found.collect()
}
