//! Checks of the certificates on the hosts.

use halite_host_reports::health::Lifetime;

use super::Finding;
use super::picture::Picture;
use crate::operator::certificates::owner_remedy;

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
    each(picture, |host, one| {
        let left = one.ends - now;
        if left <= 0 || left >= (one.ends - one.begins) / PART {
            return None;
        }
        let when = match left / DAY {
            0 => "within a day".to_owned(),
            1 => "in 1 day".to_owned(),
            days => format!("in {days} days"),
        };
        let message = format!("a certificate on {host} ends {when}: {}", one.path);
        Some(Finding {
            remedy: owner_remedy(host, &one.path),
            ..Finding::on(host, message)
        })
    })
}

pub(super) fn renewals(picture: &Picture) -> Vec<Finding> {
    let notes = picture.renewals.iter();
    notes
        .map(|note| Finding::on(note.host.as_str(), note.text(picture.now)))
        .collect()
}

fn each(picture: &Picture, judge: impl Fn(&str, &Lifetime) -> Option<Finding>) -> Vec<Finding> {
    let answers = picture.answers();
    let all = answers.flat_map(|(host, health)| {
        let certificates = health.certificates.iter();
        certificates.map(move |one| (host.as_str(), one))
    });
    all.filter_map(|(host, one)| judge(host, one)).collect()
}
