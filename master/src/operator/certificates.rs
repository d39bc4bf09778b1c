//! `ctl certs list`: the CAs, the identities, and the certificates on the hosts, from the master's
//! files, its store, and the answers of the minions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_api::{
    CertificateAuthority, CertificateList, HostCertificate, HostCertificates, IdentityCertificate,
    OperatorState, PreparedCa, PreparedState, Renewer, Time,
};
use halite_core::app::App;
use halite_core::ca::{Cas, HALITE, NAMES, files};
use halite_core::declared::in_background;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::target::Target;
use halite_fleet::jobs::{Jobs, target};
use halite_fleet::keys;
use halite_host_reports::health::{HostHealth, Lifetime};
use halite_names::NodeName;
use halite_pillar::ca_rotation::RotationStage;
use halite_pillar::certificates::Renewal;
use halite_pillar::declaration::Declaration;
use halite_proto::pki::Inspected;
use halite_states::certificates::SHIPPED;
use halite_store::Millis;

/// The timeout of a minion's answer, as for `ctl health`.
const LIMIT: Duration = Duration::from_secs(3);
/// The target that stands for the whole cluster.
const ALL: &str = "*";
const DAY: i64 = 24 * 60 * 60;
/// The CA of an operator who has no certificate of the new CA of identities yet.
const PREVIOUS: &str = "halite (previous)";
/// The certificate of a host's minion.
const MINION_IDENTITY: &str = "/var/lib/halite/minion/identity.crt";
/// The certificate of a host's kubelet.
const KUBELET_IDENTITY: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// The certificate that an operator declares if etcd is outside the cluster.
const ETCD_CLIENT: &str = "/etc/kubernetes/pki/apiserver-etcd-client.crt";

/// The remedy for a certificate on `host` that ends although the program that uses it renews it;
/// `None` for a certificate that no program renews by itself.
pub(super) fn owner_remedy(host: &str, path: &str) -> Option<String> {
    match path {
        MINION_IDENTITY => Some(format!(
            "halite-minion renews it in its last third; `ctl logs {host} halite-minion` says why it has not"
        )),
        // A highstate renews the kubelet's first certificate, which is never newer than its present
        // one, and the kubelet then uses it (halite/base/kubelet/init.sls).
        KUBELET_IDENTITY => Some(format!(
            "kubelet renews it in its last third, and `ctl highstate {host}` at once"
        )),
        _ => None,
    }
}

/// The certificates of the hosts that `expression` names; with `*`, those of the whole cluster.
///
/// # Errors
/// The documents cannot be read and never could, the expression matches no minion, or the store
/// fails.
pub(super) async fn list(
    app: &App,
    jobs: &Jobs,
    expression: &str,
) -> Result<CertificateList, Refusal> {
    let expression = match expression.trim() {
        "" => ALL,
        expression => expression,
    };
    let target = Target {
        kind: "glob",
        expression,
        also_master: false,
    };
    // Certificates end even while the documents cannot be read.
    let snapshot = jobs.declarations().in_force().await?;
    let declaration = snapshot.declaration();
    let mut minions = match expression {
        ALL => target::accepted(app).await?,
        _ => target::resolve(app, jobs.declarations(), target).await?,
    };
    minions.retain(|minion| declaration.nodes.contains_key(minion.as_str()));
    let answers = jobs.host_health(declaration.nodes.keys(), LIMIT).await;
    let mut found = known(app, declaration, &answers).await?;
    found.hosts.retain(|host| minions.contains(&host.host));
    minions.retain(|minion| !answers.contains_key(minion.as_str()));
    found.silent = minions;
    if expression == ALL {
        found.prepared = prepared(&app.cas, app.clock.now()).await?;
    } else {
        found.authorities.clear();
        found.identities.clear();
    }
    Ok(found)
}

/// The CAs, the identities, and the certificates on the hosts with these answers.
///
/// # Errors
/// A CA cannot be read, or the store fails.
pub(super) async fn known(
    app: &App,
    declaration: &Declaration,
    answers: &BTreeMap<NodeName, HostHealth>,
) -> Result<CertificateList, Refusal> {
    let now = app.clock.now();
    let authorities = authorities(&app.cas, now)?;
    let rules = Rules {
        renew: declaration.cluster.certificates.renew,
        etcd_is_external: declaration.cluster.external_etcd().is_some(),
    };
    let hosts = answers.iter().map(|(host, health)| HostCertificates {
        host: host.clone().into(),
        certificates: on_host(health, rules, &authorities, now),
    });
    Ok(CertificateList {
        hosts: hosts.collect(),
        identities: identities(app, now).await?,
        authorities,
        ..CertificateList::default()
    })
}

/// The whole days until `ends`, in seconds since the epoch; negative after it.
fn days_left(ends: i64, now: Millis) -> i64 {
    (ends - now / 1000).div_euclid(DAY)
}

fn time(seconds: i64) -> Time {
    Time::from_millis(seconds.saturating_mul(1000))
}

fn authorities(cas: &Cas, now: Millis) -> Result<Vec<CertificateAuthority>, Refusal> {
    let all = lifetimes(cas, now)?.into_iter();
    Ok(all.map(|(ca, _)| ca).collect())
}

/// The CAs of the master, each with the start of its validity in seconds since the epoch; while one
/// is rotated, the one that signs and the other one.
///
/// # Errors
/// A CA cannot be read.
pub(super) fn lifetimes(
    cas: &Cas,
    now: Millis,
) -> Result<Vec<(CertificateAuthority, i64)>, Refusal> {
    let failed = |error: &dyn std::error::Error| Refusal::internal(chain(error));
    let mut all = Vec::new();
    for name in NAMES {
        let trusted = cas.certificates(name).map_err(|error| failed(&error))?;
        for (index, pem) in trusted.into_iter().enumerate() {
            let found = Inspected::from_pem(pem).map_err(|error| failed(&error))?;
            let (subject, ends) = (found.subject, found.not_after);
            let listed = CertificateAuthority {
                name: name.to_owned(),
                subject,
                expires: time(ends),
                days_left: days_left(ends, now),
                signs: index == 0,
            };
            all.push((listed, found.not_before));
        }
    }
    Ok(all)
}

/// The next CAs that operators have prepared.
async fn prepared(cas: &Arc<Cas>, now: Millis) -> Result<Vec<PreparedCa>, Refusal> {
    let cas = Arc::clone(cas);
    in_background(move || {
        let all = cas.prepared();
        let all = all.map_err(|error| Refusal::internal(chain(&error)))?;
        let all = all.into_iter();
        all.map(|one| prepared_ca(one.name, one.certificate.as_deref(), now))
            .collect()
    })
    .await
}

/// The next CA of a name: requested, or imported with this certificate (PEM).
pub(super) fn prepared_ca(
    name: &str,
    certificate: Option<&str>,
    now: Millis,
) -> Result<PreparedCa, Refusal> {
    let found = certificate.map(Inspected::from_pem).transpose();
    let found = found.map_err(|error| Refusal::internal(chain(&error)))?;
    let ends = found.as_ref().map(|found| found.not_after);
    Ok(PreparedCa {
        name: name.to_owned(),
        state: match certificate {
            Some(_) => PreparedState::Imported,
            None => PreparedState::Requested,
        },
        subject: found.map(|found| found.subject),
        expires: ends.map(time),
        days_left: ends.map(|ends| days_left(ends, now)),
        note: None,
    })
}

/// The certificates of the master and of operators who were not revoked.
async fn identities(app: &App, now: Millis) -> Result<Vec<IdentityCertificate>, Refusal> {
    let mut found = Vec::new();
    let directory = app.config.state_dir.clone();
    if let Some(ends) = in_background(move || Ok(end_of_master(&directory))).await? {
        found.push(IdentityCertificate {
            owner: "master".to_owned(),
            expires: time(ends),
            days_left: days_left(ends, now),
            signed_by: HALITE.to_owned(),
            renewed_by: Renewer::Owner,
        });
    }
    let behind = match app.cas.rotation(HALITE) {
        Some(RotationStage::Sign) => keys::with_another_ca(app).await?,
        _ => Vec::new(),
    };
    for operator in keys::list_operators(app).await?.operators {
        // Root on a control plane has no end here: the certificate is a file of that host.
        let Some(ends) = operator.expires else {
            continue;
        };
        if operator.state == OperatorState::Revoked {
            continue;
        }
        found.push(IdentityCertificate {
            owner: format!("operator {}", operator.name),
            expires: ends,
            days_left: days_left(ends.as_millis().div_euclid(1000), now),
            signed_by: match behind.contains(&operator.name) {
                true => PREVIOUS.to_owned(),
                false => HALITE.to_owned(),
            },
            renewed_by: Renewer::Nothing,
        });
    }
    Ok(found)
}

/// The end of the master's certificate in its directory, in seconds since the epoch; `None` if the
/// file cannot be read, which does not hide the others.
fn end_of_master(state_dir: &Path) -> Option<i64> {
    let [certificate, _] = files::pair(state_dir, "identity");
    let pem = files::read(&certificate).ok()?;
    Some(Inspected::from_pem(&pem).ok()?.not_after)
}

/// Returns whether a certificate on a host is a copy of a CA of the master.
pub(super) fn is_copy(one: &Lifetime, ca: &CertificateAuthority) -> bool {
    ca.subject == one.subject && ca.expires == time(one.ends)
}

/// The message about the end of a CA, and the remedy.
pub(super) fn end_of(ca: &CertificateAuthority) -> [String; 2] {
    let CertificateAuthority { name, expires, .. } = ca;
    [
        format!(
            "the CA {name} ends at {expires}, and all certificates that it has signed end with it"
        ),
        format!("`ctl certs rotate {name}` replaces it"),
    ]
}

/// The certificates on a host, by file, without the copies of the master's CAs.
fn on_host(
    health: &HostHealth,
    rules: Rules,
    authorities: &[CertificateAuthority],
    now: Millis,
) -> Vec<HostCertificate> {
    let signed_by = |issuer: &str| {
        let mut all = authorities.iter();
        let own = all.find(|ca| ca.subject == issuer);
        own.map_or_else(|| issuer.to_owned(), |ca| ca.name.clone())
    };
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let listed = health.certificates.iter();
    let listed = listed.filter(|one| !authorities.iter().any(|ca| is_copy(one, ca)));
    let mut found: Vec<HostCertificate> = listed
        .map(|one| HostCertificate {
            file: one.path.clone(),
            subject: known(&one.subject),
            expires: time(one.ends),
            days_left: days_left(one.ends, now),
            signed_by: known(&one.issuer).map(|issuer| signed_by(&issuer)),
            renewed_by: rules.renewer(&one.path),
        })
        .collect();
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

/// The parts of the declaration that decide who renews a certificate.
#[derive(Debug, Clone, Copy)]
struct Rules {
    renew: Renewal,
    etcd_is_external: bool,
}

impl Rules {
    /// The actor that renews the certificate in a file of a host.
    fn renewer(self, path: &str) -> Renewer {
        let is_foreign = self.etcd_is_external && path == ETCD_CLIENT;
        if matches!(path, MINION_IDENTITY | KUBELET_IDENTITY) {
            Renewer::Owner
        } else if is_foreign || !SHIPPED.contains(&path) {
            Renewer::Nothing
        } else {
            match self.renew {
                Renewal::Automatic => Renewer::Master,
                Renewal::Report => Renewer::Operator,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use halite_pillar::ca_rotation::RotationStage;

    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn lifetime(path: &str, days: i64, subject: &str, issuer: &str) -> Lifetime {
        Lifetime {
            ends: NOW / 1000 + days * DAY,
            begins: 0,
            path: path.to_owned(),
            subject: subject.to_owned(),
            issuer: issuer.to_owned(),
        }
    }

    #[test]
    fn a_ca_that_is_rotated_is_listed_twice() {
        let directory = tempfile::tempdir().unwrap();
        let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
        let later = NOW + DAY * 1000;
        cas.begin_stage("etcd", RotationStage::Trust, "prod", later)
            .unwrap();
        let listed = authorities(&cas, NOW).unwrap().into_iter();
        let listed: Vec<(i64, bool)> = listed
            .filter(|ca| ca.name == "etcd")
            .map(|ca| (ca.days_left, ca.signs))
            .collect();
        assert_eq!(listed, [(3649, true), (3650, false)]);
    }

    #[test]
    fn each_certificate_says_who_signed_it_and_who_renews_it() {
        let directory = tempfile::tempdir().unwrap();
        let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
        let authorities = authorities(&cas, NOW).unwrap();
        assert_eq!(authorities.len(), NAMES.len());
        assert!(authorities.iter().all(|ca| ca.signs));
        let kubernetes = authorities.iter().find(|ca| ca.name == "kubernetes");
        let kubernetes = kubernetes.unwrap();
        assert_eq!(kubernetes.days_left, 3649);
        let mut copy = lifetime("/etc/kubernetes/pki/ca.crt", 0, &kubernetes.subject, "");
        copy.ends = kubernetes.expires.as_millis() / 1000;
        let mut earlier = copy.clone();
        earlier.ends -= 1;
        earlier.path = "/etc/kubernetes/pki/other-ca.crt".to_owned();
        let health = HostHealth {
            certificates: vec![
                lifetime(
                    "/var/lib/halite/minion/identity.crt",
                    -1,
                    "CN=a",
                    "CN=halite-ca prod",
                ),
                copy,
                earlier,
                lifetime(
                    "/etc/kubernetes/pki/apiserver.crt",
                    9,
                    "CN=b",
                    &kubernetes.subject,
                ),
                lifetime(
                    "/etc/kubernetes/pki/apiserver-etcd-client.crt",
                    9,
                    "CN=c",
                    "CN=mine",
                ),
                lifetime("/etc/halite/pki/server.crt", 9, "", ""),
            ],
            ..HostHealth::default()
        };
        let shown = |rules: Rules| -> Vec<(String, Option<String>, Renewer, i64)> {
            let found = on_host(&health, rules, &authorities, NOW).into_iter();
            found
                .map(|one| (one.file, one.signed_by, one.renewed_by, one.days_left))
                .collect()
        };
        let row = |file: &str, by: Option<&str>, renewer: Renewer, days: i64| {
            (file.to_owned(), by.map(str::to_owned), renewer, days)
        };
        let client = "/etc/kubernetes/pki/apiserver-etcd-client.crt";
        let server = "/etc/kubernetes/pki/apiserver.crt";
        let minion = "/var/lib/halite/minion/identity.crt";
        let rules = Rules {
            renew: Renewal::Automatic,
            etcd_is_external: true,
        };
        assert_eq!(
            shown(rules),
            [
                row("/etc/halite/pki/server.crt", None, Renewer::Master, 9),
                row(client, Some("CN=mine"), Renewer::Nothing, 9),
                row(server, Some("kubernetes"), Renewer::Master, 9),
                row(
                    "/etc/kubernetes/pki/other-ca.crt",
                    None,
                    Renewer::Nothing,
                    3649
                ),
                row(minion, Some("halite"), Renewer::Owner, -1),
            ]
        );
        let reported = shown(Rules {
            renew: Renewal::Report,
            etcd_is_external: false,
        });
        let renewers: Vec<&Renewer> = reported.iter().map(|row| &row.2).collect();
        let operator = &Renewer::Operator;
        assert_eq!(
            renewers,
            [
                operator,
                operator,
                operator,
                &Renewer::Nothing,
                &Renewer::Owner
            ]
        );
    }
}
