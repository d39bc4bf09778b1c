//! `pkg.*`

use std::collections::{BTreeMap, BTreeSet};

use halite_states::args::{Args, scalar};
use halite_states::low::Chunk;
use halite_states::pattern::PathPattern;
use serde_json::{Map, Value, json};

use super::{Failure, Plan, fail};
use crate::host::Host;
use crate::host::effect::{Effect, PackageOptions};
use crate::host::overlay::KNOWN_AFTER_APPLY;

pub(super) async fn installed(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let wanted = wanted(&args, &chunk.name)?;
    let found = host.packages().await?;
    let mut refresh = args.flag("refresh", false)?;
    let prefers_bundle = args.flag("prefer_bundle", false)?;
    let mut install = BTreeMap::new();
    let mut changes = Map::new();
    for (name, version) in wanted {
        let old = found.get(&name);
        let fits = |one: &str| version.as_ref().is_none_or(|wanted| satisfies(wanted, one));
        if old.is_some_and(|old| old.split(',').any(fits)) {
            continue;
        }
        // A virtual package has no version of its own.
        if old.is_none() && version.is_none() && host.package_provider(&name).await?.is_some() {
            continue;
        }
        let candidate = host.package_candidate(&name, prefers_bundle).await?;
        // Indexes that do not offer a required package may be old, or missing.
        let fitting = candidate.filter(|one| fits(one));
        refresh |= fitting.is_none();
        // The full version: apt finds none without its epoch.
        let version = version.map(|wanted| fitting.clone().unwrap_or(wanted));
        let new = version
            .clone()
            .or(fitting)
            .unwrap_or_else(|| KNOWN_AFTER_APPLY.to_owned());
        changes.insert(
            name.clone(),
            json!({"old": old.cloned().unwrap_or_default(), "new": new}),
        );
        install.insert(name, version);
    }
    if install.is_empty() {
        return Ok(Plan::nothing(
            "All specified packages are already installed",
        ));
    }
    let names = install.keys().cloned().collect::<Vec<_>>().join(", ");
    on_hold(&host.held_packages().await?, &install)?;
    let options = PackageOptions {
        recommends: args.maybe("install_recommends")?,
        erasing: args.flag("allow_erasing", false)?,
        downgrades: args.flag("allow_downgrades", true)?,
        prefers_bundle,
    };
    let removed = host.removed_by(&install, options).await?;
    let mut remark = String::new();
    if !removed.is_empty() {
        let list: Vec<&str> = removed.iter().map(String::as_str).collect();
        remark = format!("; removed, because they conflict: {}", list.join(", "));
    }
    for name in removed {
        let old = found.get(&name).cloned().unwrap_or_default();
        changes.insert(name, json!({"old": old, "new": ""}));
    }
    let mut effects = if refresh {
        vec![Effect::RefreshPackages { only: None }]
    } else {
        Vec::new()
    };
    effects.push(Effect::Packages {
        install,
        remove: Vec::new(),
        options,
    });
    Ok(Plan::change(
        changes,
        effects,
        format!("The following packages would be installed/updated: {names}{remark}"),
        format!("The following packages were installed/updated: {names}{remark}"),
    ))
}

/// Refuses to change packages that the operator has put on hold, as Salt does without
/// `update_holds`.
fn on_hold(
    held: &BTreeSet<String>,
    install: &BTreeMap<String, Option<String>>,
) -> Result<(), Failure> {
    let held: Vec<&str> = install
        .keys()
        .filter(|name| held.contains(*name))
        .map(String::as_str)
        .collect();
    if held.is_empty() {
        return Ok(());
    }
    let names = held.join(" ");
    fail(format!(
        "cannot install or update {names}: on hold; run `apt-mark unhold {names}` on the host"
    ))
}

/// Tests whether a version is the wanted one or matches it as a shell pattern. As in Salt, its
/// epoch counts only if the wanted one has an epoch too.
fn satisfies(wanted: &str, version: &str) -> bool {
    let pattern = PathPattern::new(wanted).ok();
    let fits = |version: &str| {
        version == wanted
            || pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(version))
    };
    let without_epoch = version.split_once(':').map(|(_, rest)| rest);
    fits(version) || !wanted.contains(':') && without_epoch.is_some_and(fits)
}

pub(super) async fn removed(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let names = args
        .maybe_list("pkgs")?
        .unwrap_or_else(|| vec![chunk.name.clone()]);
    let found = host.packages().await?;
    // A package that was cut off is not installed, but partly there.
    let cut_off = host.cut_off_packages().await?;
    let version = |name: &str| found.get(name).or_else(|| cut_off.get(name));
    let remove: Vec<String> = names
        .into_iter()
        .filter(|name| version(name).is_some())
        .collect();
    if remove.is_empty() {
        return Ok(Plan::nothing("All specified packages are already absent"));
    }
    let changes = remove
        .iter()
        .map(|name| (name.clone(), json!({"old": version(name), "new": ""})))
        .collect();
    let list = remove.join(", ");
    Ok(Plan::change(
        changes,
        vec![Effect::Packages {
            install: BTreeMap::new(),
            remove,
            options: PackageOptions::default(),
        }],
        format!("The following packages will be removed: {list}"),
        "All targeted packages were removed.",
    ))
}

/// `name` and `version`, or `pkgs`: names to required versions.
fn wanted(args: &Args<'_>, name: &str) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let mut wanted = BTreeMap::new();
    match args.any("pkgs") {
        None => {
            wanted.insert(name.to_owned(), args.text("version")?);
        }
        Some(Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Object(pins) => pins.iter().for_each(|(name, version)| {
                        wanted.insert(name.clone(), scalar(version));
                    }),
                    item => match scalar(item) {
                        Some(name) => {
                            wanted.insert(name, None);
                        }
                        None => {
                            return fail(
                                "pkg.installed: `pkgs` is a list of names and of {name: version}",
                            );
                        }
                    },
                }
            }
        }
        Some(_) => return fail("pkg.installed: `pkgs` is a list of names and of {name: version}"),
    }
    Ok(wanted)
}
