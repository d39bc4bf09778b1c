//! `ctl bundle remove`: a bundle that is not in use leaves the site.

use anyhow::{Context as _, bail};
use halite_names::BundleVersion;
use serde_json::json;

use super::hosts;
use super::hosts::Hosts;
use crate::cli::Global;
use crate::output::Screen;
use crate::site::Site;

/// Runs `ctl bundle remove`.
///
/// # Errors
/// The bundle is in use or missing, or hosts still use its content, or the system refuses.
pub async fn remove(
    site: &Site,
    global: &Global,
    version: &BundleVersion,
    force: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let hosts = if force {
        Ok(Hosts::default())
    } else {
        hosts::hosts(global).await
    };
    remove_unused(site, version, hosts, screen)
}

/// Removes a bundle that neither the cluster nor a host uses.
pub(super) fn remove_unused(
    site: &Site,
    version: &BundleVersion,
    hosts: anyhow::Result<Hosts>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    site.bundles.get(version)?;
    // No other command records this bundle as the one in use between the check and the removal.
    let change = site.bundles.change()?;
    let held = site.bundles.get(version)?;
    if let Some(in_use) = site.in_use()?
        && (in_use.path == held.path
            || in_use.path.canonicalize().ok() == held.path.canonicalize().ok())
    {
        bail!(
            "the bundle {version} is in use, nothing was removed: let the cluster use another one first (`ctl bundle use`, \
             then `ctl highstate`)"
        );
    }
    if let Some(names) = site.used_by_hosts()?.get(version.as_str()) {
        bail!(
            "the bundle {version} is in use on {}, nothing was removed: `ctl upgrade` brings hosts to another one",
            names.join(", ")
        );
    }
    let hosts = hosts.context(
        "cannot ask which hosts still use this bundle; --force removes it in spite of that",
    )?;
    if let Some(need) = hosts.need(version) {
        bail!(need);
    }
    screen.progress("removing the bundle");
    let held = change.remove(version)?;
    let document =
        json!({"version": held.version, "path": held.path, "elsewhere": held.link_target});
    screen.answer(&document, |paint| {
        let stays = held.link_target.as_ref().map_or_else(String::new, |real| {
            format!(
                "; {} is not changed, and not needed any more",
                real.display()
            )
        });
        format!("{} bundle {version} is removed{stays}\n", paint.good("✓"))
    })?;
    Ok(0)
}
