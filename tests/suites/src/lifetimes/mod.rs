//! Certificates of hosts with another lifetime: near expiry, or expired.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{AuditLog, CheckState, Health};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use crate::ctl_answer;

/// The script that signs, and its directory on a host.
const SCRIPT: &str = include_str!("resign.sh");
const DIRECTORY: &str = "/root/halite-test-lifetimes";
/// The CAs, and their directory on the master's host.
const CAS: [&str; 5] = ["kubernetes", "etcd", "front-proxy", "site", "halite"];
const CA: &str = "/var/lib/halite/master/ca";
/// Minimum validity of a renewed certificate in seconds: more than the last third of a year.
const LEFT: u32 = 12_960_000;
/// Limit for an API server to read a renewed certificate.
const SERVED: Duration = Duration::from_secs(120);

/// The certificates that get another lifetime, with its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lifetimes {
    /// Those that states make, which expire in two days.
    EndSoon,
    /// These and the identities of minions, master and kubelets, which expired two days ago.
    Ended,
}

/// Signs the certificates of all hosts again, with a lifetime of a year that ends then.
///
/// # Errors
/// A certificate cannot be signed.
pub(super) fn set(cluster: &Cluster, lifetimes: Lifetimes) -> Result<()> {
    let (end, identities) = match lifetimes {
        Lifetimes::EndSoon => ("2 days", ""),
        Lifetimes::Ended => ("2 days ago", "identities"),
    };
    let first = &cluster.bootstrap;
    for host in cluster.hosts() {
        let directory = host.file(DIRECTORY);
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        for name in CAS {
            for ending in ["crt", "key"] {
                let file = format!("{name}.{ending}");
                fs::copy(first.file(&format!("{CA}/{file}")), directory.join(&file))
                    .with_context(|| format!("cannot copy {file}"))?;
            }
        }
        fs::write(directory.join("resign.sh"), SCRIPT)?;
        let date = |text: &str| format!("$(date -u -d '{text}' +%Y%m%d%H%M%SZ)");
        let line = format!(
            "sh {DIRECTORY}/resign.sh {} {} {identities}; code=$?; rm -rf {DIRECTORY}; exit $code",
            date("1 year ago"),
            date(end)
        );
        host.sh(&line)?;
    }
    Ok(())
}

/// Waits until each certificate that a minion reports, CAs aside, is valid for long, and until the
/// master has nothing to renew.
///
/// # Errors
/// One is not in time; with the health's message about it.
pub(super) fn wait_until_renewed(cluster: &Cluster, limit: Duration) -> Result<()> {
    wait::until("the master to renew all certificates", limit, || {
        for host in cluster.hosts() {
            all_renewed(host)?;
        }
        let (_, health): (_, Health) = ctl_answer::in_any_case(&cluster.bootstrap, &["health"])?;
        let bad = health.checks.iter().find(|check| {
            check.name.starts_with("certificates-") && check.state != CheckState::Good
        });
        ensure!(bad.is_none(), "{bad:?}");
        Ok(())
    })
}

/// Fails unless the certificates that states make on a host are valid for long.
fn all_renewed(host: &Host) -> Result<()> {
    let line = format!(
        "for f in /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /etc/halite/pki/server.crt \
           /etc/halite/registry/server.crt /etc/halite/operator/operator.crt \
           /var/lib/kubelet/pki/kubelet-client-halite.pem; do\n\
           test -e $f || continue\n\
           openssl x509 -in $f -noout -checkend {LEFT} >/dev/null || echo $f\n\
         done\n\
         for f in /etc/kubernetes/*.conf; do\n\
           grep -q client-certificate-data $f || continue\n\
           sed -n 's/.*client-certificate-data: //p' $f | base64 -d | openssl x509 -noout -checkend {LEFT} >/dev/null || echo $f\n\
         done"
    );
    let old = host.sh(&line)?;
    ensure!(old.trim().is_empty(), "{}: old: {old}", host.spec.name);
    Ok(())
}

/// Waits until the API server of a host serves the certificate in its file. It may read the file
/// only at its next check, a minute later.
///
/// # Errors
/// It still serves another one at the limit.
pub(super) fn is_served(host: &Host) -> Result<()> {
    let what = format!("the API server of {} to serve its file", host.spec.name);
    wait::until(&what, SERVED, || {
        let served = host.sh(
            "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null | openssl x509 -noout -serial",
        )?;
        let file = host.sh("openssl x509 -in /etc/kubernetes/pki/apiserver.crt -noout -serial")?;
        ensure!(served == file, "it serves {served}, not {file}");
        Ok(())
    })
}

/// The outcomes of the master's renewals in the audit log, the newest first.
///
/// # Errors
/// The audit log cannot be read.
pub(super) fn outcomes(cluster: &Cluster) -> Result<Vec<String>> {
    let words = ["audit", "--action", "upkeep"];
    let log: AuditLog = ctl_answer::of(&cluster.bootstrap, &words)?;
    let lines = log.audit.iter();
    Ok(lines
        .map(|line| format!("{}: {}", line.what, line.outcome))
        .collect())
}
