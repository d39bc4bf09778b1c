//! `ctl registry`: backups of the site registry.

use std::path::Path;

use halite_api::{
    MadeRegistryBackup, RegistryBackupList, RegistryBackupOnDisk, RestoredRegistry,
    VerifiedRegistryBackup, to_value,
};
use halite_errors::chain;
use halite_host_reports::Good;
use halite_registry_backup as registry;
use halite_registry_backup::{Backup, BackupMetadata, ListedBackup};

use super::backup::{BackupReport, refuse_unmounted};
use crate::FAILED;
use crate::cli::{Registry, RegistryBackup};
use crate::confirm::confirmed;
use crate::output::{Paint, Screen, count, megabytes, or_dash, path_text, table};

/// Runs `ctl registry`.
///
/// # Errors
/// There is no registry or no backup, one of them is damaged, or the system refuses.
pub fn run(command: Registry, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Registry::Backup(args) => backup(&args, screen),
        Registry::List { directory } => list(&directory, screen),
        Registry::Verify { backup, report } => verify(&backup, report.report.as_deref(), screen),
        Registry::Restore {
            backup, test: true, ..
        } => verify(&backup, None, screen),
        Registry::Restore {
            backup, yes, data, ..
        } => {
            let question = format!(
                "Restore {}? Images of the registry that it does not have are removed.",
                backup.display()
            );
            if !confirmed(&question, yes, screen)? {
                return Ok(FAILED);
            }
            restore(&backup, &data.data, screen)
        }
    }
}

fn backup(args: &RegistryBackup, screen: &mut Screen) -> anyhow::Result<u8> {
    let outcome = BackupReport::new(args.report.report.as_deref());
    let keep = usize::try_from(args.keep)?;
    let made = refuse_unmounted(&args.out).and_then(|()| {
        let progress = &mut |text: &str| screen.progress(text);
        Ok(registry::create(
            &args.data.data,
            &args.out,
            keep,
            progress,
        )?)
    });
    let made = made.inspect_err(|error| outcome.failed(&args.out, error))?;
    let (path, metadata) = (&made.backup.path, &made.backup.metadata);
    let problem = made.problem.map(|error| {
        let (name, error) = (metadata.name(), chain(&error));
        format!("the backup {name} was made, but older ones could not be removed: {error}")
    });
    outcome.write(&args.out, Some(good(metadata)), problem.clone())?;
    let document = MadeRegistryBackup {
        backup: metadata.name(),
        path: path_text(path),
        tags: metadata.tags,
        blobs: metadata.blobs,
        size: metadata.bytes,
        added_size: metadata.bytes_new,
        removed: made.removed,
        problem,
    };
    screen.answer(&to_value(&document), |paint| {
        let (good, path) = (paint.good("✓"), path.display());
        let (contents, new) = (contents(metadata), megabytes(metadata.bytes_new));
        let mut text = format!("{good} backup {path}: {contents}, {new} of it new\n");
        if !document.removed.is_empty() {
            text.push_str(&format!("removed: {}\n", document.removed.join(", ")));
        }
        if let Some(problem) = &document.problem {
            text.push_str(&format!("{} {problem}\n", paint.bad("✗")));
        }
        text
    })?;
    Ok(match document.problem {
        None => 0,
        Some(_) => FAILED,
    })
}

fn list(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let row = |found: ListedBackup| match found.backup {
        Ok(Backup { metadata, .. }) => RegistryBackupOnDisk {
            backup: found.name,
            time: Some(metadata.time.to_string()),
            tags: Some(metadata.tags),
            blobs: Some(metadata.blobs),
            size: Some(metadata.bytes),
            added_size: Some(metadata.bytes_new),
            problem: None,
        },
        Err(error) => RegistryBackupOnDisk {
            backup: found.name,
            problem: Some(chain(&error)),
            ..RegistryBackupOnDisk::default()
        },
    };
    let backups = registry::list(directory)?.into_iter().map(row).collect();
    let document = RegistryBackupList { backups };
    screen.answer(&to_value(&document), |paint| overview(&document, paint))?;
    Ok(0)
}

fn overview(document: &RegistryBackupList, paint: &Paint) -> String {
    let size = |bytes: Option<u64>| or_dash(bytes.map(megabytes));
    let row = |row: &RegistryBackupOnDisk| {
        let (name, time) = (table::line(&row.backup), or_dash(row.time.as_ref()));
        let (tags, new) = (or_dash(row.tags), size(row.added_size));
        vec![name, time, tags, size(row.size), new]
    };
    let heading = ["backup", "time", "tags", "size", "new"];
    let mut text = table::rows(&heading, document.backups.iter().map(row));
    for problem in document.backups.iter().flat_map(|row| &row.problem) {
        text.push_str(&format!("{} {}\n", paint.bad("✗"), table::line(problem)));
    }
    text
}

fn verify(path: &Path, report: Option<&Path>, screen: &mut Screen) -> anyhow::Result<u8> {
    let outcome = BackupReport::new(report);
    let verified = registry::find(path).and_then(|backup| {
        registry::verify(&backup, &mut |text| screen.progress(text))?;
        Ok(backup)
    });
    let verified = verified.map_err(anyhow::Error::from);
    let backup = verified.inspect_err(|error| outcome.failed(path, error))?;
    let Backup {
        path: found,
        metadata,
    } = backup;
    outcome.write(path, Some(good(&metadata)), None)?;
    let document = VerifiedRegistryBackup {
        backup: metadata.name(),
        path: path_text(&found),
        blobs: metadata.blobs,
        size: metadata.bytes,
        sound: true,
    };
    screen.answer(&to_value(&document), |paint| {
        let (good, contents) = (paint.good("✓"), contents(&metadata));
        format!(
            "{good} backup {}: {contents}: all blobs match their digests\n",
            metadata.name()
        )
    })?;
    Ok(0)
}

fn restore(path: &Path, data: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let backup = registry::find(path)?;
    let restored = registry::restore(&backup, data, &mut |text| screen.progress(text))?;
    let (metadata, name) = (&backup.metadata, backup.metadata.name());
    let document = RestoredRegistry {
        backup: name.clone(),
        tags: metadata.tags,
        blobs: metadata.blobs,
        size: metadata.bytes,
        added_size: restored.bytes_new,
    };
    screen.answer(&to_value(&document), |paint| {
        let (good, contents) = (paint.good("✓"), contents(metadata));
        let new = megabytes(restored.bytes_new);
        format!("{good} the registry is as in the backup {name}: {contents}, {new} of it copied\n")
    })?;
    Ok(0)
}

/// The good result for a report.
fn good(metadata: &BackupMetadata) -> Good {
    Good {
        name: metadata.name(),
        time: metadata.time.as_millisecond(),
        keys: None,
    }
}

/// `5 tags, 40 blobs, 12.3 MB`.
fn contents(metadata: &BackupMetadata) -> String {
    let (tags, blobs) = (count(metadata.tags, "tag"), count(metadata.blobs, "blob"));
    format!("{tags}, {blobs}, {}", megabytes(metadata.bytes))
}
