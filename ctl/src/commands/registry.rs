//! `ctl registry`: backups of the site registry.

use std::path::Path;

use halite_api::{
    MadeRegistryBackup, RegistryBackupList, RegistryBackupOnDisk, RegistryDamage, RepairedBlob,
    RestoredRegistry, VerifiedRegistryBackup, to_value,
};
use halite_errors::chain;
use halite_registry_backup as registry;
use halite_registry_backup::{Backup, BackupMetadata, Backups, Repaired, Reporter, StoredDamage};

use crate::FAILED;
use crate::cli::{Registry, RegistryBackup};
use crate::confirm::confirmed;
use crate::output::{Paint, Screen, count, megabytes, or_dash, path_text, table, yes_no};

/// Runs `ctl registry`.
///
/// # Errors
/// There is no registry or no backup at the given path, or the system refuses.
pub fn run(command: Registry, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Registry::Backup(args) => backup(&args, screen),
        Registry::List { directory } => list(&directory, screen),
        Registry::Verify { backup, report } => verify(&backup, report.report.as_deref(), screen),
        Registry::Restore {
            backup, test: true, ..
        } => verify(&backup, None, screen),
        Registry::Restore {
            backup,
            without_damaged,
            yes,
            data,
            ..
        } => {
            let question = format!(
                "Restore {}? Images of the registry that it does not have are removed.",
                backup.display()
            );
            if !confirmed(&question, yes, screen)? {
                return Ok(FAILED);
            }
            restore(&backup, &data.data, without_damaged, screen)
        }
    }
}

fn backup(args: &RegistryBackup, screen: &mut Screen) -> anyhow::Result<u8> {
    let keep = usize::try_from(args.keep)?;
    let reporter = args
        .report
        .report
        .as_deref()
        .map(|path| Reporter::new(path, &args.out));
    let made = reporter
        .as_ref()
        .map_or(Ok(()), Reporter::check_still_there)
        .and_then(|()| {
            registry::create(&args.data.data, &args.out, keep, &mut |text| {
                screen.progress(text)
            })
        });
    let reported = reporter.map_or(Ok(()), |reporter| reporter.backup(&made));
    let done = made?;
    let metadata = &done.metadata;
    let document = MadeRegistryBackup {
        backup: done.name.clone(),
        path: path_text(&done.path),
        repositories: metadata.repositories,
        tags: metadata.tags,
        blobs: metadata.blobs,
        bytes: metadata.bytes,
        bytes_new: metadata.bytes_new,
        damaged: metadata.damaged.iter().map(damage_document).collect(),
        repaired: metadata.repaired.iter().map(repaired_document).collect(),
        removed: done.pruned.clone(),
        problem: done.prune_error.as_ref().map(|error| chain(error)),
    };
    let complete = metadata.damaged.is_empty();
    let undamaged = complete && metadata.repaired.is_empty();
    screen.answer(&to_value(&document), |paint| {
        let mut text = damage(&metadata.damaged, paint);
        for Repaired { damage, from } in &metadata.repaired {
            text.push_str(&format!("{} {damage}: taken from the backup {from}\n", paint.bad("✗")));
        }
        let mark = if complete { paint.good("✓") } else { paint.bad("✗") };
        text.push_str(&format!(
            "{mark} backup {}: {}, {} of it new\n",
            done.path.display(),
            contents(metadata),
            megabytes(metadata.bytes_new)
        ));
        if !done.pruned.is_empty() {
            text.push_str(&format!("removed: {}\n", done.pruned.join(", ")));
        }
        if let Some(error) = &done.prune_error {
            let bad = paint.bad("✗");
            text.push_str(&format!("{bad} the backup was made, but older ones could not be removed: {}\n",
                chain(error)));
        }
        if !undamaged {
            text.push_str(if complete {
                "The registry is damaged and the backup is complete: `ctl registry restore` repairs the registry. No old backup \
                 was removed.\n"
            } else {
                "The registry is damaged, and this backup lacks the damaged blobs. Remove the file of each damaged blob (`find DATA \
                 -path '*/HEX/data' -delete`), because the registry would take it for intact, and push the image again; \
                 or delete the tags that need it. No old backup was removed.\n"
            });
        }
        text
    })?;
    reported?;
    Ok(if undamaged && done.prune_error.is_none() {
        0
    } else {
        FAILED
    })
}

fn damage_document(damage: &StoredDamage) -> RegistryDamage {
    RegistryDamage {
        what: damage.what.clone(),
        why: damage.why.clone(),
        repositories: damage.repositories.clone(),
    }
}

fn repaired_document(repaired: &Repaired) -> RepairedBlob {
    let Repaired { damage, from } = repaired;
    RepairedBlob {
        what: damage.what.clone(),
        why: damage.why.clone(),
        repositories: damage.repositories.clone(),
        from: from.clone(),
    }
}

fn list(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let row = |backup: &Backup| {
        let metadata = backup.metadata.as_ref().ok();
        let damaged = metadata.iter().flat_map(|metadata| &metadata.damaged);
        RegistryBackupOnDisk {
            backup: backup.name().to_string(),
            time: metadata.map(|metadata| metadata.time.to_string()),
            repositories: metadata.map(|metadata| metadata.repositories),
            tags: metadata.map(|metadata| metadata.tags),
            blobs: metadata.map(|metadata| metadata.blobs),
            bytes: metadata.map(|metadata| metadata.bytes),
            bytes_new: metadata.map(|metadata| metadata.bytes_new),
            complete: backup.is_complete(),
            damaged: damaged.map(|damage| damage.what.clone()).collect(),
            problem: backup.metadata.as_ref().err().map(|error| chain(error)),
        }
    };
    let backups = Backups::open(directory)?.list()?;
    let document = RegistryBackupList {
        backups: backups.iter().map(row).collect(),
    };
    screen.answer(&to_value(&document), |paint| overview(&document, paint))?;
    Ok(0)
}

fn overview(document: &RegistryBackupList, paint: &Paint) -> String {
    let size = |bytes: Option<u64>| or_dash(bytes.map(megabytes));
    let row = |row: &RegistryBackupOnDisk| {
        vec![
            row.backup.clone(),
            or_dash(row.time.as_ref()),
            or_dash(row.repositories),
            or_dash(row.tags),
            size(row.bytes),
            size(row.bytes_new),
            yes_no(row.complete),
        ]
    };
    let heading = [
        "backup",
        "time",
        "repositories",
        "tags",
        "size",
        "new",
        "complete",
    ];
    let mut text = table::rows(&heading, document.backups.iter().map(row));
    for row in &document.backups {
        let missing = row.damaged.iter();
        let missing = missing.map(|what| format!("{} is not in it", table::line(what)));
        for problem in missing.chain(row.problem.clone()) {
            let name = table::line(&row.backup);
            text.push_str(&format!("{} {name}: {problem}\n", paint.bad("✗")));
        }
    }
    text
}

fn verify(path: &Path, report: Option<&Path>, screen: &mut Screen) -> anyhow::Result<u8> {
    let reporter = report.map(|report| Reporter::new(report, path));
    let verified = Backups::find(path).and_then(|(_, backup)| {
        let found = registry::verify(&backup, &mut |text| screen.progress(text))?;
        Ok((backup, found))
    });
    let reported = reporter.map_or(Ok(()), |reporter| reporter.verification(&verified));
    let (backup, found) = verified?;
    let intact = found.damaged.is_empty();
    let document = VerifiedRegistryBackup {
        backup: backup.name().to_string(),
        path: path_text(&backup.path),
        blobs: found.blobs,
        bytes: found.bytes,
        damaged: found.damaged.iter().map(damage_document).collect(),
        sound: intact,
    };
    screen.answer(&to_value(&document), |paint| {
        if intact {
            let (blobs, size) = (count(found.blobs, "blob"), megabytes(found.bytes));
            return format!("{} backup {}: {blobs}, {size}: all match their digests\n", paint.good("✓"), backup.name());
        }
        damage(&found.damaged, paint)
            + &format!(
                "The backup {} is damaged. Remove the file of a damaged blob from every backup (`find DIR -path \
                 '*/HEX/data' -delete`): the next backup copies it from the registry again.\n",
                backup.name()
            )
    })?;
    reported?;
    Ok(if intact { 0 } else { FAILED })
}

fn restore(
    path: &Path,
    data: &Path,
    without_damaged: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let (backups, backup) = Backups::find(path)?;
    let outcome = registry::restore(&backups, &backup, data, without_damaged, &mut |text| {
        screen.progress(text)
    })?;
    let restored = match outcome {
        Ok(restored) => restored,
        Err(damaged) => {
            let document = RestoredRegistry {
                backup: backup.name().to_string(),
                damaged: damaged.iter().map(damage_document).collect(),
                ..RestoredRegistry::default()
            };
            screen.answer(&to_value(&document), |paint| {
                damage(&damaged, paint)
                    + &format!(
                        "The backup {} is damaged. Nothing was changed. Name an older one (`ctl registry list {}`), or restore \
                         only the undamaged images (--without-damaged).\n",
                        backup.name(),
                        backups.dir().display()
                    )
            })?;
            return Ok(FAILED);
        }
    };
    let metadata = &restored.metadata;
    let document = RestoredRegistry {
        backup: backup.name().to_string(),
        changed: true,
        repositories: Some(metadata.repositories),
        tags: Some(metadata.tags),
        blobs: Some(metadata.blobs),
        bytes: Some(metadata.bytes),
        copied: Some(restored.copied),
        bytes_new: Some(restored.bytes_new),
        repaired: restored.repaired.clone(),
        damaged: restored.damaged.iter().map(damage_document).collect(),
        lost: restored.lost.clone(),
    };
    let complete = restored.damaged.is_empty();
    screen.answer(&to_value(&document), |paint| {
        let contents = contents(metadata);
        let copied = format!("{}, {}", count(restored.copied, "blob"), megabytes(restored.bytes_new));
        let repaired: String =
            restored.repaired.iter().map(|digest| format!("{digest} was damaged in the registry and is repaired\n")).collect();
        if complete {
            let mark = paint.good("✓");
            return format!(
                "{repaired}{mark} the registry is as in the backup {}: {contents}; {copied} copied\n",
                backup.name()
            );
        }
        let lost: String =
            restored.lost.iter().map(|image| format!("{} {image}: not restored\n", paint.bad("✗"))).collect();
        let damaged = damage(&restored.damaged, paint);
        format!(
            "{repaired}{damaged}{lost}The registry is as in the backup {}, without the images that are named here: restore them \
             from an older backup, or push them again; {copied} copied\n",
            backup.name()
        )
    })?;
    Ok(if complete { 0 } else { FAILED })
}

/// `3 repositories, 5 tags, 40 blobs, 12.3 MB`.
fn contents(metadata: &BackupMetadata) -> String {
    let counted = |number: usize, one: &str, many: &str| {
        format!("{number} {}", if number == 1 { one } else { many })
    };
    [
        counted(metadata.repositories, "repository", "repositories"),
        counted(metadata.tags, "tag", "tags"),
        counted(metadata.blobs, "blob", "blobs"),
        megabytes(metadata.bytes),
    ]
    .join(", ")
}

fn damage(all: &[StoredDamage], paint: &Paint) -> String {
    all.iter()
        .map(|damage| format!("{} {damage}\n", paint.bad("✗")))
        .collect()
}
