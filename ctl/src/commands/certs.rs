//! `ctl certs`: the certificates of the cluster, their renewal, and the rotation of keys.

use halite_api::{CertificateList, Renewer, to_value};
use halite_states::low::StateReturn;
use serde_json::json;

use crate::cli::{Certs, CertsRenew, Global};
use crate::commands::targets::{run_states, states, within};
use crate::commands::{certs_own, certs_rotate};
use crate::confirm::confirmed;
use crate::job_watch::{FinishedJob, job_outcome, run_job};
use crate::output::{Paint, Screen, count, or_dash, table};
use crate::{FAILED, client};

/// The function of the master's own renewals.
const RENEW: &str = "state.certificates";
/// The state functions that make a certificate.
const MAKERS: [&str; 2] = ["x509.certificate", "kubeconfig.managed"];

/// Runs `ctl certs`.
///
/// # Errors
/// The master does not answer or refuses, or the renewal cannot be confirmed.
pub async fn run(global: &Global, command: Certs, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Certs::List { target } => list(global, target.as_deref(), screen).await,
        Certs::Renew(args) => renew(global, args, screen).await,
        Certs::Rotate(args) => certs_rotate::rotate(global, &args, screen).await,
        Certs::Csr(args) => certs_own::csr(global, &args, screen).await,
        Certs::Import(args) => certs_own::import(global, &args, screen).await,
    }
}

async fn list(global: &Global, target: Option<&str>, screen: &mut Screen) -> anyhow::Result<u8> {
    let target = target.unwrap_or("*");
    let found: CertificateList = client::show(global, "certificates", target, Vec::new()).await?;
    screen.answer(&to_value(&found), |paint| listed(&found, paint))?;
    let is_well = expired(&found) == 0 && found.silent.is_empty();
    Ok(if is_well { 0 } else { FAILED })
}

/// The number of CAs and certificates that have expired. An operator whose time is over is not a
/// fault of the cluster.
fn expired(found: &CertificateList) -> usize {
    let authorities = found.authorities.iter().map(|one| one.days_left);
    let identities = found.identities.iter();
    let identities = identities.filter(|one| one.renewed_by != Renewer::Nothing);
    let identities = identities.map(|one| one.days_left);
    let hosts = found.hosts.iter().flat_map(|host| &host.certificates);
    let all = authorities.chain(identities);
    let all = all.chain(hosts.map(|one| one.days_left));
    all.filter(|days| *days < 0).count()
}

/// The remaining time in a cell.
fn remaining(days: i64) -> String {
    match days {
        ..0 => "expired".to_owned(),
        0 => "< 1 day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// Formats the tables of CAs, of the next ones, of identities and of the hosts, then the hosts
/// without an answer.
pub fn listed(found: &CertificateList, paint: &Paint) -> String {
    let mut parts = Vec::new();
    if !found.authorities.is_empty() {
        let row = |one: &halite_api::CertificateAuthority| {
            let name = match one.signs {
                true => one.name.clone(),
                false => format!("{} (trusted, does not sign)", one.name),
            };
            vec![name, one.expires.to_string(), remaining(one.days_left)]
        };
        let heading = ["ca", "expires", "remaining"];
        parts.push(table::rows(&heading, found.authorities.iter().map(row)));
    }
    if !found.prepared.is_empty() {
        let row = |one: &halite_api::PreparedCa| {
            vec![
                one.name.clone(),
                one.state.to_string(),
                or_dash(one.expires),
                or_dash(one.days_left.map(remaining)),
            ]
        };
        let heading = ["next ca", "state", "expires", "remaining"];
        parts.push(table::rows(&heading, found.prepared.iter().map(row)));
    }
    if !found.identities.is_empty() {
        let row = |one: &halite_api::IdentityCertificate| {
            vec![
                one.owner.clone(),
                one.expires.to_string(),
                remaining(one.days_left),
                one.signed_by.clone(),
                one.renewed_by.to_string(),
            ]
        };
        let heading = ["owner", "expires", "remaining", "signed by", "renewed by"];
        parts.push(table::rows(&heading, found.identities.iter().map(row)));
    }
    let hosts = found.hosts.iter().flat_map(|host| {
        let row = |one: &halite_api::HostCertificate| {
            vec![
                host.host.to_string(),
                one.file.clone(),
                one.expires.to_string(),
                remaining(one.days_left),
                or_dash(one.signed_by.clone()),
                one.renewed_by.to_string(),
            ]
        };
        host.certificates.iter().map(row).collect::<Vec<_>>()
    });
    let heading = [
        "host",
        "file",
        "expires",
        "remaining",
        "signed by",
        "renewed by",
    ];
    parts.push(table::rows(&heading, hosts));
    let mut last = String::new();
    for host in &found.silent {
        let mark = paint.bad("✗");
        last.push_str(&format!(
            "{mark} {host} does not answer; `ctl health` says why\n"
        ));
    }
    match expired(found) {
        0 => {}
        1 => last.push_str(&format!("{} 1 has expired\n", paint.bad("✗"))),
        number => last.push_str(&format!("{} {number} have expired\n", paint.bad("✗"))),
    }
    if !last.is_empty() {
        parts.push(last);
    }
    parts.join("\n")
}

async fn renew(global: &Global, args: CertsRenew, screen: &mut Screen) -> anyhow::Result<u8> {
    let request = |test: bool| {
        let applying = crate::cli::Applying {
            test,
            ..args.applying.clone()
        };
        let arguments = within(&args.budget, json!({"at_once": true}));
        states(
            RENEW,
            &arguments,
            args.target.clone(),
            &args.kind,
            (&applying, &args.limit),
        )
    };
    if !args.applying.test && !args.yes {
        let predicted = run_job(global, request(true), screen).await?;
        if predicted.retcode == 0 {
            let planned = planned(&predicted);
            screen.note(planned.text.trim_end());
            if planned.certificates + planned.others == 0 {
                let outcome = job_outcome(&predicted, true);
                screen.answer(&to_value(&outcome), |_| "nothing was changed\n".to_owned())?;
                return Ok(0);
            }
            if !confirmed(&planned.question(predicted.returns.len()), false, screen)? {
                return Ok(FAILED);
            }
        } else {
            // The job shows what fails.
            let applying = crate::cli::Applying {
                test: true,
                ..args.applying.clone()
            };
            run_states(global, request(true), &applying, screen).await?;
            screen.note(
                "nothing was changed, because the prediction failed; name hosts without a failure, or use --yes to renew without \
                 a prediction",
            );
            return Ok(FAILED);
        }
    }
    run_states(global, request(args.applying.test), &args.applying, screen).await
}

/// The predicted changes.
#[derive(Debug, Default)]
struct Planned {
    /// One line for each host.
    text: String,
    /// The number of certificates.
    certificates: usize,
    /// The number of other changes: restarts that are pending, also without a new certificate.
    others: usize,
}

impl Planned {
    fn question(&self, hosts: usize) -> String {
        let hosts = count(hosts, "host");
        match self.certificates {
            0 => format!(
                "Make no certificate, but apply {} on {hosts}?",
                count(self.others, "other change")
            ),
            number => format!("Renew {} on {hosts}?", count(number, "certificate")),
        }
    }
}

/// Formats and counts the predicted changes.
fn planned(predicted: &FinishedJob) -> Planned {
    let mut all = Planned::default();
    for (minion, returned) in &predicted.returns {
        let states = returned.run.iter().flat_map(|run| &run.states);
        let changing = states.filter(|state| !state.changes.is_empty());
        let (certificates, others): (Vec<&StateReturn>, Vec<&StateReturn>) =
            changing.partition(|state| MAKERS.contains(&state.function.as_str()));
        all.certificates += certificates.len();
        all.others += others.len();
        let then: Vec<&str> = others.iter().map(|state| state.id.as_str()).collect();
        let then = match then.is_empty() {
            true => String::new(),
            false => format!("; these restart or load them: {}", then.join(", ")),
        };
        let certificates = match certificates.len() {
            0 => "every certificate is less than a day old".to_owned(),
            number => count(number, "certificate"),
        };
        let line = format!("{minion}: {certificates}{then}\n");
        all.text.push_str(&line);
    }
    all
}

#[cfg(test)]
mod tests {
    use halite_api::{CertificateAuthority, IdentityCertificate, PreparedCa, PreparedState, Time};
    use halite_states::low::RunReturn;
    use serde_json::Map;

    use super::*;
    use crate::job_watch::MinionReturn;

    const PLAIN: Paint = Paint { colour: false };

    #[test]
    fn what_has_expired_is_counted_and_silent_hosts_are_named() {
        let ca = |name: &str, days_left: i64| CertificateAuthority {
            name: name.to_owned(),
            subject: String::new(),
            expires: Time::from_millis(0),
            days_left,
            signs: name != "kubernetes",
        };
        let identity = |owner: &str, renewed_by: Renewer| IdentityCertificate {
            owner: owner.to_owned(),
            expires: Time::from_millis(0),
            days_left: -5,
            signed_by: "halite".to_owned(),
            renewed_by,
        };
        let mut found = CertificateList {
            identities: vec![identity("operator alice", Renewer::Nothing)],
            authorities: vec![ca("etcd", -1), ca("site", 0), ca("kubernetes", 9)],
            silent: vec!["cp-2".parse().unwrap()],
            ..CertificateList::default()
        };
        assert_eq!(expired(&found), 1);
        found.identities.push(identity("master", Renewer::Owner));
        assert_eq!(expired(&found), 2);
        found.identities.pop();
        let text = listed(&found, &PLAIN);
        for part in [
            "  1970-01-01T00:00:00.000Z  expired\n",
            "  1970-01-01T00:00:00.000Z  < 1 day\n",
            "kubernetes (trusted, does not sign)  ",
            "✗ cp-2 does not answer",
            "✗ 1 has expired\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let next = |name: &str, days_left: Option<i64>| PreparedCa {
            name: name.to_owned(),
            state: match days_left {
                Some(_) => PreparedState::Imported,
                None => PreparedState::Requested,
            },
            subject: None,
            expires: days_left.map(|_| Time::from_millis(0)),
            days_left,
            note: None,
        };
        found.prepared = vec![next("etcd", None), next("kubernetes", Some(400))];
        let text = listed(&found, &PLAIN);
        for part in ["NEXT CA ", "etcd        requested", "400 days"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        found.authorities.remove(0);
        found.silent.clear();
        assert!(!listed(&found, &PLAIN).contains('✗'));
    }

    #[test]
    fn the_plan_counts_certificates_and_names_what_loads_them() {
        let state = |id: &str, function: &str, changes: bool| StateReturn {
            index: 0,
            id: id.to_owned(),
            name: id.to_owned(),
            function: function.to_owned(),
            sls: "a".to_owned(),
            result: None,
            changes: match changes {
                true => Map::from_iter([("a".to_owned(), json!("b"))]),
                false => Map::new(),
            },
            comment: String::new(),
            start_time: String::new(),
            duration: 0.0,
            run_num: 0,
            ran: true,
            fail_run: false,
        };
        let host = |states: Vec<StateReturn>| MinionReturn {
            success: true,
            run: Some(RunReturn { states }),
            ..MinionReturn::default()
        };
        let mut done = FinishedJob::default();
        let all = vec![
            state("/a.crt", "x509.certificate", true),
            state("/b.conf", "kubeconfig.managed", true),
            state("/c.crt", "x509.certificate", false),
            state("scheduler", "static_pod.running", true),
            state("nginx", "service.running", false),
        ];
        done.returns.insert("cp-1".parse().unwrap(), host(all));
        done.returns
            .insert("cp-2".parse().unwrap(), host(Vec::new()));
        let found = planned(&done);
        assert_eq!((found.certificates, found.others), (2, 1));
        assert_eq!(found.question(2), "Renew 2 certificates on 2 hosts?");
        assert_eq!(
            found.text,
            "cp-1: 2 certificates; these restart or load them: scheduler\ncp-2: every certificate is less than a day old\n"
        );
        // A restart that is pending is applied without a new certificate.
        let pending = vec![state("scheduler", "static_pod.running", true)];
        done.returns.insert("cp-1".parse().unwrap(), host(pending));
        let found = planned(&done);
        assert_eq!((found.certificates, found.others), (0, 1));
        assert_eq!(
            found.question(2),
            "Make no certificate, but apply 1 other change on 2 hosts?"
        );
    }
}
