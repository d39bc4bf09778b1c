//! `ctl bundle use`: selects another bundle of the site for the cluster.

use std::path::Path;

use anyhow::{Context as _, bail};
use halite_api::{UsedBundle, to_value};
use halite_document::Problem;
use halite_manifest::{Diff, Manifest, manifest};
use halite_pillar::cluster::ResolvedCluster;
use halite_pillar::load::{Texts, load};
use halite_pillar::resolve;
use halite_pillar::validate::Context;

use super::problems;
use crate::cli::Switch;
use crate::compile::report;
use crate::files;
use crate::output::{Screen, bundle_diff};
use crate::paths::CLUSTER_DOCUMENT_MODE;
use crate::site::Site;

/// The master's program in a bundle.
const MASTER: &str = "bin/halite-master";

/// A bundle that the operator chose, and the reasons against its use.
pub(super) struct Checked {
    manifest: Manifest,
    texts: Texts,
    resolved: ResolvedCluster,
    pub problems: Vec<String>,
}

impl Checked {
    /// Checks an installed bundle against its manifest, the documents and the bundle in use.
    pub fn new(site: &Site, args: &Switch, screen: &mut Screen) -> anyhow::Result<Self> {
        let reported = |problems: Vec<Problem>| anyhow::anyhow!("{}", report(&problems));
        let texts = Texts::from_dir(&site.config).map_err(reported)?;
        let declaration = load(&texts, &Context::default()).map_err(|problems| {
            reported(problems).context("the cluster's documents are invalid")
        })?;
        let Some(resolved) = declaration.cluster.resolved.clone() else {
            bail!(
                "the cluster of {} does not exist yet: `ctl bootstrap` creates it",
                texts.cluster.file
            );
        };
        let held = site.bundles.get(&args.version)?;
        let trouble = held.trouble().unwrap_or_default();
        let manifest = held.manifest.map_err(|_| anyhow::anyhow!(trouble))?;
        let mut report_progress = |text: &str| screen.progress(&format!("bundle: {text}"));
        let damage = match &held.recorded {
            Some(sha256) => halite_bundle::verify_same(&held.path, sha256, &mut report_progress)?,
            None => halite_bundle::verify(&held.path, &mut report_progress)?,
        };
        let mut problems: Vec<String> = damage.problems.iter().map(ToString::to_string).collect();
        if let Some(real) = held
            .link_target
            .as_ref()
            .filter(|_| held.recorded.is_none())
        {
            problems.push(format!(
                "it is a link to {}, and the digest of its signed manifest is not recorded: add it again (`ctl bundle add {0}`)",
                real.display()
            ));
        }
        let facts = crate::compile::facts(&manifest, &held.path.display().to_string())?;
        let against = load(
            &texts,
            &Context {
                bundle: Some(&facts),
                ..Context::default()
            },
        );
        problems.extend(
            against
                .err()
                .unwrap_or_default()
                .iter()
                .map(Problem::to_string),
        );
        let built = manifest
            .built
            .parse()
            .context("the bundle does not say when it was built")?;
        problems.extend(site.used_by_hosts()?.iter().map(|(version, names)| {
            format!(
                "an upgrade has not ended: {} with the bundle {version}; `ctl upgrade` with the newer bundle ends it",
                names.join(", ")
            )
        }));
        problems.extend(
            site.downgrade(&args.version, built)?
                .filter(|_| !args.allow_downgrade),
        );
        Ok(Self {
            manifest,
            texts,
            resolved,
            problems,
        })
    }
}

/// Runs `ctl bundle use`.
///
/// # Errors
/// There is no such bundle, another command changes the bundles, or the cluster's documents cannot
/// be read or written.
pub fn switch(site: &Site, args: &Switch, screen: &mut Screen) -> anyhow::Result<u8> {
    let program = site.bundles.get(&args.version)?.path.join("bin/ctl");
    // No other command removes the bundle between the check and the record.
    let _change = (!args.test).then(|| site.bundles.change()).transpose()?;
    let Checked {
        manifest,
        texts,
        resolved,
        problems,
    } = Checked::new(site, args, screen)?;
    if !problems.is_empty() {
        return problems::refuse(&problems, screen);
    }
    let old = site
        .in_use()?
        .and_then(|in_use| manifest::load(&in_use.path).ok());
    // Unknown without the old bundle; `ctl bootstrap` is the correct advice in both cases.
    let other_halite = old
        .as_ref()
        .is_none_or(|old| old.sha256(MASTER) != manifest.sha256(MASTER));
    let diff = old.map(|old| Diff::new(&old, &manifest));
    let chosen = ResolvedCluster {
        bundle: Some(args.version.clone()),
        ..resolved.clone()
    };
    let text = resolve::record(
        &texts.cluster.file,
        &texts.cluster.text,
        &resolve::cluster_block(&chosen),
    )
    .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let differs = chosen != resolved;
    if differs && !args.test {
        record(&site.document(), &texts.cluster.text, &text)?;
    }
    let document = UsedBundle {
        version: args.version.clone(),
        before: resolved.bundle.clone(),
        changed: differs && !args.test,
        other_halite,
        changes: diff.as_ref().map(bundle_diff::document),
    };
    screen.answer(&to_value(&document), |paint| {
        let changes = diff.as_ref().map_or_else(
            || "the changes are not known: the bundle that was in use is missing\n".to_owned(),
            bundle_diff::tables,
        );
        match (differs, args.test) {
            (false, _) => format!("{} bundle {} is the one in use\n", paint.good("✓"), args.version),
            (true, true) => format!("{changes}Nothing was changed.\n"),
            (true, false) if other_halite => format!(
                "{changes}{} bundle {} is recorded as the one in use\nIts states need its own Halite: run `{} bootstrap` on \
                 this host first, then `ctl highstate`\n",
                paint.good("✓"),
                args.version,
                program.display()
            ),
            (true, false) => format!(
                "{changes}{} bundle {} is recorded as the one in use\n`ctl highstate --test` shows the changes on the \
                 hosts, `ctl highstate` makes them\n",
                paint.good("✓"),
                args.version
            ),
        }
    })?;
    Ok(0)
}

/// Replaces a document, unless it has changed since it was read: reading a whole bundle takes some
/// time.
pub(super) fn record(document: &Path, before: &str, after: &str) -> anyhow::Result<()> {
    let now = std::fs::read_to_string(document)
        .with_context(|| format!("cannot read {}", document.display()))?;
    if now != before {
        bail!(
            "{} was changed by another program, and nothing was recorded: run this command again",
            document.display()
        );
    }
    files::write(document, after.as_bytes(), CLUSTER_DOCUMENT_MODE).map(drop)
}
