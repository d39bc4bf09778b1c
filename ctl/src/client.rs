//! The connection to the master.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use halite_api::{ClusterStatus, Document, Time, UpgradePlan};
use halite_errors::chain;
use halite_proto::identity::is_root_of_host;
use halite_proto::pki::Inspected;
use halite_proto::tonic::{Code, Status};
use halite_proto::transport::{Channel, connect, connect_among};
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;
use jiff::Timestamp;

use crate::cli::Global;
use crate::identity::OperatorIdentity;
use crate::masters::Masters;
use crate::{identity, identity_renewal, masters};

/// The client of the operator API.
pub type Operator = OperatorClient<Channel>;

/// The maximum size of an answer, in bytes. The largest answers are returns of highstates.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// The time for which the master may be unreachable during a call.
pub const AWAY: Duration = Duration::from_secs(60);

/// Connects to the master as operator.
///
/// # Errors
/// The contexts cannot be used, there is no valid identity, or the master does not answer or has
/// another CA.
pub async fn operator(global: &Global) -> anyhow::Result<Operator> {
    let access = global.access()?;
    let found = identity(&access.identity)?;
    let masters = Masters::find(access.master.as_deref(), Path::new(masters::FILE))?;
    let (own_ca, own) = (&found.ca_pem, &found.client);
    let is_one = !masters.are_several();
    let channel = masters.connect(async |address: String| {
        if is_one {
            connect(&address, own_ca, Some(own)).await
        } else {
            connect_among(&address, own_ca, Some(own)).await
        }
    });
    match channel.await {
        Ok(channel) => {
            identity_renewal::follow_ca(&access.identity, &found, &channel).await;
            Ok(OperatorClient::new(channel).max_decoding_message_size(MAX_ANSWER))
        }
        Err(error) => Err(match daemon_state(&masters) {
            None => anyhow::Error::new(error),
            Some(state) => anyhow::anyhow!("{}\n{state}", chain(&error)),
        }),
    }
}

/// The identity that the command line names, unless it has expired.
fn identity(path: &Path) -> anyhow::Result<OperatorIdentity> {
    let found = identity::read(path)?;
    if let Some(reason) = expired(path, &found.client.certificate_pem, Timestamp::now()) {
        anyhow::bail!(reason);
    }
    Ok(found)
}

/// The message about an expired identity, with the command that makes a new one. Without it, only
/// the TLS handshake would fail.
fn expired(path: &Path, certificate_pem: &str, now: Timestamp) -> Option<String> {
    // An invalid certificate is refused with its own reason when it is used.
    let found = Inspected::from_pem(certificate_pem).ok()?;
    let ended = Timestamp::from_second(found.not_after).ok()?;
    (ended < now).then(|| {
        // The only other form is the file that `ctl operator create` writes.
        let identity = found.identity();
        let remedy = if path.is_file() {
            "an administrator makes the operator again: `ctl operator create`"
        } else if identity.is_ok_and(|identity| is_root_of_host(identity.id())) {
            "a highstate of this host renews it: run `ctl highstate` on another control-plane host"
        } else {
            "run `halite-master init` as root on the master's host to make a new one (a highstate renews it before it \
             expires)"
        };
        format!(
            "the operator's identity in {} expired on {ended}; {remedy}",
            path.display()
        )
    })
}

/// The state and the last log lines of this host's master daemon; `None` unless it was called, is
/// installed and does not run.
fn daemon_state(masters: &Masters) -> Option<String> {
    if !masters.has_this_host() {
        return None;
    }
    let output_of = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program)
            .args(args)
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    const UNIT: &str = "halite-master.service";
    let shown = output_of(
        "systemctl",
        &["show", "--property=LoadState,ActiveState", UNIT],
    )?;
    let state = not_running(&shown)?;
    let journal = ["-u", UNIT, "-o", "cat", "-n", "5", "--no-pager"];
    let log = output_of("journalctl", &journal).unwrap_or_default();
    let log: String = log.lines().map(|line| format!("\n  | {line}")).collect();
    Some(format!(
        "{UNIT} is {state} on this host (systemctl start halite-master){log}"
    ))
}

/// The state of an installed unit that does not run, from the properties that systemd prints.
fn not_running(shown: &str) -> Option<&str> {
    let value = |name: &str| {
        let lines = shown.lines();
        lines
            .filter_map(|line| line.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    };
    let state = value("ActiveState")?;
    (value("LoadState") == Some("loaded") && state != "active").then_some(state)
}

/// Makes an error from the master's refusal, in the master's own words.
pub fn refused(status: &Status) -> anyhow::Error {
    let message = status.message();
    match status.code() {
        Code::Unavailable => anyhow::anyhow!("{message}"),
        Code::PermissionDenied | Code::Unauthenticated => anyhow::anyhow!("not allowed: {message}"),
        Code::Unimplemented => {
            anyhow::anyhow!("the master is older than this ctl and does not know this call")
        }
        _ => anyhow::anyhow!("{message}"),
    }
}

/// Reads the document of an answer.
///
/// # Errors
/// The master refused, or the answer is a different document.
pub fn document<T: Document>(
    answer: Result<halite_proto::tonic::Response<v1::Document>, Status>,
) -> anyhow::Result<T> {
    let answer = answer.map_err(|status| refused(&status))?.into_inner();
    halite_api::from_text(&answer.json).context("cannot read the master's answer")
}

/// A time in an answer.
///
/// # Errors
/// It is not one.
pub fn time(text: &str) -> anyhow::Result<Time> {
    text.parse()
        .with_context(|| format!("cannot read the master's answer: {text:?} is not a time"))
}

/// The state of the cluster, as the master sees it.
///
/// # Errors
/// No master answers.
pub async fn status(global: &Global) -> anyhow::Result<ClusterStatus> {
    let mut operator = operator(global).await?;
    document(operator.status(v1::StatusRequest {}).await)
}

/// A document that the master shows: `what` of `target`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn show<T: Document>(
    global: &Global,
    what: &str,
    target: &str,
    sls: Vec<String>,
) -> anyhow::Result<T> {
    let mut operator = operator(global).await?;
    let request = v1::ShowRequest {
        what: what.to_owned(),
        target: target.to_owned(),
        sls,
        pillar_json: String::new(),
    };
    document(operator.show(request).await)
}

/// The plan of an upgrade, which depends on the values of its pillar.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn upgrade_plan(
    global: &Global,
    version: &str,
    pillar_json: String,
) -> anyhow::Result<UpgradePlan> {
    let mut operator = operator(global).await?;
    let request = v1::ShowRequest {
        what: "upgrade".to_owned(),
        target: version.to_owned(),
        pillar_json,
        ..v1::ShowRequest::default()
    };
    document(operator.show(request).await)
}

/// The plan that was shown with this id, or the start of one, computed again with its options.
///
/// # Errors
/// The master does not know it, does not answer or refuses.
pub async fn shown_plan(global: &Global, id: &str) -> anyhow::Result<UpgradePlan> {
    let mut operator = operator(global).await?;
    let request = v1::ShowRequest {
        what: "upgrade-shown".to_owned(),
        target: id.to_owned(),
        ..v1::ShowRequest::default()
    };
    document(operator.show(request).await)
}

/// The plan of the return from an upgrade that has not ended, with these values over the pillar.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn return_plan(global: &Global, pillar_json: String) -> anyhow::Result<UpgradePlan> {
    let mut operator = operator(global).await?;
    let request = v1::ShowRequest {
        what: "upgrade-back".to_owned(),
        pillar_json,
        ..v1::ShowRequest::default()
    };
    document(operator.show(request).await)
}

/// A certificate that was valid for one day.
#[cfg(test)]
pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBdDCCARmgAwIBAgIUDsjpG8s8tQceRBXDIiMGmkgceR0wCgYIKoZIzj0EAwIw\n\
    DzENMAsGA1UEAwwEcm9vdDAeFw0yNjExMjEwMzM5MDdaFw0yNjExMjIwMzM5MDda\n\
    MA8xDTALBgNVBAMMBHJvb3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS/2yXD\n\
    W08GCqSZ4cczGHvp/0a5n8iHfUYTKcue7KoyLiTsEF4e92NNdIWnOSZ817cPnj0R\n\
    QLacx9Sy/I6xzYlmo1MwUTAdBgNVHQ4EFgQUe79BqQ5yveS7J2epybIGhOVf0U8w\n\
    HwYDVR0jBBgwFoAUe79BqQ5yveS7J2epybIGhOVf0U8wDwYDVR0TAQH/BAUwAwEB\n\
    /zAKBggqhkjOPQQDAgNJADBGAiEAgL2i1YUmhkQxl+JazfWKHIFhbMrtrXMrBJgw\n\
    QAfAh3ACIQDBLFRnsiOMNk0aO6rQn/qaxexYPDdqi+F+hctV/W5MSQ==\n\
    -----END CERTIFICATE-----\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unit_that_is_there_and_does_not_run_is_named() {
        let failed = "LoadState=loaded\nActiveState=failed";
        assert_eq!(not_running(failed), Some("failed"));
        for shown in [
            "LoadState=loaded\nActiveState=active",
            "LoadState=not-found\nActiveState=inactive",
            "",
        ] {
            assert_eq!(not_running(shown), None, "{shown:?}");
        }
    }

    #[test]
    fn an_expired_identity_has_a_remedy() {
        let end = Inspected::from_pem(CERTIFICATE).unwrap().not_after;
        let end = Timestamp::from_second(end).unwrap();
        let at = |seconds: i64| {
            let now = end + jiff::SignedDuration::from_secs(seconds);
            expired(Path::new("/etc/halite/operator"), CERTIFICATE, now)
        };
        assert_eq!(at(-1), None);
        let text = at(1).unwrap();
        assert!(
            text.contains("/etc/halite/operator") && text.contains("halite-master init"),
            "{text}"
        );
        assert!(expired(Path::new("/x"), "no certificate", end).is_none());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("alice.pem");
        std::fs::write(&file, CERTIFICATE).unwrap();
        let later = end + jiff::SignedDuration::from_secs(1);
        let text = expired(&file, CERTIFICATE, later).unwrap();
        assert!(text.contains("`ctl operator create`"), "{text}");
    }
}
