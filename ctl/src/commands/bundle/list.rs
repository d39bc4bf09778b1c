//! `ctl bundle list`: the bundles of the site.

use halite_api::{BundleList, BundleOnSite, to_value};
use halite_manifest::{InstalledBundle, Unusable, manifest};

use super::hosts;
use super::hosts::Hosts;
use crate::cli::Global;
use crate::output::{Paint, Screen, list as names, megabytes, or_dash, table};
use crate::site::Site;

/// Runs `ctl bundle list`.
///
/// # Errors
/// The bundles or the cluster document cannot be read.
pub async fn list(site: &Site, global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    // Without an answer of the master, the list lacks only the hosts.
    let hosts = hosts::hosts(global).await.ok();
    let document = document(site, hosts.as_ref())?;
    screen.answer(&to_value(&document), |paint| overview(&document, paint))?;
    Ok(0)
}

/// The site's bundles, as a document.
pub(super) fn document(site: &Site, hosts: Option<&Hosts>) -> anyhow::Result<BundleList> {
    let in_use = site.in_use()?;
    let by_hosts = site.used_by_hosts()?;
    let mut all = site.bundles.list()?;
    // The bundle in use is listed even if its directory is missing.
    if let Some(in_use) = &in_use
        && all.iter().all(|held| held.path != in_use.path)
    {
        let manifest = manifest::load(&in_use.path).map_err(Unusable::from);
        let version = in_use
            .version
            .clone()
            .or_else(|| Some(manifest.as_ref().ok()?.version.clone()));
        // Without another source, the name of its directory is its version.
        let version = version.or_else(|| in_use.path.file_name()?.to_str()?.parse().ok());
        all.extend(version.map(|version| InstalledBundle {
            version,
            path: in_use.path.clone(),
            link_target: None,
            recorded: None,
            manifest,
        }));
    }
    let each = |held: &InstalledBundle| {
        let manifest = held.manifest.as_ref().ok();
        let size =
            manifest.map(|manifest| manifest.files.values().map(|entry| entry.size).sum::<u64>());
        let target = held.link_target.as_ref();
        BundleOnSite {
            version: held.version.clone(),
            kubernetes: manifest.map(|manifest| manifest.kubernetes.clone()),
            built: manifest.map(|manifest| manifest.built.clone()),
            size,
            hosts: hosts.map(|hosts| hosts.with(&held.version)),
            in_use: in_use
                .as_ref()
                .is_some_and(|in_use| in_use.path == held.path),
            used_by: by_hosts
                .get(held.version.as_str())
                .cloned()
                .unwrap_or_default(),
            path: held.path.display().to_string(),
            elsewhere: target.map(|target| target.display().to_string()),
            problem: held.trouble(),
        }
    };
    Ok(BundleList {
        bundles: all.iter().map(each).collect(),
    })
}

/// Formats the site's bundles as a table, and their problems.
pub(super) fn overview(document: &BundleList, paint: &Paint) -> String {
    let row = |row: &BundleOnSite| {
        vec![
            row.version.to_string(),
            or_dash(row.kubernetes.as_ref()),
            or_dash(row.built.as_ref()),
            or_dash(row.size.map(megabytes)),
            match row.in_use {
                true => "yes".to_owned(),
                false => names(&row.used_by),
            },
            row.hosts.as_deref().map_or_else(|| "-".to_owned(), names),
            row.elsewhere.as_ref().unwrap_or(&row.path).clone(),
        ]
    };
    let heading = [
        "version",
        "kubernetes",
        "built",
        "size",
        "in use",
        "hosts",
        "where",
    ];
    let mut text = table::rows(&heading, document.bundles.iter().map(row));
    let problems = document
        .bundles
        .iter()
        .filter_map(|row| row.problem.as_ref());
    text.extend(problems.map(|problem| format!("{} {problem}\n", paint.bad("✗"))));
    text
}
