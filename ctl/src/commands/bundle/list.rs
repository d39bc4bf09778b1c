//! `ctl bundle list`: the bundles of the site.

use halite_manifest::{InstalledBundle, Unusable, manifest};
use serde_json::{Value, json};

use super::hosts;
use super::hosts::Hosts;
use crate::cli::Global;
use crate::output::{Paint, Screen, megabytes, table};
use crate::site::Site;

/// Runs `ctl bundle list`.
///
/// # Errors
/// The bundles or the cluster document cannot be read.
pub async fn list(site: &Site, global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    // Without an answer of the master, the list lacks only the hosts.
    let hosts = hosts::hosts(global).await.ok();
    let document = document(site, hosts.as_ref())?;
    screen.answer(&document, |paint| overview(&document, paint))?;
    Ok(0)
}

/// The site's bundles, as a document.
pub(super) fn document(site: &Site, hosts: Option<&Hosts>) -> anyhow::Result<Value> {
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
        // Where nothing else says it, its directory has its version as its name.
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
        json!({
            "version": held.version,
            "kubernetes": manifest.map(|manifest| &manifest.kubernetes),
            "built": manifest.map(|manifest| &manifest.built),
            "size": size,
            "hosts": hosts.map(|hosts| hosts.with(&held.version)),
            "in_use": in_use.as_ref().is_some_and(|in_use| in_use.path == held.path),
            "used_by": by_hosts.get(held.version.as_str()),
            "path": held.path,
            "elsewhere": held.link_target,
            "problem": held.trouble(),
        })
    };
    Ok(all.iter().map(each).collect())
}

/// Formats the site's bundles as a table, and their problems.
pub(super) fn overview(document: &Value, paint: &Paint) -> String {
    let rows = document.as_array().cloned().unwrap_or_default();
    let row = |row: &Value| {
        let place = if row["elsewhere"].is_null() {
            &row["path"]
        } else {
            &row["elsewhere"]
        };
        vec![
            table::cell(&row["version"]),
            table::cell(&row["kubernetes"]),
            table::cell(&row["built"]),
            row["size"]
                .as_u64()
                .map_or_else(|| "-".to_owned(), megabytes),
            match (&row["in_use"], &row["used_by"]) {
                (Value::Bool(true), _) => "yes".to_owned(),
                (_, Value::Null) => "-".to_owned(),
                (_, names) => table::cell(names),
            },
            table::cell(&row["hosts"]),
            table::cell(place),
        ]
    };
    let mut text = table::rows(
        &[
            "version",
            "kubernetes",
            "built",
            "size",
            "in use",
            "hosts",
            "where",
        ],
        rows.iter().map(row),
    );
    let problems = rows.iter().filter_map(|row| row["problem"].as_str());
    text.extend(problems.map(|problem| format!("{} {problem}\n", paint.bad("✗"))));
    text
}
