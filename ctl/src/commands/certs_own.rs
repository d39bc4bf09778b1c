//! `ctl certs csr` and `ctl certs import`: a CA of the operator's own.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use halite_api::{CaRequest, PreparedCa, PreparedState, to_value};
use halite_proto::v1;

use crate::cli::{CertsCsr, CertsImport, Global};
use crate::client::document;
use crate::confirm::confirmed;
use crate::output::{Screen, table};
use crate::{FAILED, client, files};

/// Runs `ctl certs csr`.
///
/// # Errors
/// The master does not answer or refuses, or the file cannot be written.
pub async fn csr(global: &Global, args: &CertsCsr, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let name = args.ca.clone();
    let request = v1::RequestCaRequest { name };
    let made: CaRequest = document(operator.request_ca(request).await)?;
    if let Some(file) = &args.out {
        files::write(file, made.request.as_bytes(), 0o644)?;
    }
    screen.answer(&to_value(&made), |_| {
        request_text(&made, args.out.as_deref())
    })?;
    screen.note(format!(
        "the master keeps the key; have the request signed as that of a CA, then run `ctl certs import {} --cert FILE --chain FILE`",
        made.name
    ));
    Ok(0)
}

/// Formats a request, or the name of the file that has it.
pub fn request_text(made: &CaRequest, file: Option<&Path>) -> String {
    match file {
        Some(file) => table::fields(&[
            ("ca", made.name.clone()),
            ("request", file.display().to_string()),
        ]),
        None => made.request.clone(),
    }
}

/// Runs `ctl certs import`.
///
/// # Errors
/// A file cannot be read, the master does not answer or refuses, or `--discard` cannot be
/// confirmed.
pub async fn import(
    global: &Global,
    args: &CertsImport,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let request = v1::ImportCaRequest {
        name: args.ca.clone(),
        certificate_pem: text(args.cert.as_deref())?,
        key_pem: text(args.key.as_deref())?,
        chain_pem: text(args.chain.as_deref())?,
        discard: args.discard,
    };
    let question = format!("Remove the next CA {}, with its key?", args.ca);
    if args.discard && !confirmed(&question, args.yes, screen)? {
        return Ok(FAILED);
    }
    let mut operator = client::operator(global).await?;
    let done: PreparedCa = document(operator.import_ca(request).await)?;
    screen.answer(&to_value(&done), |_| prepared_text(&done))?;
    if done.state == PreparedState::Imported {
        screen.note(format!("start it with `ctl certs rotate {}`", done.name));
    }
    Ok(0)
}

/// Formats the next CA.
pub fn prepared_text(done: &PreparedCa) -> String {
    let mut fields = vec![("ca", done.name.clone()), ("state", done.state.to_string())];
    let ends = done.expires.map(|ends| ends.to_string());
    for (name, value) in [
        ("subject", done.subject.clone()),
        ("expires", ends),
        ("note", done.note.clone()),
    ] {
        fields.extend(value.map(|value| (name, value)));
    }
    table::fields(&fields)
}

/// The content of a file in PEM; empty without a file.
fn text(file: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = file else {
        return Ok(String::new());
    };
    let shown = file.display();
    let bytes = fs::read(file).with_context(|| format!("cannot read {shown}"))?;
    match String::from_utf8(bytes) {
        Ok(text) if text.contains("-----BEGIN ") => Ok(text),
        _ => bail!(
            "cannot use {shown}: it is not in PEM; `openssl x509 -inform der` converts a certificate, `openssl pkey -inform der` a key"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_pem_are_sent_and_their_content_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.key");
        assert_eq!(text(None).unwrap(), "");
        let absent = text(Some(&file)).unwrap_err();
        assert!(format!("{absent:#}").contains("cannot read"), "{absent:#}");
        for wrong in [&b"canary"[..], b"", b"\xff\xfe"] {
            fs::write(&file, wrong).unwrap();
            let said = format!("{:#}", text(Some(&file)).unwrap_err());
            assert!(
                said.contains("not in PEM") && !said.contains("canary"),
                "{said}"
            );
        }
        fs::write(&file, "-----BEGIN PRIVATE KEY-----\n").unwrap();
        assert!(text(Some(&file)).is_ok());
    }
}
