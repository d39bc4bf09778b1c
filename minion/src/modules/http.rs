//! `http.*`

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::{Failure, Plan, fail};
use crate::host::Host;
use crate::host::effect::{Effect, Trust};
use crate::host::overlay::KNOWN_AFTER_APPLY;

/// Returns whether a CA really exists and is not only predicted. A predicted file ends with a
/// newline.
fn is_known(trust: &Trust) -> bool {
    !matches!(trust, Trust::Ca(pem) if pem.trim() == KNOWN_AFTER_APPLY)
}

/// The trust anchor from `ca` (PEM) and `verify_ssl`.
fn trust(ca: Option<String>, verify: bool) -> Result<Trust, Failure> {
    match (ca, verify) {
        (Some(_), false) => fail("`ca` and `verify_ssl: False` exclude each other"),
        (Some(pem), true) => Ok(Trust::Ca(pem)),
        (None, true) => Ok(Trust::Host),
        (None, false) => Ok(Trust::Unverified),
    }
}

/// The condition `http.query`: a GET of the URL is answered with the status (default 200). The CA
/// in the file `ca` must have signed the server's certificate, or without `ca` one that the host
/// trusts, unless `verify` is false.
pub(crate) async fn answers(
    host: &dyn Host,
    url: &str,
    status: Option<u64>,
    ca: Option<&str>,
    verify: bool,
) -> Result<bool, Failure> {
    let ca = match ca {
        Some(path) => match host.read(path).await? {
            Some(pem) => Some(String::from_utf8_lossy(&pem).into_owned()),
            None => return Ok(host.uncertain()),
        },
        None => None,
    };
    let trust = trust(ca, verify)?;
    // Without a CA there is no server with its certificate; a server that starts later has read
    // everything.
    if !is_known(&trust) {
        return Ok(true);
    }
    let answer = host.http_get(url, &trust).await?;
    Ok(answer.is_some_and(|(code, _)| u64::from(code) == status.unwrap_or(200)))
}

/// One request now; waiting is an effect, so that a check never waits.
pub(super) async fn wait_for_successful_query(
    host: &dyn Host,
    chunk: &Chunk,
) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let url = &chunk.name;
    let status: u16 = args.number("status")?.unwrap_or(200);
    let body = args.text("match")?;
    let seconds = args.number("wait_for")?.unwrap_or(300);
    let ca = match args.text("ca")? {
        Some(path) if path.starts_with('/') => match host.read(&path).await? {
            Some(pem) => Some(String::from_utf8_lossy(&pem).into_owned()),
            None if host.uncertain() => Some(KNOWN_AFTER_APPLY.to_owned()),
            None => return fail(format!("the CA file {path} does not exist")),
        },
        ca => ca,
    };
    let trust = trust(ca, args.flag("verify_ssl", true)?)?;
    let answer = if is_known(&trust) {
        host.http_get(url, &trust).await?
    } else {
        None
    };
    let found = match &answer {
        Some((code, text))
            if *code == status && body.as_ref().is_none_or(|part| text.contains(part)) =>
        {
            return Ok(Plan::nothing(format!("{url} answers {status}")));
        }
        Some((code, _)) if *code == status => "another body".to_owned(),
        Some((code, _)) => code.to_string(),
        None => "no answer".to_owned(),
    };
    Ok(Plan::change(
        Map::from_iter([(
            url.clone(),
            json!({"old": found, "new": status.to_string()}),
        )]),
        vec![Effect::WaitHttp {
            url: url.clone(),
            trust,
            status,
            body,
            seconds,
        }],
        format!("would wait for {url}"),
        format!("{url} answers {status}"),
    ))
}
