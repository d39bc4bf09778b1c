//! `ctl secrets list` and `ctl secrets recipients`.

use halite_api::{NamedSecret, RecipientOfSecrets, SecretList, SecretRecipients, to_value};
use halite_errors::chain;
use halite_pillar::declaration::Declaration;
use halite_pillar::sealed::SEALED_FILE;

use super::SecretSite;
use crate::FAILED;
use crate::output::{Paint, Screen, list, or_dash, table};

/// Runs `ctl secrets list`.
///
/// # Errors
/// The documents are invalid, or the encrypted file cannot be decrypted.
pub(super) fn secrets(site: &SecretSite, screen: &mut Screen) -> anyhow::Result<u8> {
    let document = listed(site)?;
    screen.answer(&to_value(&document), |_| secret_table(&document))?;
    Ok(0)
}

/// The secrets of the documents. The encrypted file is not needed for them.
pub(super) fn listed(site: &SecretSite) -> anyhow::Result<SecretList> {
    let declaration = site.closed()?;
    let secrets = declaration.cluster.secrets.iter();
    let secrets = secrets.map(|(name, secret)| {
        let encrypted = secret.value.is_none();
        let place = match encrypted {
            true => site.config.join(SEALED_FILE).display().to_string(),
            false => {
                let path = format!("secrets.{name}");
                let position = declaration.cluster.source.position(&path);
                format!("{}:{}", position.file, position.line)
            }
        };
        NamedSecret {
            name: name.clone(),
            roles: secret.roles.iter().map(ToString::to_string).collect(),
            nodes: secret.nodes.clone(),
            used_by: users(&declaration, name),
            places: vec![place],
            encrypted,
        }
    });
    Ok(SecretList {
        secrets: secrets.collect(),
    })
}

/// The fields of the cluster document that name a secret.
fn users(declaration: &Declaration, name: &str) -> Vec<String> {
    let cluster = &declaration.cluster;
    let passwords = cluster.site_registry.users.iter();
    let passwords = passwords
        .filter(|(_, secret)| *secret == name)
        .map(|(user, _)| format!("siteRegistry.users.{user}"));
    let sinks = cluster.notify.sinks.iter();
    let sinks = sinks
        .filter(|(_, sink)| sink.secrets().any(|secret| secret == name))
        .map(|(sink, _)| format!("notify.sinks.{sink}"));
    let etcd = cluster
        .external_etcd()
        .filter(|external| external.client_secret == name);
    let etcd = etcd.map(|_| "etcd.external".to_owned());
    passwords.chain(sinks).chain(etcd).collect()
}

/// Formats the secrets as a table.
pub fn secret_table(document: &SecretList) -> String {
    if document.secrets.is_empty() {
        return "the cluster document names no secrets\n".to_owned();
    }
    let rows = document.secrets.iter().map(|secret| {
        vec![
            secret.name.clone(),
            list(&secret.roles),
            list(&secret.nodes),
            list(&secret.used_by),
            if secret.encrypted { "yes" } else { "no" }.to_owned(),
            list(&secret.places),
        ]
    });
    table::rows(
        &["NAME", "ROLES", "NODES", "USED BY", "ENCRYPTED", "VALUE IN"],
        rows,
    )
}

/// Runs `ctl secrets recipients`.
///
/// # Errors
/// The documents are invalid, or a file cannot be read.
pub(super) fn recipients(site: &SecretSite, screen: &mut Screen) -> anyhow::Result<u8> {
    let document = recipients_of(site)?;
    screen.answer(&to_value(&document), |paint| {
        recipient_table(&document, paint)
    })?;
    let is_whole = document.missing.is_empty() && !document.outdated && document.problem.is_none();
    Ok(if is_whole { 0 } else { FAILED })
}

/// The recorded recipients, compared with those that the declaration requires and with this host's
/// identity.
pub(super) fn recipients_of(site: &SecretSite) -> anyhow::Result<SecretRecipients> {
    let declaration = site.closed()?;
    let file = site.file();
    let audit = file.audit(&declaration)?;
    let recipients = audit.recorded.0.iter();
    let recipients = recipients.map(|entry| RecipientOfSecrets {
        host: entry.host.clone(),
        recipient: entry.recipient.to_string(),
    });
    Ok(SecretRecipients {
        recipients: recipients.collect(),
        missing: audit.missing,
        outdated: audit.outdated,
        exists: file.exists(),
        // The list says who should be able to decrypt the file; only an attempt says who is.
        problem: file.read().err().map(|error| chain(&error)),
    })
}

/// Formats the recipients as a table, with what is missing.
pub fn recipient_table(document: &SecretRecipients, paint: &Paint) -> String {
    let rows = document.recipients.iter().map(|entry| {
        let kind = if entry.host.is_some() {
            "host"
        } else {
            "recovery"
        };
        vec![
            kind.to_owned(),
            or_dash(entry.host.as_ref()),
            entry.recipient.clone(),
        ]
    });
    let mut text = match document.recipients.is_empty() {
        true => String::new(),
        false => table::rows(&["KIND", "HOST", "RECIPIENT"], rows),
    };
    if !document.exists {
        text.push_str("no value is encrypted yet: `ctl secrets encrypt` moves those of the cluster document\n");
    }
    for name in &document.missing {
        text.push_str(&format!(
            "{} {name} cannot decrypt the values yet: it is added when its halite-master connects as a standby\n",
            paint.bad("✗")
        ));
    }
    if let Some(problem) = &document.problem {
        text.push_str(&format!("{} {problem}\n", paint.bad("✗")));
    } else if document.outdated {
        text.push_str(&format!(
            "{} the declaration or the identity of this host needs other recipients than the file has: `ctl certs rotate secrets` \
             encrypts it to them\n",
            paint.bad("✗")
        ));
    }
    let has_recovery = document.recipients.iter().any(|entry| entry.host.is_none());
    if document.exists && !has_recovery {
        text.push_str(&format!(
            "{} if all these hosts are lost, no key opens the values: declare `backup.recipients`\n",
            paint.notable("!")
        ));
    }
    text
}
