//! `ctl bundle`.

mod builder;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_bundle::Damage;
use halite_cli::builder::Builder;
use halite_manifest::{Change, Diff, manifest};
use serde_json::{Value, json};

use super::{bundles, copy, seal};
use crate::FAILED;
use crate::cli::{Bundle, Global, TrustArgs};
use crate::output::{Screen, count, table};
use crate::site::Site;

pub use halite_terminal::megabytes;

/// `ctl bundle`.
///
/// # Errors
/// The bundle cannot be read or built.
pub async fn run(global: &Global, command: Bundle, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Bundle::Add { bundle, trust } => bundles::add(&Site::here(), &bundle, &trust, screen),
        Bundle::List => bundles::list(&Site::here(), global, screen).await,
        Bundle::Use(args) => bundles::switch(&Site::here(), &args, screen),
        Bundle::Remove { version, force } => {
            bundles::remove(&Site::here(), global, &version, force, screen).await
        }
        Bundle::Copy(args) => copy::run(&args, screen),
        Bundle::Show { bundle } => {
            let listing =
                serde_json::to_value(halite_bundle::list(&directory_or_version(bundle)?)?)?;
            screen.answer(&listing, |_| list(&listing))?;
            Ok(0)
        }
        Bundle::Verify {
            bundle: Some(file),
            trust,
        } if is_image(&file) => seal::verify(&Site::here(), &file, &trust, screen),
        Bundle::Verify { bundle, trust } => {
            verify(&Site::here(), &directory_of(bundle)?, &trust, screen)
        }
        Bundle::Diff { old, new } => diff(&old, &new, screen),
        Bundle::Export {
            since,
            new,
            out,
            signing,
            trust,
        } => seal::export(
            &Site::here(),
            [&since, &new, &out],
            &signing,
            &trust,
            screen,
        ),
        Bundle::Key {
            file,
            password_file,
            unencrypted,
            not_after,
        } => seal::key(
            &file,
            password_file.as_deref(),
            unencrypted,
            not_after,
            screen,
        ),
        Bundle::Pack {
            directory,
            out,
            signing,
        } => seal::pack(&directory, &out, &signing, screen),
        Bundle::Builder(Builder::Needs { directory }) => {
            let directory = Some(directory_of(directory)?);
            builder::run(global.output, Builder::Needs { directory })
        }
        Bundle::Builder(command) => builder::run(global.output, command),
    }
}

/// Whether a bundle is an image: a file, or a disc or stick that has one on it.
fn is_image(path: &Path) -> bool {
    path.exists() && !path.is_dir()
}

/// `ctl bundle verify` of a directory.
fn verify(
    site: &Site,
    directory: &Path,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let vouched = seal::vouched(site, directory, trusted)?;
    let mut told = |text: &str| screen.progress(text);
    let mut report = match &vouched {
        Some(vouched) => halite_bundle::verify_same(directory, &vouched.sha256, &mut told)?,
        None => halite_bundle::verify(directory, &mut told)?,
    };
    let mut complete = true;
    // Of a damaged bundle the damage is told, not what it would lead to.
    if report.is_sound() {
        screen.progress("looking for what a cluster could ask for and would not find");
        match builder::missing(directory)? {
            Some(missing) => {
                let incomplete = |message| Damage::Incomplete { message };
                report.problems.extend(missing.into_iter().map(incomplete));
            }
            None => complete = false,
        }
    }
    let signers = vouched.map(|vouched| vouched.signers);
    let mut document = serde_json::to_value(&report)?;
    document["sound"] = json!(report.is_sound());
    document["signers"] = json!(signers);
    document["completeness_checked"] = json!(complete && report.is_sound());
    screen.answer(&document, |paint| {
        let mut text: String = report
            .problems
            .iter()
            .map(|problem| format!("{} {problem}\n", paint.bad("✗")))
            .collect();
        if report.is_sound() {
            let size = megabytes(report.size);
            text = format!(
                "{} {}, {size}: all as they were made",
                paint.good("✓"),
                count(report.files, "file")
            );
            text += &match &signers {
                Some(signers) => format!("; signed by {}\n", seal::by(signers)),
                None => format!(
                    "\n{} its signature was not looked at: name a key with --trust\n",
                    paint.notable("!")
                ),
            };
            if !complete {
                text += &format!(
                    "{} not checked: whether it has everything that a cluster could request; {} checks that, \
                     on the machine that builds bundles\n",
                    paint.notable("!"),
                    builder::PROGRAM
                );
            }
        }
        text
    })?;
    Ok(if report.is_sound() { 0 } else { FAILED })
}

/// `ctl bundle diff`.
fn diff(old: &Path, new: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let diff = Diff::new(&halite_bundle::inspect(old)?, &halite_bundle::inspect(new)?);
    let document = serde_json::to_value(&diff)?;
    screen.answer(&document, |_| changes(&diff))?;
    Ok(0)
}

/// What changes, as tables.
pub fn changes(diff: &Diff) -> String {
    let lists = [
        ("versions", &diff.versions),
        ("components", &diff.components),
        ("images", &diff.images),
        ("packages", &diff.packages),
        ("charts", &diff.charts),
        ("states", &diff.states),
    ];
    let mut text = String::new();
    for (heading, changes) in lists.iter().filter(|(_, changes)| !changes.is_empty()) {
        text.push_str(&format!("{}\n", changed(heading, changes)));
    }
    let [old, new, added] = [diff.old_size, diff.new_size, diff.added_size].map(megabytes);
    text + &format!("{old} before, {new} now, {added} of it new\n")
}

/// What changes, as one table.
fn changed(heading: &str, changes: &[Change]) -> String {
    let rows = changes
        .iter()
        .map(|c| (c.name.as_str(), c.old.as_deref(), c.new.as_deref()));
    table::changes(heading, rows)
}

/// The bundle that is named, or that the running program is part of (`BUNDLE/bin/ctl`), or that
/// this site's cluster uses.
///
/// # Errors
/// There is none of these.
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
        Some(directory) if directory.join(manifest::FILE).exists() => Ok(directory.to_owned()),
        _ => match Site::here().in_use()? {
            Some(in_use) => Ok(in_use.path),
            None => {
                bail!(
                    "{} is not part of a bundle, and none is installed here: name one",
                    program.display()
                )
            }
        },
    }
}

/// The same for a bundle that may also be named by its version on this site.
fn directory_or_version(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match given.as_deref().and_then(Path::to_str) {
        Some(version) if !Path::new(version).exists() && !version.contains('/') => {
            Ok(Site::here().bundles.get(version)?.path)
        }
        Some(image) if is_image(Path::new(image)) => Ok(PathBuf::from(image)),
        _ => directory_of(given),
    }
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
        ("rpms", &["name", "version", "size"][..]),
    ] {
        let rows = listing[heading].as_array().cloned().unwrap_or_default();
        if rows.is_empty() {
            continue;
        }
        let cell = |row: &Value, column: &&str| match (*column, row[*column].as_u64()) {
            ("size", Some(size)) => megabytes(size),
            _ => table::cell(&row[*column]),
        };
        let row = |row: &Value| columns.iter().map(|column| cell(row, column)).collect();
        text.push_str(&format!("{}\n", table::rows(columns, rows.iter().map(row))));
    }
    let charts = listing["charts"].as_object().into_iter().flatten();
    let charts: Vec<_> = charts
        .map(|(name, version)| vec![name.clone(), table::cell(version)])
        .collect();
    if !charts.is_empty() {
        text.push_str(&format!(
            "{}\n",
            table::rows(&["charts", "version"], charts.into_iter())
        ));
    }
    text
}
