//! `ctl backup list|get`, and the reading of a backup for a restore.

use std::fs;
use std::path::Path;

use anyhow::bail;
use halite_backup::{BackupFile, Directory, Found};
use halite_durable::files;
use halite_errors::chain;
use halite_host_reports::{BACKUP_VERIFY, DIRECTORY as REPORTS};
use halite_proto::pki;
use serde_json::{Value, json};

use super::outcome;
use crate::FAILED;
use crate::backup_file::open_whole;
use crate::output::{Paint, Screen, megabytes, table};

/// The certificate of the CA by which a cluster is known, on its master's host.
const CA: &str = "/var/lib/halite/master/ca/halite.crt";
const MODE: u32 = 0o600;

/// Refuses a backup of another cluster than that of this host, if it has the master of one.
///
/// # Errors
/// It is of another one.
pub fn refuse_foreign(file: &BackupFile) -> anyhow::Result<()> {
    let header = file.header();
    match cluster_id(Path::new(CA)) {
        Some(own) if own != header.cluster_id => bail!(
            "the backup {} is of another cluster ({}, CA {}) than that of this host (CA {own}); verify it elsewhere",
            file.path().display(),
            header.cluster,
            header.cluster_id
        ),
        _ => Ok(()),
    }
}

/// The id of the cluster whose master is on this host, if there is one.
fn cluster_id(certificate: &Path) -> Option<String> {
    let pem = fs::read_to_string(certificate).ok()?;
    let found = pki::certificates(&pem).ok()?;
    Some(pki::sha256_hex(found.first()?))
}

pub fn list(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let verified = outcome::read(&Path::new(REPORTS).join(format!("{BACKUP_VERIFY}.json")));
    let verified = verified.filter(|report| Path::new(&report.directory) == directory);
    let started = verified.and_then(|report| report.good);
    let keys = |name: &str| started.as_ref().filter(|good| good.name == name)?.keys;
    let row = |found: &Found| match &found.file {
        Ok(file) => {
            let header = file.header();
            json!({
                "backup": found.name,
                "cluster": header.cluster,
                "cluster_id": header.cluster_id,
                "created": header.created,
                "bytes": file.size(),
                "kubernetes": header.kubernetes,
                "bundle": header.bundle,
                "encrypted": !header.recipients.is_empty(),
                "recipients": header.recipients,
                "started_keys": keys(&found.name),
                "problem": Value::Null,
            })
        }
        Err(error) => json!({"backup": found.name, "problem": chain(error)}),
    };
    let found = Directory::new(directory).list()?;
    let document: Value = found.iter().map(row).collect();
    screen.answer(&document, |paint| overview(&document, paint))?;
    Ok(0)
}

fn overview(document: &Value, paint: &Paint) -> String {
    let rows = document.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |row: &Value| {
        vec![
            table::cell(&row["backup"]),
            table::cell(&row["cluster"]),
            table::cell(&row["created"]),
            row["bytes"]
                .as_u64()
                .map_or_else(|| "-".to_owned(), megabytes),
            table::cell(&row["bundle"]),
            table::cell(&row["encrypted"]),
            table::cell(&row["started_keys"]),
        ]
    };
    let heading = [
        "backup",
        "cluster",
        "created",
        "size",
        "bundle",
        "encrypted",
        "keys, started",
    ];
    let mut text = table::rows(&heading, rows.iter().map(row));
    for row in rows {
        if let Some(problem) = row["problem"].as_str() {
            text.push_str(&format!("{} {problem}\n", paint.bad("✗")));
        }
    }
    text
}

pub fn get(path: &Path, to: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let file = open_whole(path, screen)?;
    if to.exists() {
        bail!("{} exists already; name a new file", to.display());
    }
    let partial = files::sibling(to, "new");
    files::remove_any(&partial)?;
    let copied = copy(path, &partial, to);
    if copied.is_err() {
        // The first error is the one that matters.
        let _ = fs::remove_file(&partial);
    }
    copied?;
    let same = BackupFile::open(to)?;
    same.check_on_disk()?;
    let sound = same.digest() == file.digest();
    let document =
        json!({"path": to, "bytes": same.size(), "digest": same.digest(), "sound": sound});
    screen.answer(&document, |paint| {
        format!(
            "{} {}: {}\n",
            paint.good("✓"),
            to.display(),
            megabytes(same.size())
        )
    })?;
    Ok(if sound { 0 } else { FAILED })
}

fn copy(from: &Path, partial: &Path, to: &Path) -> anyhow::Result<()> {
    files::copy(from, partial, MODE)?;
    files::publish(partial, to)?;
    Ok(())
}
