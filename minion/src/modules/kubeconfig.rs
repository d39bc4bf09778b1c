//! `kubeconfig.*`

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::paths::{absolute, known_owner, parents};
use super::pki::CertificateSpec;
use super::x509::{ALGORITHM, meta_plan};
use super::{Failure, Plan, fail, failure, replace};
use crate::host::Host;
use crate::host::certificate::{Client, key_in_file, kubeconfig};
use crate::host::effect::{CertificateRequest, Effect, Meta};

pub(super) async fn managed(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let path = absolute(&chunk.name)?;
    let (content, mut effects) = replace::read(host, &path).await?;
    let mut plan = planned(host, chunk, &args, path, content).await?;
    effects.append(&mut plan.effects);
    Ok(Plan { effects, ..plan })
}

async fn planned(
    host: &dyn Host,
    chunk: &Chunk,
    args: &Args<'_>,
    path: String,
    content: Option<Vec<u8>>,
) -> Result<Plan, Failure> {
    let meta = Meta {
        user: Some(args.text("owner")?.unwrap_or_else(|| "root".to_owned())),
        group: Some(args.text("group")?.unwrap_or_else(|| "root".to_owned())),
        mode: Some(args.mode("mode")?.unwrap_or(0o600)),
    };
    let found = content
        .as_ref()
        .map(|content| String::from_utf8_lossy(content).into_owned());
    let ca = args.required("ca_certificate")?;
    let files = (
        args.text("client_certificate_file")?,
        args.text("client_key_file")?,
    );
    let wanted = match &files {
        (Some(certificate), Some(key)) => render(chunk, &ca, &Client::Files { certificate, key })?,
        (None, None) => {
            let request = request(args, chunk, &path, &meta)?;
            match embedded(args, &request, found.as_deref(), host.now())? {
                Embedded::Faulty(faults) => {
                    return certificate_plan(host, &path, request, faults).await;
                }
                Embedded::Good {
                    certificate_pem,
                    key_pem,
                } => {
                    let client = Client::Embedded {
                        certificate_pem: &certificate_pem,
                        key_pem: &key_pem,
                    };
                    render(chunk, &ca, &client)?
                }
            }
        }
        _ => {
            return fail(
                "kubeconfig.managed: `client_certificate_file` and `client_key_file` go together",
            );
        }
    };
    if found.as_ref() != Some(&wanted) {
        known_owner(host, &meta).await?;
        let faults = differing(found.as_deref(), &wanted);
        let mut effects = parents(host, &path, true, &Meta::default()).await?;
        effects.push(Effect::Write {
            path: path.clone(),
            content: wanted.into_bytes(),
            meta,
        });
        return Ok(change(&path, effects, faults));
    }
    let (changes, effects) = meta_plan(host, vec![(path.clone(), meta)]).await?;
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "The kubeconfig {path} is in the correct state"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("Owner or mode of {path} would be changed"),
        format!("Owner or mode of {path} was changed"),
    ))
}

fn change(path: &str, effects: Vec<Effect>, faults: Vec<String>) -> Plan {
    Plan::change(
        Map::from_iter([("kubeconfig".to_owned(), json!(faults))]),
        effects,
        format!("The kubeconfig {path} would be written"),
        format!("The kubeconfig {path} was written"),
    )
}

fn render(chunk: &Chunk, ca: &str, client: &Client<'_>) -> Result<String, Failure> {
    kubeconfig(&chunk.args, ca, client).map_err(|e| failure(format!("kubeconfig.managed: {e}")))
}

fn request(
    args: &Args<'_>,
    chunk: &Chunk,
    path: &str,
    meta: &Meta,
) -> Result<CertificateRequest, Failure> {
    Ok(CertificateRequest {
        key_path: path.to_owned(),
        cert_path: path.to_owned(),
        algorithm: args
            .text("algorithm")?
            .unwrap_or_else(|| ALGORITHM.to_owned()),
        ca: args.text("ca")?.unwrap_or_else(|| "kubernetes".to_owned()),
        kubeconfig: Some(Value::Object(chunk.args.clone())),
        meta: meta.clone(),
        append_ca: false,
        tag: chunk.tag(),
        spec: Value::Object(chunk.args.clone()),
    })
}

/// The client certificate that a file embeds.
enum Embedded {
    Good {
        certificate_pem: String,
        key_pem: String,
    },
    /// Missing, or with these faults: it must be recreated.
    Faulty(Vec<String>),
}

fn embedded(
    args: &Args<'_>,
    request: &CertificateRequest,
    found: Option<&str>,
    now: i64,
) -> Result<Embedded, Failure> {
    let spec = CertificateSpec::read(args, false, true)?;
    let Some(text) = found else {
        return Ok(Embedded::Faulty(vec!["it does not exist".to_owned()]));
    };
    let (Some(certificate_pem), Some(key_pem)) = (
        data(text, "client-certificate-data:"),
        data(text, "client-key-data:"),
    ) else {
        return Ok(Embedded::Faulty(vec![
            "it embeds no client certificate".to_owned(),
        ]));
    };
    let key = key_in_file(request, text.as_bytes());
    let faults = spec.faults(certificate_pem.as_bytes(), key.as_ref(), false, now);
    Ok(if faults.is_empty() {
        Embedded::Good {
            certificate_pem,
            key_pem,
        }
    } else {
        Embedded::Faulty(
            faults
                .into_iter()
                .map(|fault| format!("client certificate: {fault}"))
                .collect(),
        )
    })
}

/// The decoded value of a `…-data:` line: PEM without any text before it.
fn data(text: &str, key: &str) -> Option<String> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(key))?;
    let pem = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    pem.starts_with("-----BEGIN ").then_some(pem)
}

async fn certificate_plan(
    host: &dyn Host,
    path: &str,
    request: CertificateRequest,
    faults: Vec<String>,
) -> Result<Plan, Failure> {
    known_owner(host, &request.meta).await?;
    let mut effects = parents(host, path, true, &Meta::default()).await?;
    effects.push(Effect::Certificate(request));
    Ok(change(path, effects, faults))
}

/// The fields whose lines differ; never their values, which may be keys.
fn differing(found: Option<&str>, wanted: &str) -> Vec<String> {
    let Some(found) = found else {
        return vec!["it does not exist".to_owned()];
    };
    let lines: Vec<&str> = found.lines().map(str::trim).collect();
    let mut fields: Vec<String> = wanted
        .lines()
        .map(str::trim)
        .filter(|line| !lines.contains(line))
        .filter_map(|line| line.trim_start_matches("- ").split_once(':'))
        .map(|(key, _)| format!("{key} differs"))
        .collect();
    fields.dedup();
    if fields.is_empty() {
        fields.push("its layout or surplus entries differ".to_owned());
    }
    fields
}
