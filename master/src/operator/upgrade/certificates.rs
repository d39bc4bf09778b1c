//! Certificates that end while an upgrade may still run: those of the hosts, the CAs, and the
//! identities of the master and of operators.

use std::collections::BTreeMap;

use halite_api::{
    CertificateAuthority, HostCertificate, IdentityCertificate, Renewer, Time, UpgradeCheck,
    UpgradeFinding, UpgradeSeverity,
};
use halite_core::refusal::Refusal;
use halite_orchestrate::host_findings::{Against, finding};
use halite_proto::ids::MinionId;

use crate::operator::certificates::{end_of, known, owner_remedy};
use crate::operator::status::Inspection;

/// The shortest time ahead, in seconds, for which certificates are judged: an upgrade may be
/// paused.
const DAY: u64 = 24 * 60 * 60;

/// The findings about certificates that end within the estimate, at least within a day. An operator
/// whose certificate has ended before does not matter to the upgrade.
///
/// # Errors
/// A CA cannot be read, or the store failed.
pub(super) async fn findings(
    against: &Against<'_>,
    inspection: &Inspection,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let now = against.jobs.app().clock.now();
    let ahead = against.estimate.unwrap_or_default().max(DAY);
    let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
    let end = Time::from_millis(now.saturating_add(ahead.saturating_mul(1000)));
    let declaration = against.snapshot.declaration();
    let known = known(against.jobs.app(), declaration, &inspection.minions).await?;
    let is_foreign = |ca: &CertificateAuthority| {
        ca.name == "etcd" && declaration.cluster.external_etcd().is_some()
    };
    let cas = known.authorities.iter();
    let cas = cas.filter(|ca| ca.expires <= end && !is_foreign(ca));
    let mut found: Vec<UpgradeFinding> = cas.map(authority).collect();
    let is_operators = |one: &IdentityCertificate| one.renewed_by == Renewer::Nothing;
    let identities = known.identities.iter().filter(|one| {
        one.expires <= end && !(is_operators(one) && one.expires <= Time::from_millis(now))
    });
    found.extend(identities.map(identity));
    for host in &known.hosts {
        found.extend(on_host(&host.host, &host.certificates, end));
    }
    Ok(found)
}

fn warning(host: Option<&str>, message: String, remedy: String) -> UpgradeFinding {
    let check = UpgradeCheck::Certificates;
    finding(UpgradeSeverity::Warning, check, host, message, remedy)
}

fn authority(ca: &CertificateAuthority) -> UpgradeFinding {
    let [message, remedy] = end_of(ca);
    warning(None, message, remedy)
}

fn identity(one: &IdentityCertificate) -> UpgradeFinding {
    let remedy = match one.renewed_by {
        Renewer::Owner => {
            "the master renews it in its last third; `journalctl -u halite-master` says why it has not"
        }
        _ => "`ctl operator create` with the same name creates the next one",
    };
    warning(
        None,
        format!(
            "the certificate of the {} ends at {}",
            one.owner, one.expires
        ),
        remedy.to_owned(),
    )
}

/// One finding for each actor that renews certificates of the host.
fn on_host(host: &MinionId, all: &[HostCertificate], end: Time) -> Vec<UpgradeFinding> {
    let mut ending: BTreeMap<String, Vec<&HostCertificate>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.expires <= end) {
        let remedy = remedy(host, one);
        ending.entry(remedy).or_default().push(one);
    }
    let finding = |(remedy, ending): (String, Vec<&HostCertificate>)| {
        let first = ending.iter().min_by_key(|one| one.expires)?;
        let more = match ending.len() {
            1 => String::new(),
            2 => ", and 1 more does".to_owned(),
            all => format!(", and {} more do", all - 1),
        };
        let (file, ends) = (&first.file, first.expires);
        let message = format!("on {host} the certificate {file} ends at {ends}{more}");
        Some(warning(Some(host.as_str()), message, remedy))
    };
    ending.into_iter().filter_map(finding).collect()
}

/// The way to a new certificate.
fn remedy(host: &MinionId, one: &HostCertificate) -> String {
    if let Some(remedy) = owner_remedy(host.as_str(), &one.file) {
        return remedy;
    }
    match one.renewed_by {
        Renewer::Master | Renewer::Operator => format!("`ctl certs renew {host}` renews it"),
        _ => "Halite does not renew it: replace the file".to_owned(),
    }
}
