//! `ctl registry`.

use std::path::Path;

use serde_json::{Value, json};

use super::bundle::megabytes;
use crate::cli::{Registry, RegistryBackup};
use crate::output::{Paint, Screen, count, table};
use crate::registry::{Backup, Backups, Damage, Mended, Reporter};
use crate::{FAILED, registry};

/// `ctl registry`.
///
/// # Errors
/// There is no registry or no backup where one should be, or the system refuses.
pub fn run(command: Registry, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Registry::Backup(args) => backup(&args, screen),
        Registry::List { directory } => list(&directory, screen),
        Registry::Verify { backup, report } => verify(&backup, report.report.as_deref(), screen),
        Registry::Restore {
            backup,
            without_damaged,
            data,
        } => restore(&backup, &data.data, without_damaged, screen),
    }
}

fn backup(args: &RegistryBackup, screen: &mut Screen) -> anyhow::Result<u8> {
    let keep = usize::try_from(args.keep)?;
    let reporter = args
        .report
        .report
        .as_deref()
        .map(|path| Reporter::new(path, &args.to));
    let made = reporter
        .as_ref()
        .map_or(Ok(()), Reporter::look)
        .and_then(|()| {
            registry::make(&args.data.data, &args.to, keep, &mut |text| {
                screen.progress(text)
            })
        });
    let reported = reporter.map_or(Ok(()), |reporter| reporter.made(&made));
    let done = made?;
    let facts = &done.facts;
    let document = json!({"backup": done.name, "path": done.path, "repositories": facts.repositories,
        "tags": facts.tags, "blobs": facts.blobs, "bytes": facts.bytes, "bytes_new": facts.bytes_new,
        "damaged": facts.damaged, "mended": facts.mended, "pruned": done.pruned,
        "problem": done.kept.as_ref().map(ToString::to_string)});
    let whole = facts.damaged.is_empty();
    let sound = whole && facts.mended.is_empty();
    screen.answer(&document, |paint| {
        let mut text = damage(&facts.damaged, paint);
        for Mended { damage, from } in &facts.mended {
            text.push_str(&format!("{} {damage}: taken from the backup {from}\n", paint.bad("✗")));
        }
        let mark = if whole { paint.good("✓") } else { paint.bad("✗") };
        text.push_str(&format!(
            "{mark} backup {}: {}, {} of it new\n",
            done.path.display(),
            contents(&document),
            megabytes(facts.bytes_new)
        ));
        if !done.pruned.is_empty() {
            text.push_str(&format!("removed: {}\n", done.pruned.join(", ")));
        }
        if let Some(error) = &done.kept {
            let bad = paint.bad("✗");
            text.push_str(&format!("{bad} the backup is made, but older ones could not be removed: {error}\n"));
        }
        if !sound {
            text.push_str(if whole {
                "The registry is damaged and the backup is whole: `ctl registry restore` mends the registry. Nothing old was \
                 removed.\n"
            } else {
                "The registry is damaged and so is this backup, which has all the rest. Remove what is left of a damaged blob \
                 (`find DATA -path '*/HEX/data' -delete`), which the registry would take for whole, and push it again; or \
                 delete what names it. Nothing old was removed.\n"
            });
        }
        text
    })?;
    reported?;
    Ok(if sound && done.kept.is_none() {
        0
    } else {
        FAILED
    })
}

fn list(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let row = |backup: &Backup| {
        let facts = backup.facts.as_ref().ok();
        json!({
            "backup": backup.name(),
            "time": facts.map(|facts| facts.time),
            "repositories": facts.map(|facts| facts.repositories),
            "tags": facts.map(|facts| facts.tags),
            "blobs": facts.map(|facts| facts.blobs),
            "bytes": facts.map(|facts| facts.bytes),
            "bytes_new": facts.map(|facts| facts.bytes_new),
            "whole": backup.is_whole(),
            "damaged": facts.map(|facts| &facts.damaged),
            "problem": backup.facts.as_ref().err(),
        })
    };
    let document: Value = Backups::open(directory)?.list()?.iter().map(row).collect();
    screen.answer(&document, |paint| overview(&document, paint))?;
    Ok(0)
}

fn overview(document: &Value, paint: &Paint) -> String {
    let rows = document.as_array().map(Vec::as_slice).unwrap_or_default();
    let size = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), megabytes);
    let row = |row: &Value| {
        vec![
            table::cell(&row["backup"]),
            table::cell(&row["time"]),
            table::cell(&row["repositories"]),
            table::cell(&row["tags"]),
            size(&row["bytes"]),
            size(&row["bytes_new"]),
            table::cell(&row["whole"]),
        ]
    };
    let heading = [
        "backup",
        "time",
        "repositories",
        "tags",
        "size",
        "new",
        "whole",
    ];
    let mut text = table::rows(&heading, rows.iter().map(row));
    for row in rows {
        let name = table::cell(&row["backup"]);
        let missing = row["damaged"].as_array().into_iter().flatten();
        let missing =
            missing.map(|damage| format!("{} is not in it", table::cell(&damage["what"])));
        for problem in missing.chain(row["problem"].as_str().map(str::to_owned)) {
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
    let reported = reporter.map_or(Ok(()), |reporter| reporter.verified(&verified));
    let (backup, found) = verified?;
    let sound = found.damaged.is_empty();
    let document = json!({"backup": backup.name(), "path": backup.path, "blobs": found.blobs, "bytes": found.bytes,
        "damaged": found.damaged, "sound": sound});
    screen.answer(&document, |paint| {
        if sound {
            let (blobs, size) = (count(found.blobs, "blob"), megabytes(found.bytes));
            return format!("{} backup {}: {blobs}, {size}: all as they were\n", paint.good("✓"), backup.name());
        }
        damage(&found.damaged, paint)
            + &format!(
                "The backup {} is damaged. Remove the file of a damaged blob from every backup (`find DIR -path \
                 '*/HEX/data' -delete`): the next backup copies it from the registry anew.\n",
                backup.name()
            )
    })?;
    reported?;
    Ok(if sound { 0 } else { FAILED })
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
            let document = json!({"backup": backup.name(), "changed": false, "damaged": damaged});
            screen.answer(&document, |paint| {
                damage(&damaged, paint)
                    + &format!(
                        "The backup {} is damaged. Nothing was changed: name an older one (`ctl registry list {}`), or restore \
                         the images that are whole (--without-damaged).\n",
                        backup.name(),
                        backups.dir().display()
                    )
            })?;
            return Ok(FAILED);
        }
    };
    let facts = &restored.facts;
    let document = json!({"backup": backup.name(), "changed": true, "repositories": facts.repositories,
        "tags": facts.tags, "blobs": facts.blobs, "bytes": facts.bytes, "copied": restored.copied,
        "bytes_new": restored.bytes_new, "mended": restored.mended, "damaged": restored.damaged, "lost": restored.lost});
    let whole = restored.damaged.is_empty();
    screen.answer(&document, |paint| {
        let contents = contents(&document);
        let copied = format!("{}, {}", count(restored.copied, "blob"), megabytes(restored.bytes_new));
        let mended: String =
            restored.mended.iter().map(|digest| format!("{digest} was damaged, and is mended\n")).collect();
        if whole {
            let mark = paint.good("✓");
            return format!(
                "{mended}{mark} the registry is as in the backup {}: {contents}; {copied} copied\n",
                backup.name()
            );
        }
        let lost: String =
            restored.lost.iter().map(|image| format!("{} {image}: not restored\n", paint.bad("✗"))).collect();
        let damaged = damage(&restored.damaged, paint);
        format!(
            "{mended}{damaged}{lost}The registry is as in the backup {}, without what is named here, which an older one may \
             have or has to be pushed again; {copied} copied\n",
            backup.name()
        )
    })?;
    Ok(if whole { 0 } else { FAILED })
}

/// `3 repositories, 5 tags, 40 blobs, 12.3 MB`.
fn contents(document: &Value) -> String {
    let number = |key: &str| document[key].as_u64().unwrap_or_default();
    let counted = |key, one, many| {
        format!(
            "{} {}",
            number(key),
            if number(key) == 1 { one } else { many }
        )
    };
    [
        counted("repositories", "repository", "repositories"),
        counted("tags", "tag", "tags"),
        counted("blobs", "blob", "blobs"),
        megabytes(number("bytes")),
    ]
    .join(", ")
}

fn damage(all: &[Damage], paint: &Paint) -> String {
    all.iter()
        .map(|damage| format!("{} {damage}\n", paint.bad("✗")))
        .collect()
}
