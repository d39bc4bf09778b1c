//! `x509.*`

use halite_states::args::Args;
use halite_states::low::Chunk;
use rcgen::KeyPair;
use serde_json::{Map, Value, json};

use super::paths::{absolute, known_owner, meta_difference, parents};
use super::pki::CertificateSpec;
use super::replace::{Removal, not_a_file};
use super::{Failure, Plan, meta, pki};
use crate::host::Host;
use crate::host::certificate::key_in_file;
use crate::host::effect::{CertificateRequest, Effect, Meta};

/// kubeadm's default.
pub(super) const ALGORITHM: &str = "ecdsa-p256";

pub(super) async fn certificate(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let spec = CertificateSpec::read(
        &args,
        args.flag("server_auth", false)?,
        args.flag("client_auth", false)?,
    )?;
    let cert_path = absolute(&chunk.name)?;
    let combined = args.flag("combined", false)?;
    let key_path = match args.text("key")? {
        _ if combined => cert_path.clone(),
        Some(path) => absolute(&path)?,
        None => with_key_extension(&cert_path),
    };
    let mut meta = meta(&args)?;
    meta.user.get_or_insert_with(|| "root".to_owned());
    meta.group.get_or_insert_with(|| "root".to_owned());
    meta.mode = Some(meta.mode.unwrap_or(if combined { 0o600 } else { 0o644 }));
    let request = CertificateRequest {
        key_path: key_path.clone(),
        cert_path: cert_path.clone(),
        algorithm: args
            .text("algorithm")?
            .unwrap_or_else(|| ALGORITHM.to_owned()),
        ca: args.required("ca")?,
        kubeconfig: None,
        meta: meta.clone(),
        append_ca: args.flag("append_ca", false)?,
        tag: chunk.tag(),
        spec: Value::Object(chunk.args.clone()),
    };

    let mut removed = Vec::new();
    removed.extend(not_a_file(host, &cert_path).await?);
    if !combined {
        removed.extend(not_a_file(host, &key_path).await?);
    }
    let faults = if removed.is_empty() {
        match host.read(&cert_path).await? {
            None => vec!["it does not exist".to_owned()],
            Some(pem) => {
                let key = host
                    .read(&key_path)
                    .await?
                    .and_then(|content| key_in_file(&request, &content));
                spec.faults(&pem, key.as_ref(), request.append_ca, host.now())
            }
        }
    } else {
        removed.iter().map(Removal::fault).collect()
    };
    if !faults.is_empty() {
        known_owner(host, &meta).await?;
        let mut effects: Vec<Effect> = removed.into_iter().map(|removal| removal.effect).collect();
        effects.extend(parents(host, &key_path, true, &Meta::default()).await?);
        for effect in parents(host, &cert_path, true, &Meta::default()).await? {
            if !effects.contains(&effect) {
                effects.push(effect);
            }
        }
        effects.push(Effect::Certificate(request));
        return Ok(Plan::change(
            Map::from_iter([("certificate".to_owned(), json!(faults))]),
            effects,
            format!("The certificate {cert_path} would be made"),
            format!("The certificate {cert_path} was made"),
        ));
    }
    let mut files = vec![(cert_path.clone(), meta.clone())];
    if !combined {
        files.push((
            key_path,
            Meta {
                mode: Some(0o600),
                ..meta
            },
        ));
    }
    let (changes, effects) = meta_plan(host, files).await?;
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "The certificate {cert_path} is in the correct state"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("Owner or mode of {cert_path} would be changed"),
        format!("Owner or mode of {cert_path} was changed"),
    ))
}

/// The condition `x509.current`: the certificate exists with its key next to it, is signed by the
/// CA in the file `ca`, and is not due yet.
///
/// # Errors
/// A file cannot be read, or a path is not absolute.
pub(crate) async fn is_current(host: &dyn Host, path: &str, ca: &str) -> Result<bool, Failure> {
    let (path, ca) = (absolute(path)?, absolute(ca)?);
    let certificate = host.read(&path).await?;
    let key = host.read(&with_key_extension(&path)).await?;
    let ca = host.read(&ca).await?;
    let (Some(certificate), Some(key), Some(ca)) = (certificate, key, ca) else {
        return Ok(false);
    };
    let key = std::str::from_utf8(&key)
        .ok()
        .and_then(|pem| KeyPair::from_pem(pem).ok());
    Ok(key.is_some_and(|key| pki::is_current(&certificate, &key, &ca, host.now())))
}

/// Owner and mode of files whose content is correct.
pub(super) async fn meta_plan(
    host: &dyn Host,
    files: Vec<(String, Meta)>,
) -> Result<(Map<String, Value>, Vec<Effect>), Failure> {
    let mut changes = Map::new();
    let mut effects = Vec::new();
    for (path, meta) in files {
        let Some(stat) = host.stat(&path).await? else {
            continue;
        };
        let (differs, set) = meta_difference(host, &stat, &meta).await?;
        if !differs.is_empty() {
            changes.insert(path.clone(), Value::Object(differs));
            effects.push(Effect::SetMeta { path, meta: set });
        }
    }
    Ok((changes, effects))
}

/// `/a/b.crt` → `/a/b.key`
fn with_key_extension(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    format!("{directory}/{stem}.key")
}
