//! `ctl bundle add|list|use|remove`: the bundles of a site.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use halite_bundle::Added;
use halite_document::Problem;
use halite_manifest::{Diff, InstalledBundle, Manifest, manifest};
use halite_pillar::cluster::ResolvedCluster;
use halite_pillar::load::{Texts, load};
use halite_pillar::resolve;
use halite_pillar::validate::Context;
use halite_proto::v1;
use serde_json::{Value, json};

use super::bundle::{changes, megabytes};
use crate::bootstrap::CLUSTER_MODE;
use crate::cli::{Global, Switch, TrustArgs};
use crate::compile::report;
use crate::output::{Paint, Screen, table};
use crate::site::{Site, Vouched};
use crate::{FAILED, client, files};

/// `ctl bundle add`.
///
/// # Errors
/// This host is no site, nobody vouches for the bundle, or it cannot be put in its place.
pub fn add(site: &Site, path: &Path, trust: &TrustArgs, screen: &mut Screen) -> anyhow::Result<u8> {
    if !site.document().exists() {
        bail!(
            "there is no cluster on this host ({} is missing): bundles are added on the bootstrap host, and the first one \
             comes with `ctl bootstrap --bundle`",
            site.document().display()
        );
    }
    let vouched = match Vouched::check(site, path, trust, screen)? {
        Ok(vouched) => vouched,
        Err(problems) => return damaged(&problems, screen),
    };
    let added = vouched.settle(site, screen)?;
    let held = site.bundles.get(&vouched.version)?;
    let document = json!({"version": held.version, "path": held.path, "elsewhere": held.link_target,
        "changed": added != Added::There});
    let what = match added {
        Added::New => "is added",
        Added::There => "is there already",
        Added::Replaced => "is whole again",
    };
    screen.answer(&document, |paint| {
        let (good, version) = (paint.good("✓"), &held.version);
        format!(
            "{good} bundle {version} {what}: {}\n`ctl highstate` lets it be served, `ctl bundle use {version}` makes it the \
             one in use\n",
            held.path.display()
        )
    })?;
    Ok(0)
}

/// `ctl bundle list`.
///
/// # Errors
/// The bundles or the cluster document cannot be read.
pub async fn list(site: &Site, global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    // A list without the hosts is still one.
    let hosts = hosts(global).await.ok();
    let document = document(site, hosts.as_ref())?;
    screen.answer(&document, |paint| overview(&document, paint))?;
    Ok(0)
}

/// What the hosts have of the site's bundles.
#[derive(Debug, Default)]
struct Hosts {
    /// The bundle that each host has, as its last highstate that succeeded tells.
    last: BTreeMap<String, String>,
    /// All of which each may have something: what came after that highstate did not succeed as a
    /// whole.
    any: BTreeMap<String, Vec<String>>,
    /// Accepted hosts of which the master knows nothing.
    unknown: Vec<String>,
}

async fn hosts(global: &Global) -> anyhow::Result<Hosts> {
    let mut operator = client::operator(global).await?;
    let status = client::document(operator.status(v1::StatusRequest {}).await)?;
    Ok(of_status(&status))
}

fn of_status(status: &Value) -> Hosts {
    let nodes = status["nodes"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut hosts = Hosts::default();
    for node in nodes {
        let Some(name) = node["name"].as_str() else {
            continue;
        };
        if let Some(bundle) = node["bundle"].as_str() {
            hosts.last.insert(name.to_owned(), bundle.to_owned());
        }
        match node["bundles"].as_array() {
            Some(any) => {
                let any = any
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                hosts.any.insert(name.to_owned(), any);
            }
            None if node["key"] == "accepted" => hosts.unknown.push(name.to_owned()),
            None => {}
        }
    }
    hosts
}

impl Hosts {
    /// The hosts that have a bundle.
    fn with(&self, version: &str) -> Vec<&str> {
        self.last
            .iter()
            .filter(|(_, bundle)| *bundle == version)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Why a bundle must stay.
    fn need(&self, version: &str) -> Option<String> {
        let users = self
            .any
            .iter()
            .filter(|(_, any)| any.iter().any(|bundle| bundle == version));
        let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
        let what = match (users.is_empty(), self.unknown.is_empty()) {
            (false, _) => format!(
                "these hosts still fetch from the bundle {version}, nothing was removed: {}",
                users.join(", ")
            ),
            (true, false) => format!(
                "of which bundles these hosts have something is not known, nothing was removed: {} (`ctl key delete` \
                 forgets those that are gone)",
                self.unknown.join(", ")
            ),
            (true, true) => return None,
        };
        Some(format!(
            "{what}. `ctl highstate` brings them to the one in use; --force removes it all the same"
        ))
    }
}

fn document(site: &Site, hosts: Option<&Hosts>) -> anyhow::Result<Value> {
    let in_use = site.in_use()?;
    let mut all = site.bundles.list()?;
    // What is in use belongs into the list, all the more when it is not there.
    if let Some(in_use) = &in_use
        && all.iter().all(|held| held.path != in_use.path)
    {
        let manifest = manifest::load(&in_use.path).map_err(|error| error.to_string());
        let version = in_use
            .version
            .clone()
            .or_else(|| Some(manifest.as_ref().ok()?.version.clone()));
        let version = version.unwrap_or_else(|| "-".to_owned());
        all.push(InstalledBundle {
            version,
            path: in_use.path.clone(),
            link_target: None,
            recorded: None,
            manifest,
        });
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
            "path": held.path,
            "elsewhere": held.link_target,
            "problem": held.trouble(),
        })
    };
    Ok(all.iter().map(each).collect())
}

fn overview(document: &Value, paint: &Paint) -> String {
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
            if row["in_use"] == true {
                "yes".to_owned()
            } else {
                "-".to_owned()
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

/// The master's program in a bundle.
const MASTER: &str = "bin/halite-master";

/// A bundle that the cluster is to use, and what speaks against it.
struct Checked {
    manifest: Manifest,
    texts: Texts,
    resolved: ResolvedCluster,
    problems: Vec<String>,
}

impl Checked {
    fn new(site: &Site, args: &Switch, screen: &mut Screen) -> anyhow::Result<Self> {
        let reported = |problems: Vec<Problem>| anyhow::anyhow!("{}", report(&problems));
        let texts = Texts::from_dir(&site.config).map_err(reported)?;
        let declaration = load(&texts, &Context::default()).map_err(|problems| {
            reported(problems).context("the cluster's documents have mistakes")
        })?;
        let Some(resolved) = declaration.cluster.resolved.clone() else {
            bail!(
                "the cluster of {} is not made yet: `ctl bootstrap` makes it",
                texts.cluster.file
            );
        };
        let held = site.bundles.get(&args.version)?;
        let trouble = held.trouble().unwrap_or_default();
        let manifest = held.manifest.map_err(|_| anyhow::anyhow!(trouble))?;
        let mut told = |text: &str| screen.progress(&format!("bundle: {text}"));
        let damage = match &held.recorded {
            Some(sha256) => halite_bundle::verify_same(&held.path, sha256, &mut told)?,
            None => halite_bundle::verify(&held.path, &mut told)?,
        };
        let mut problems: Vec<String> = damage.problems.iter().map(ToString::to_string).collect();
        if let Some(real) = held
            .link_target
            .as_ref()
            .filter(|_| held.recorded.is_none())
        {
            problems.push(format!(
                "it is a link to {}, and it is not recorded what was vouched for there: add it again (`ctl bundle add {0}`)",
                real.display()
            ));
        }
        let facts = crate::compile::facts(&manifest, &held.path.display().to_string());
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

/// `ctl bundle use`.
///
/// # Errors
/// There is no such bundle, somebody else changes the bundles, or the cluster's documents cannot be
/// read or written.
pub fn switch(site: &Site, args: &Switch, screen: &mut Screen) -> anyhow::Result<u8> {
    let program = site.bundles.get(&args.version)?.path.join("bin/ctl");
    // From the check to the record nobody takes it away.
    let _change = (!args.test).then(|| site.bundles.change()).transpose()?;
    let Checked {
        manifest,
        texts,
        resolved,
        problems,
    } = Checked::new(site, args, screen)?;
    if !problems.is_empty() {
        return damaged(&problems, screen);
    }
    let old = site
        .in_use()?
        .and_then(|in_use| manifest::load(&in_use.path).ok());
    // Without the old one nobody knows, and bootstrap is right in either case.
    let other_halite = old
        .as_ref()
        .is_none_or(|old| old.sha256(MASTER) != manifest.sha256(MASTER));
    let diff = old.map(|old| Diff::new(&old, &manifest));
    let wanted = ResolvedCluster {
        bundle: Some(args.version.clone()),
        ..resolved.clone()
    };
    let text = resolve::record(
        &texts.cluster.file,
        &texts.cluster.text,
        &resolve::cluster_block(&wanted),
    )
    .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let differs = wanted != resolved;
    if differs && !args.test {
        record(&site.document(), &texts.cluster.text, &text)?;
    }
    let document = json!({"version": args.version, "before": resolved.bundle, "changed": differs && !args.test,
        "other_halite": other_halite, "changes": diff});
    screen.answer(&document, |paint| {
        let shown = diff.as_ref().map_or_else(
            || "what changes cannot be told: the bundle that was in use is not there\n".to_owned(),
            changes,
        );
        match (differs, args.test) {
            (false, _) => format!("{} bundle {} is the one in use\n", paint.good("✓"), args.version),
            (true, true) => format!("{shown}Nothing was changed.\n"),
            (true, false) if other_halite => format!(
                "{shown}{} bundle {} is recorded as the one in use\nIts states are for its own Halite: `{} bootstrap` brings \
                 that to this host first, then `ctl highstate` does the rest\n",
                paint.good("✓"),
                args.version,
                program.display()
            ),
            (true, false) => format!(
                "{shown}{} bundle {} is recorded as the one in use\n`ctl highstate --test` shows what that changes on the \
                 hosts, `ctl highstate` does it\n",
                paint.good("✓"),
                args.version
            ),
        }
    })?;
    Ok(0)
}

/// Puts a text in the place of a document, unless somebody has changed that since it was read: to
/// read a whole bundle takes a while.
fn record(document: &Path, before: &str, after: &str) -> anyhow::Result<()> {
    let now = std::fs::read_to_string(document)
        .with_context(|| format!("cannot read {}", document.display()))?;
    if now != before {
        bail!(
            "{} was changed meanwhile, and nothing was recorded: run this again",
            document.display()
        );
    }
    files::write(document, after.as_bytes(), CLUSTER_MODE).map(drop)
}

/// `ctl bundle remove`.
///
/// # Errors
/// It is in use, hosts still have what it gave them, it is not there, or the system refuses.
pub async fn remove(
    site: &Site,
    global: &Global,
    version: &str,
    force: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let hosts = if force {
        Ok(Hosts::default())
    } else {
        hosts(global).await
    };
    take_away(site, version, hosts, screen)
}

fn take_away(
    site: &Site,
    version: &str,
    hosts: anyhow::Result<Hosts>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    site.bundles.get(version)?;
    // From the look at what is in use to the end of it nobody records it as the one in use.
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
    let hosts = hosts.context(
        "which hosts still have what this bundle gave them is not known; --force removes it all the same",
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

fn damaged(problems: &[String], screen: &mut Screen) -> anyhow::Result<u8> {
    screen.answer(&json!({"changed": false, "problems": problems}), |paint| {
        let mut text: String = problems
            .iter()
            .map(|problem| format!("{} {problem}\n", paint.bad("✗")))
            .collect();
        text.push_str("Nothing was changed.\n");
        text
    })?;
    Ok(FAILED)
}

#[cfg(test)]
#[path = "bundles_tests.rs"]
mod tests;
