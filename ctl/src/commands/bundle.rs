//! `ctl bundle`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use halite_bundle::Options;
use serde_json::{Value, json};

use crate::FAILED;
use crate::cli::Bundle;
use crate::output::{Screen, count, table};

/// `ctl bundle`.
///
/// # Errors
/// The bundle cannot be read or built.
pub fn run(command: Bundle, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Bundle::List { directory } => {
            let listing = serde_json::to_value(halite_bundle::list(&directory_of(directory)?)?)?;
            screen.answer(&listing, |_| list(&listing))?;
            Ok(0)
        }
        Bundle::Verify { directory } => {
            let directory = directory_of(directory)?;
            let report = halite_bundle::verify(&directory, &mut |text| screen.progress(text))?;
            let mut document = serde_json::to_value(&report)?;
            document["sound"] = json!(report.is_sound());
            screen.answer(&document, |paint| {
                let mut text: String =
                    report.problems.iter().map(|problem| format!("{} {problem}\n", paint.bad("✗"))).collect();
                if report.is_sound() {
                    let size = megabytes(report.size);
                    text = format!(
                        "{} {}, {size}: all as they were made\n",
                        paint.good("✓"),
                        count(report.files, "file")
                    );
                }
                text
            })?;
            Ok(if report.is_sound() { 0 } else { FAILED })
        }
        Bundle::Build { recipe, out, update } => {
            let people = screen.is_for_people();
            let options = Options { update };
            let manifest = halite_bundle::build(&recipe, &out, &options, &mut |text| {
                if people { screen.line(text) } else { screen.progress(text) }
            })?;
            let size: u64 = manifest.files.values().map(|entry| entry.size).sum();
            let document = json!({"bundle": out.display().to_string(), "version": manifest.version,
                "kubernetes": manifest.kubernetes, "files": manifest.files.len(), "size": size});
            screen.document(&document)?;
            Ok(0)
        }
    }
}

/// The bundle that the running program is part of: `BUNDLE/bin/ctl`.
///
/// # Errors
/// It is part of none, and none was named.
pub fn directory_of(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(directory) = given {
        return directory
            .canonicalize()
            .with_context(|| format!("there is no bundle at {}", directory.display()));
    }
    let program = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("this program's place is unknown")?;
    match program.parent().and_then(std::path::Path::parent) {
        Some(directory) if directory.join(halite_bundle::manifest::FILE).exists() => Ok(directory.to_owned()),
        _ => bail!("{} is not part of a bundle; name the bundle's directory", program.display()),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

fn list(listing: &Value) -> String {
    let plain = |key: &str| table::cell(&listing[key]);
    let mut text = format!(
        "bundle {}, Kubernetes {}, built {}: {} files, {}\n\n",
        plain("version"),
        plain("kubernetes"),
        plain("built"),
        plain("files"),
        megabytes(listing["size"].as_u64().unwrap_or(0)),
    );
    for (heading, columns) in [
        ("images", &["reference", "component", "size", "digest"][..]),
        ("packages", &["name", "version", "size"][..]),
    ] {
        let rows = listing[heading].as_array().cloned().unwrap_or_default();
        let cell = |row: &Value, column: &&str| match (*column, row[*column].as_u64()) {
            ("size", Some(size)) => megabytes(size),
            _ => table::cell(&row[*column]),
        };
        let row = |row: &Value| columns.iter().map(|column| cell(row, column)).collect();
        text.push_str(&format!("{}\n", table::rows(columns, rows.iter().map(row))));
    }
    text
}
