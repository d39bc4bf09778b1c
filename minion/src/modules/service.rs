//! `service.*`: systemd units.

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::paths::join;
use super::{Failure, Plan, fail};
use crate::host::effect::{Effect, UnitAction};
use crate::host::{FileKind, Host, UnitState};

const SUFFIXES: &[&str] = &[
    "service",
    "socket",
    "timer",
    "target",
    "mount",
    "automount",
    "path",
    "slice",
    "scope",
    "swap",
    "device",
];

/// The unit's full name: `.service` if there is no other suffix.
pub(crate) fn unit_name(name: &str) -> String {
    let suffix = name.rsplit_once('.').map(|(_, suffix)| suffix);
    if suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    }
}

fn runs(unit: &UnitState) -> bool {
    matches!(unit.active.as_str(), "active" | "reloading" | "refreshing")
}

fn masked_now(unit: &UnitState) -> bool {
    unit.load == "masked" || unit.file.starts_with("masked")
}

fn unknown(unit: &UnitState) -> bool {
    unit.load == "not-found"
}

/// `systemctl is-enabled` succeeds; static units count, because they cannot be enabled any further.
fn starts_at_boot(unit: &UnitState) -> bool {
    matches!(
        unit.file.as_str(),
        "enabled" | "enabled-runtime" | "static" | "alias" | "indirect" | "generated"
    )
}

/// The action that makes `enable` true, if one is needed.
fn enabling(unit: &UnitState, enable: Option<bool>) -> Option<UnitAction> {
    match enable {
        Some(true) if !starts_at_boot(unit) => Some(UnitAction::Enable),
        Some(false) if unit.file.starts_with("enabled") => Some(UnitAction::Disable),
        _ => None,
    }
}

/// The actions as effects, after a `daemon-reload` if systemd has not read the present unit.
fn effects(unit: &UnitState, name: &str, actions: &[UnitAction]) -> Vec<Effect> {
    let mut effects = Vec::new();
    if unit.needs_reload || unknown(unit) {
        effects.push(Effect::DaemonReload);
    }
    effects.extend(actions.iter().map(|action| Effect::Unit {
        name: name.to_owned(),
        action: *action,
    }));
    effects
}

fn change(chunk: &Chunk, effects: Vec<Effect>, comment: String, done: String) -> Plan {
    Plan::change(
        Map::from_iter([(chunk.name.clone(), json!(true))]),
        effects,
        comment,
        done,
    )
}

/// Directories of unit files that rank above the packages' directories.
const OWN_UNITS: [&str; 2] = ["/etc/systemd/system", "/run/systemd/system"];

/// Directories of packages' unit files (one may be a link to the other).
const VENDOR_UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// The files that change the unit of a package, except for the drop-ins that `only_drop_ins` names.
async fn overrides(host: &dyn Host, args: &Args<'_>, name: &str) -> Result<Vec<String>, Failure> {
    let Some(allowed) = args.maybe_list("only_drop_ins")? else {
        return Ok(Vec::new());
    };
    let mut is_vendors = false;
    for directory in VENDOR_UNITS {
        is_vendors |= host.stat(&join(directory, name)).await?.is_some();
    }
    let mut found = Vec::new();
    for directory in OWN_UNITS {
        let unit = join(directory, name);
        let entry = host.stat(&unit).await?;
        // A masked unit has its own remedy.
        let is_mask = |target: &Option<String>| target.as_deref() == Some("/dev/null");
        if is_vendors && entry.is_some_and(|entry| !is_mask(&entry.target)) {
            found.push(unit.clone());
        }
        let drop_ins = format!("{unit}.d");
        let is_directory = host
            .stat(&drop_ins)
            .await?
            .is_some_and(|entry| matches!(entry.kind, FileKind::Directory | FileKind::Symlink));
        if is_directory {
            let names = host.list(&drop_ins).await?;
            let surplus = names
                .iter()
                .filter(|file| file.ends_with(".conf") && !allowed.contains(file));
            found.extend(surplus.map(|file| join(&drop_ins, file)));
        }
    }
    Ok(found)
}

pub(super) async fn running(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    let mut actions = Vec::new();
    if masked_now(&unit) {
        if !args.flag("unmask", false)? {
            return fail(format!(
                "The service {service} is masked; give `unmask: true`, or unmask it"
            ));
        }
        actions.push(UnitAction::Unmask);
    }
    let overrides = overrides(host, &args, &name).await?;
    // An interrupted run may have removed them without notifying systemd.
    let is_unread = unit.needs_reload && args.maybe_list("only_drop_ins")?.is_some();
    if !overrides.is_empty() || (is_unread && runs(&unit)) {
        return without(&unit, &args, chunk, &name, actions, overrides);
    }
    actions.extend(enabling(&unit, args.maybe("enable")?));
    let start = !runs(&unit);
    if start {
        actions.extend([UnitAction::Start, UnitAction::Verify]);
    }
    if actions.is_empty() {
        return Ok(Plan::nothing(format!(
            "The service {service} is already running"
        )));
    }
    let (comment, done) = match (start, actions.first()) {
        (true, _) => (
            format!("Service {service} is set to start"),
            format!("Started service {service}"),
        ),
        (false, Some(UnitAction::Disable)) => (
            format!("Service {service} is set to be disabled, it is running"),
            format!("Service {service} has been disabled, and is in the desired state"),
        ),
        (false, _) => (
            format!("Service {service} is set to be enabled, it is running"),
            format!("Service {service} has been enabled, and is in the desired state"),
        ),
    };
    Ok(change(
        chunk,
        effects(&unit, &name, &actions),
        comment,
        done,
    ))
}

/// The plan that removes overrides of the unit, and starts it from its files. systemd's present
/// information may be about another unit, so it is enabled and restarted in any case.
fn without(
    unit: &UnitState,
    args: &Args<'_>,
    chunk: &Chunk,
    name: &str,
    mut actions: Vec<UnitAction>,
    overrides: Vec<String>,
) -> Result<Plan, Failure> {
    match args.maybe("enable")? {
        Some(true) => actions.push(UnitAction::Enable),
        Some(false) => actions.push(UnitAction::Disable),
        None => {}
    }
    actions.extend([UnitAction::Restart, UnitAction::Verify]);
    let mut all: Vec<Effect> = overrides
        .iter()
        .map(|path| Effect::Remove { path: path.clone() })
        .collect();
    all.push(Effect::DaemonReload);
    let unit = UnitState {
        needs_reload: false,
        ..unit.clone()
    };
    all.extend(effects(&unit, name, &actions));
    let service = &chunk.name;
    let mut changes = Map::from_iter([(service.clone(), json!(true))]);
    let remark = if overrides.is_empty() {
        ", whose unit files systemd had not read".to_owned()
    } else {
        changes.insert("removed".to_owned(), json!(overrides));
        format!(" without {}", overrides.join(", "))
    };
    Ok(Plan::change(
        changes,
        all,
        format!("Service {service} is set to be restarted{remark}"),
        format!("Restarted service {service}{remark}"),
    ))
}

/// A watched state changed: restart, or reload if requested and the unit runs.
pub(super) async fn watched(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    let (action, verb) = match (runs(&unit), args.flag("reload", false)?) {
        (true, true) => (UnitAction::Reload, "reloaded"),
        (true, false) => (UnitAction::Restart, "restarted"),
        (false, _) => (UnitAction::Start, "started"),
    };
    let effects = effects(&unit, &name, &[action]);
    Ok(change(
        chunk,
        effects,
        format!("Service {service} is set to be {verb}"),
        format!("Service {verb}"),
    ))
}

pub(super) async fn dead(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    if unknown(&unit) {
        return Ok(Plan::nothing(format!(
            "The named service {service} is not available"
        )));
    }
    let mut actions = Vec::new();
    let stop = !matches!(unit.active.as_str(), "inactive" | "failed" | "");
    if stop {
        actions.push(UnitAction::Stop);
    }
    if !masked_now(&unit) {
        actions.extend(enabling(&unit, args.maybe("enable")?));
    }
    if actions.is_empty() {
        return Ok(Plan::nothing(format!(
            "The service {service} is already dead"
        )));
    }
    let (comment, done) = if stop {
        (
            format!("Service {service} is set to be killed"),
            format!("Service {service} was killed"),
        )
    } else {
        (
            format!("Service {service} is set to be changed at boot"),
            format!("Service {service} was changed at boot"),
        )
    };
    Ok(change(
        chunk,
        effects(&unit, &name, &actions),
        comment,
        done,
    ))
}

pub(super) async fn enabled(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    if masked_now(&unit) {
        return fail(format!("The service {service} is masked; unmask it first"));
    }
    let Some(action) = enabling(&unit, Some(true)) else {
        return Ok(Plan::nothing(format!(
            "Service {service} is already enabled, and is in the desired state"
        )));
    };
    Ok(change(
        chunk,
        effects(&unit, &name, &[action]),
        format!("Service {service} set to be enabled"),
        format!("Service {service} has been enabled, and is in the desired state"),
    ))
}

pub(super) async fn disabled(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    let Some(action) = enabling(&unit, Some(false)).filter(|_| !unknown(&unit)) else {
        return Ok(Plan::nothing(format!(
            "Service {service} is already disabled, and is in the desired state"
        )));
    };
    Ok(change(
        chunk,
        effects(&unit, &name, &[action]),
        format!("Service {service} set to be disabled"),
        format!("Service {service} has been disabled, and is in the desired state"),
    ))
}

pub(super) async fn masked(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let (name, service) = (unit_name(&chunk.name), &chunk.name);
    let unit = host.unit(&name).await?;
    if masked_now(&unit) {
        return Ok(Plan::nothing(format!(
            "Service {service} is already masked"
        )));
    }
    // systemd refuses to replace it by the link to /dev/null.
    let own = join(OWN_UNITS[0], &name);
    if let Some(entry) = host.stat(&own).await?
        && entry.kind == FileKind::File
    {
        return fail(format!(
            "cannot mask the service {service}: its unit file {own} is in the place of the link to /dev/null; remove the \
             file with file.absent first"
        ));
    }
    Ok(Plan::change(
        Map::from_iter([("masked".to_owned(), json!(true))]),
        vec![Effect::Unit {
            name,
            action: UnitAction::Mask,
        }],
        format!("Service {service} would be masked"),
        format!("Service {service} was masked"),
    ))
}
