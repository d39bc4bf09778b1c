//! Sets of addresses (`firewalld.ipset(5)`).
//!
//! firewalld changes the entries of a known set at run time, one by one, so that a rule never sees
//! an empty set. It creates or removes sets, and changes their type, only by a reload.

use std::collections::{BTreeMap, BTreeSet};

use zbus::OwnedObjectPath;

use super::super::bus::{Bus, Object, unreadable};
use super::{CONFIG, Ours, PATH, SERVICE, reload};
use crate::host::effect::IpsetSettings;
use crate::host::{HostError, HostResult, IpsetView};

/// The running sets.
pub(super) const RUNTIME: Object<'static> = Object {
    service: SERVICE,
    path: PATH,
    interface: "org.fedoraproject.FirewallD1.ipset",
};

/// The interface of a set in the permanent configuration.
const PERMANENT: &str = "org.fedoraproject.FirewallD1.config.ipset";

/// firewalld's own form: version, name for display, description, type, options, entries.
type Settings = (
    String,
    String,
    String,
    String,
    BTreeMap<String, String>,
    Vec<String>,
);

fn read((_, _, _, kind, options, mut entries): Settings) -> IpsetSettings {
    entries.sort();
    IpsetSettings {
        kind,
        options,
        entries,
    }
}

fn write(name: &str, settings: &IpsetSettings) -> Settings {
    (
        String::new(),
        name.to_owned(),
        String::new(),
        settings.kind.clone(),
        settings.options.clone(),
        settings.entries.clone(),
    )
}

/// Permanent and runtime settings of one set.
///
/// # Errors
/// firewalld is not running, or refuses.
pub async fn view(bus: &Bus, name: &str) -> HostResult<IpsetView> {
    let permanent = match object(bus, name).await? {
        None => None,
        Some(path) => {
            let reply = bus.call(permanent(&path), "getSettings", &()).await?;
            Some(read(reply.body().deserialize().map_err(unreadable(name))?))
        }
    };
    let runtime = runtime(bus, name).await?;
    Ok(IpsetView { permanent, runtime })
}

/// Makes or replaces sets in both configurations, with at most one reload.
pub(super) async fn set(bus: &Bus, sets: &BTreeMap<String, IpsetSettings>) -> HostResult<()> {
    let mut due = false;
    for (name, wanted) in sets {
        let settings = write(name, wanted);
        match object(bus, name).await? {
            Some(path) => {
                bus.call(permanent(&path), "update", &(settings,)).await?;
            }
            None => {
                bus.call(CONFIG, "addIPSet", &(name, settings)).await?;
            }
        }
        let same = |running: IpsetSettings| {
            running.kind == wanted.kind && running.options == wanted.options
        };
        due |= !runtime(bus, name).await?.is_some_and(same);
    }
    if due {
        reload(bus, Ours::Ipsets(sets)).await?;
    }
    // After a reload too: with `FlushAllOnReload=no` firewalld restores the old entries.
    for (name, wanted) in sets {
        set_entries(bus, name, &wanted.entries).await?;
    }
    Ok(())
}

pub(super) async fn remove(bus: &Bus, name: &str) -> HostResult<()> {
    if let Some(path) = object(bus, name).await? {
        bus.call(permanent(&path), "remove", &()).await?;
    }
    if runtime(bus, name).await?.is_some() {
        reload(bus, Ours::Gone).await?;
    }
    Ok(())
}

/// The entries of the running sets except `ours`, by set. firewalld shows no entries of a set with
/// a time limit, and preserves these itself.
pub(super) async fn entries(bus: &Bus, ours: Ours<'_>) -> HostResult<Vec<(String, Vec<String>)>> {
    let names: Vec<String> = bus
        .call(RUNTIME, "getIPSets", &())
        .await?
        .body()
        .deserialize()
        .map_err(unreadable("getIPSets"))?;
    let mut all = Vec::new();
    for name in names {
        if matches!(ours, Ours::Ipsets(sets) if sets.contains_key(&name)) {
            continue;
        }
        if let Some(settings) = runtime(bus, &name).await?
            && !settings.options.contains_key("timeout")
        {
            all.push((name, settings.entries));
        }
    }
    Ok(all)
}

/// Makes the entries of a running set exactly these; a missing set stays missing.
pub(super) async fn set_entries(bus: &Bus, name: &str, wanted: &[String]) -> HostResult<()> {
    let Some(running) = runtime(bus, name).await? else {
        return Ok(());
    };
    let old: BTreeSet<&String> = running.entries.iter().collect();
    let new: BTreeSet<&String> = wanted.iter().collect();
    for entry in old.difference(&new) {
        bus.call(RUNTIME, "removeEntry", &(name, entry)).await?;
    }
    for entry in new.difference(&old) {
        bus.call(RUNTIME, "addEntry", &(name, entry)).await?;
    }
    Ok(())
}

fn permanent(path: &OwnedObjectPath) -> Object<'_> {
    Object {
        service: SERVICE,
        path: path.as_str(),
        interface: PERMANENT,
    }
}

/// The permanent object with this name.
async fn object(bus: &Bus, name: &str) -> HostResult<Option<OwnedObjectPath>> {
    match bus.try_call(CONFIG, "getIPSetByName", &(name,)).await? {
        Ok(reply) => reply
            .body()
            .deserialize()
            .map(Some)
            .map_err(unreadable(name)),
        Err((_, text)) => missing(name, &text),
    }
}

async fn runtime(bus: &Bus, name: &str) -> HostResult<Option<IpsetSettings>> {
    match bus.try_call(RUNTIME, "getIPSetSettings", &(name,)).await? {
        Ok(reply) => {
            let settings = reply.body().deserialize().map_err(unreadable(name))?;
            Ok(Some(read(settings)))
        }
        Err((_, text)) => missing(name, &text),
    }
}

/// `None` if firewalld reports that the set does not exist.
fn missing<T>(name: &str, text: &str) -> HostResult<Option<T>> {
    if text.contains("INVALID_IPSET") {
        return Ok(None);
    }
    Err(HostError::refused(format!("firewalld: {name}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_are_read_again() {
        let set = IpsetSettings {
            kind: "hash:ip".into(),
            options: BTreeMap::from([("family".into(), "inet".into())]),
            entries: vec!["10.0.0.1".into(), "10.0.0.2".into()],
        };
        assert_eq!(read(write("s", &set)), set);
    }

    /// firewalld's signature is `(ssssa{ss}as)`, one structure, in both directions.
    #[test]
    fn settings_are_one_argument() {
        let settings = write(
            "s",
            &IpsetSettings {
                kind: "hash:ip".into(),
                options: BTreeMap::new(),
                entries: vec!["10.0.0.1".into()],
            },
        );
        let signature = |message: &zbus::Message| message.body().signature().to_string();
        let call = || zbus::Message::method_call("/", "update");
        let update = call().build(&(settings.clone(),)).unwrap();
        assert_eq!(signature(&update), "(ssssa{ss}as)");
        let sent: Settings = update.body().deserialize().unwrap();
        assert_eq!(sent, settings);
        let add = call().build(&("s", settings)).unwrap();
        assert_eq!(signature(&add), "(s(ssssa{ss}as))");
    }
}
