//! `ctl bundle`.

mod recipe;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_bundle::complete::{Missing, Stock};
use halite_bundle::{Change, Diff, Manifest, Problem, manifest};
use serde_json::{Value, json};

use super::{bundles, copy, seal};
use crate::cli::{Bundle, Global, TrustArgs};
use crate::output::{Screen, count, table};
use crate::site::Site;
use crate::{FAILED, complete};

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
        Bundle::Needs { directory } => needs(&directory_of(directory)?, screen),
        Bundle::Init {
            directory,
            kubernetes,
            programs,
            states,
        } => recipe::init(&directory, kubernetes, programs, states, screen),
        Bundle::Lock { recipe } => recipe::lock(&recipe, screen),
        Bundle::Update { recipe, test } => recipe::update(&recipe, test, screen),
        Bundle::Build {
            recipe,
            out,
            offline,
            signing,
        } => recipe::build(&recipe, &out, offline, &signing, screen),
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
    // Of a damaged bundle the damage is told, not what it would lead to.
    if report.is_sound() {
        screen.progress("looking for what a cluster could ask for and would not find");
        let missing = missing(directory, &manifest::load(directory)?)?;
        let incomplete = |missing: &Missing| Problem::Incomplete {
            message: missing.to_string(),
        };
        report.problems.extend(missing.iter().map(incomplete));
    }
    let signers = vouched.map(|vouched| vouched.signers);
    let mut document = serde_json::to_value(&report)?;
    document["sound"] = json!(report.is_sound());
    document["signers"] = json!(signers);
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
        }
        text
    })?;
    Ok(if report.is_sound() { 0 } else { FAILED })
}

/// `ctl bundle diff`.
fn diff(old: &Path, new: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let diff = Diff::new(&manifest::look(old)?, &manifest::look(new)?);
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
    let short = |text: &Option<String>| {
        text.as_deref()
            .map_or("-", |text| text.get(..40).unwrap_or(text))
            .to_owned()
    };
    let rows = changes
        .iter()
        .map(|c| vec![c.name.clone(), short(&c.old), short(&c.new)]);
    table::rows(&[heading, "old", "new"], rows)
}

/// `ctl bundle needs`.
fn needs(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let manifest = manifest::load(directory)?;
    screen.progress("compiling the state tree for every set of options");
    let stock = Stock::read(directory, &manifest)?;
    let needs = complete::needs(directory, &manifest)?;
    let missing = needs.missing(&stock);
    let without = complete::without_each(directory, &manifest, &needs, &stock)?;
    let spare: Vec<_> = without
        .iter()
        .filter(|(_, said)| said.is_empty())
        .map(|(spare, _)| spare)
        .collect();
    let asked = needs.artifacts().iter().map(|(artifact, places)| {
        let places: Vec<Value> = places
            .iter()
            .map(|(place, uses)| json!({"place": place.to_string(), "with": uses.to_string()}))
            .collect();
        json!({"artifact": artifact, "places": places})
    });
    let missed: Vec<Value> = missing
        .iter()
        .map(|missing| json!({"artifact": missing.artifact, "message": missing.to_string()}))
        .collect();
    let document = json!({"renderings": needs.renderings(), "needs": asked.collect::<Vec<_>>(),
        "missing": missed, "excused": manifest.not_images, "spare": spare, "without": without.iter()
            .map(|(artifact, said)| json!({"artifact": artifact, "said": said})).collect::<Vec<_>>()});
    screen.answer(&document, |paint| {
        let mut text: String = missing
            .iter()
            .map(|missing| format!("{} {missing}\n", paint.bad("✗")))
            .collect();
        for (artifact, places) in needs.artifacts() {
            text.push_str(&format!("{artifact}\n"));
            text.extend(
                places
                    .iter()
                    .map(|(place, uses)| format!("    {place} ({uses})\n")),
            );
        }
        let excused = manifest.not_images.iter();
        text.extend(excused.map(|(text, why)| format!("not an image: {text}: {why}\n")));
        text.extend(
            spare
                .iter()
                .map(|artifact| format!("nobody asks for {artifact}\n")),
        );
        text
    })?;
    Ok(if missing.is_empty() { 0 } else { FAILED })
}

/// What a cluster made from the bundle could ask for and would not find.
fn missing(directory: &Path, manifest: &Manifest) -> anyhow::Result<Vec<Missing>> {
    Ok(complete::needs(directory, manifest)?.missing(&Stock::read(directory, manifest)?))
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

pub fn megabytes(bytes: u64) -> String {
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
