//! `ctl backup list|get`, and reading a backup for a restore.

use std::fs;
use std::path::Path;

use anyhow::bail;
use halite_api::{BackupList, BackupOnDisk, CopiedBackup, to_value};
use halite_backup::{BackupFile, Directory, FoundBackup};
use halite_durable::files;
use halite_errors::chain;
use halite_host_reports::{BACKUP_VERIFY, DIRECTORY as REPORTS};
use halite_pillar::ca_rotation::CaRotation;
use halite_proto::pki;

use super::outcome;
use crate::FAILED;
use crate::backup_file::open_whole;
use crate::output::{Paint, Screen, megabytes, or_dash, path_text, table, yes_no};

/// The certificate of the CA that identifies a cluster, on its master's host.
const CA: &str = "/var/lib/halite/master/ca/halite.crt";
/// The list of the certificates that it has replaced, and the record of the one that replaces it.
const EARLIER: &str = "/var/lib/halite/master/ca/halite.dropped.json";
const NEXT: &str = "/var/lib/halite/master/ca/halite.rotation.json";
const MODE: u32 = 0o600;

/// Refuses a backup of another cluster, if this host has a cluster's master.
///
/// # Errors
/// The backup is from another cluster.
pub fn refuse_foreign(file: &BackupFile) -> anyhow::Result<()> {
    let header = file.header();
    let ids = cluster_ids(Path::new(CA), Path::new(EARLIER), Path::new(NEXT));
    match ids.first() {
        Some(own) if !ids.contains(&header.cluster_id) => bail!(
            "the backup {} is of another cluster ({}, CA {}) than that of this host (CA {own}); verify it elsewhere",
            file.path().display(),
            header.cluster,
            header.cluster_id
        ),
        _ => Ok(()),
    }
}

/// The ids of the cluster whose master is on this host, the present one first: a rotation of its CA
/// changes it. Empty without a master.
fn cluster_ids(certificate: &Path, earlier: &Path, next: &Path) -> Vec<String> {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let earlier: Vec<String> = serde_json::from_str(&text(earlier)).unwrap_or_default();
    let next: Option<CaRotation> = serde_json::from_str(&text(next)).ok();
    let all = [text(certificate)].into_iter().chain(earlier);
    let all = all.chain(next.map(|next| next.certificate));
    let hash = |pem: String| Some(pki::sha256_hex(pki::certificates(&pem).ok()?.first()?));
    all.filter_map(hash).collect()
}

pub fn list(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let verified = outcome::read(&Path::new(REPORTS).join(format!("{BACKUP_VERIFY}.json")));
    let verified = verified.filter(|report| Path::new(&report.directory) == directory);
    let started = verified.and_then(|report| report.good);
    let keys = |name: &str| started.as_ref().filter(|good| good.name == name)?.keys;
    let row = |found: &FoundBackup| match &found.file {
        Ok(file) => {
            let header = file.header();
            let recipients = header.recipients.iter();
            BackupOnDisk {
                backup: found.name.clone(),
                cluster: Some(header.cluster.clone()),
                cluster_id: Some(header.cluster_id.clone()),
                created: Some(header.created.to_string()),
                size: Some(file.size()),
                kubernetes: Some(header.kubernetes.clone()),
                bundle: header.bundle.clone(),
                encrypted: Some(!header.recipients.is_empty()),
                recipients: recipients.map(ToString::to_string).collect(),
                started_keys: keys(&found.name),
                problem: None,
            }
        }
        Err(error) => BackupOnDisk {
            backup: found.name.clone(),
            problem: Some(chain(error)),
            ..BackupOnDisk::default()
        },
    };
    let found = Directory::new(directory).list()?;
    let document = BackupList {
        backups: found.iter().map(row).collect(),
    };
    screen.answer(&to_value(&document), |paint| overview(&document, paint))?;
    Ok(0)
}

fn overview(document: &BackupList, paint: &Paint) -> String {
    let row = |row: &BackupOnDisk| {
        vec![
            row.backup.clone(),
            or_dash(row.cluster.as_ref()),
            or_dash(row.created.as_ref()),
            or_dash(row.size.map(megabytes)),
            or_dash(row.bundle.as_ref()),
            or_dash(row.encrypted.map(yes_no)),
            or_dash(row.started_keys),
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
    let mut text = table::rows(&heading, document.backups.iter().map(row));
    for problem in document
        .backups
        .iter()
        .filter_map(|row| row.problem.as_ref())
    {
        text.push_str(&format!("{} {problem}\n", paint.bad("✗")));
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
        // Only the first error matters.
        let _ = fs::remove_file(&partial);
    }
    copied?;
    let same = BackupFile::open(to)?;
    same.check_on_disk()?;
    let sound = same.digest() == file.digest();
    let copied = CopiedBackup {
        path: path_text(to),
        size: same.size(),
        digest: same.digest().to_owned(),
        sound,
    };
    screen.answer(&to_value(&copied), |paint| {
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

#[cfg(test)]
mod tests {
    use halite_testkit::BackupCa;
    use serde_json::json;

    use super::*;

    #[test]
    fn backups_from_before_and_in_a_rotation_are_of_the_same_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["ca.crt", "earlier", "next"].map(|name| directory.path().join(name));
        let ids = || cluster_ids(&paths[0], &paths[1], &paths[2]);
        assert!(ids().is_empty());
        let [own, earlier, next] = [(); 3].map(|()| BackupCa::new());
        fs::write(&paths[0], own.pem()).unwrap();
        assert_eq!(ids(), [own.hash()]);
        fs::write(&paths[1], json!([earlier.pem()]).to_string()).unwrap();
        let record = json!({"stage": "sign", "certificate": next.pem(), "key": ""});
        fs::write(&paths[2], record.to_string()).unwrap();
        assert_eq!(ids(), [own.hash(), earlier.hash(), next.hash()]);
    }
}
