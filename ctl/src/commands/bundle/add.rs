//! `ctl bundle add`: adds a bundle to the site.

use std::path::Path;

use anyhow::bail;
use halite_api::{AddedBundle, to_value};
use halite_bundle::Added;

use super::problems;
use crate::cli::TrustArgs;
use crate::output::{Screen, path_text};
use crate::site::{Site, VerifiedBundle};

/// Runs `ctl bundle add`. With `test` it only shows what would happen.
///
/// # Errors
/// This host has no cluster, no trusted key signed the bundle, or it cannot be added.
pub fn add(
    site: &Site,
    path: &Path,
    trust: &TrustArgs,
    test: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    if !site.document().exists() {
        bail!(
            "there is no cluster on this host ({} is missing): bundles are added on the bootstrap host, and the first one \
             comes with `ctl bootstrap --bundle`",
            site.document().display()
        );
    }
    let bundle = match VerifiedBundle::check(site, path, trust, screen)? {
        Ok(bundle) => bundle,
        Err(problems) => return problems::refuse(&problems, screen),
    };
    if test {
        return preview(site, &bundle, screen);
    }
    let added = bundle.install(site, screen)?;
    let held = site.bundles.get(&bundle.version)?;
    let document = AddedBundle {
        version: held.version.clone(),
        path: path_text(&held.path),
        elsewhere: held.link_target.as_ref().map(path_text),
        changed: added != Added::There,
        would_change: None,
    };
    let what = match added {
        Added::New => "is added",
        Added::There => "already exists",
        Added::Replaced => "is repaired",
    };
    screen.answer(&to_value(&document), |paint| {
        let (good, version) = (paint.good("✓"), &held.version);
        format!(
            "{good} bundle {version} {what}: {}\n`ctl highstate` makes it available to the hosts; `ctl bundle use {version}` \
             selects it for the cluster\n",
            held.path.display()
        )
    })?;
    Ok(0)
}

/// Returns what would happen if this bundle were added, and the document about it.
///
/// # Errors
/// The bundle cannot be added.
pub fn previewed(
    site: &Site,
    bundle: &VerifiedBundle,
    screen: &mut Screen,
) -> anyhow::Result<(Added, AddedBundle)> {
    let added = bundle.preview(site, screen)?;
    let document = AddedBundle {
        version: bundle.version.clone(),
        path: path_text(site.bundles.path(&bundle.version)),
        elsewhere: None,
        changed: false,
        would_change: Some(added != Added::There),
    };
    Ok((added, document))
}

/// Shows what would happen if this bundle were added.
fn preview(site: &Site, bundle: &VerifiedBundle, screen: &mut Screen) -> anyhow::Result<u8> {
    let (added, document) = previewed(site, bundle, screen)?;
    let what = match added {
        Added::New => "would be added",
        Added::There => "already exists",
        Added::Replaced => "would be repaired",
    };
    screen.answer(&to_value(&document), |_| {
        format!(
            "bundle {} {what}: {}\nnothing was changed\n",
            document.version, document.path
        )
    })?;
    Ok(0)
}
