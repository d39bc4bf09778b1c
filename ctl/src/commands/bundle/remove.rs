//! `ctl bundle remove`: removes a bundle that is not in use from the site.

use anyhow::{Context as _, bail};
use halite_api::{RemovedBundle, to_value};
use halite_names::BundleVersion;

use super::hosts;
use super::hosts::Hosts;
use crate::FAILED;
use crate::cli::Global;
use crate::confirm::confirmed;
use crate::output::{Screen, path_text};
use crate::site::Site;

/// The options of `ctl bundle remove`.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// `true` to skip the confirmation.
    pub yes: bool,
    /// `true` to only check.
    pub test: bool,
    /// `true` to remove it although hosts use it, or may use it.
    pub force: bool,
}

/// Runs `ctl bundle remove`.
///
/// # Errors
/// The bundle is in use or missing, or hosts still use its content, or the system refuses.
pub async fn remove(
    site: &Site,
    global: &Global,
    version: &BundleVersion,
    how: How,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let hosts = if how.force {
        Ok(Hosts::default())
    } else {
        hosts::hosts(global).await
    };
    let hosts = unused(site, version, hosts)?;
    if how.test {
        let document = RemovedBundle {
            version: version.clone(),
            changed: false,
            path: None,
            elsewhere: None,
        };
        screen.answer(&to_value(&document), |_| {
            format!("nothing uses the bundle {version}; nothing was changed\n")
        })?;
        return Ok(0);
    }
    let question = format!("Remove the bundle {version} from this site?");
    if !confirmed(&question, how.yes || how.force, screen)? {
        return Ok(FAILED);
    }
    remove_unused(site, version, Ok(hosts), screen)
}

/// Returns the hosts if neither the cluster nor a host uses the bundle.
fn unused(
    site: &Site,
    version: &BundleVersion,
    hosts: anyhow::Result<Hosts>,
) -> anyhow::Result<Hosts> {
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
    let hosts = hosts
        .context("cannot find out which hosts still use this bundle; --force removes it anyway")?;
    match hosts.need(version) {
        Some(need) => bail!(need),
        None => Ok(hosts),
    }
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
    unused(site, version, hosts)?;
    screen.progress("removing the bundle");
    let held = change.remove(version)?;
    let document = RemovedBundle {
        version: held.version.clone(),
        changed: true,
        path: Some(path_text(&held.path)),
        elsewhere: held.link_target.as_ref().map(path_text),
    };
    screen.answer(&to_value(&document), |paint| {
        let stays = held.link_target.as_ref().map_or_else(String::new, |real| {
            format!("; {} is unchanged and no longer needed", real.display())
        });
        format!("{} bundle {version} is removed{stays}\n", paint.good("✓"))
    })?;
    Ok(0)
}
