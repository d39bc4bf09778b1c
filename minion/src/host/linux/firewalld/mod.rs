//! firewalld over D-Bus (firewalld.dbus(5)): the permanent configuration first, then the running
//! one.
//!
//! firewalld 1.3 can change lists and switches of a known zone or policy at run time, but creates
//! or removes them, and changes their target or priority, only by a reload, which discards the
//! run-time settings of all zones and policies. So the minion reloads only for one of those
//! changes, and then restores the run-time settings of the other zones and policies, and the
//! entries of sets of addresses.

mod ipset;
mod settings;

use std::collections::BTreeMap;

use zbus::OwnedObjectPath;

use self::settings::{Settings, changeable, normal_target, read, write};
use super::bus::{Bus, Object, unreadable};
use crate::host::effect::{FirewallChange, FirewallSettings, IpsetSettings};
use crate::host::{FirewallNames, FirewallView, HostError, HostResult};

pub use self::ipset::view as ipset_view;

const SERVICE: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const CONFIG: Object<'static> = Object {
    service: SERVICE,
    path: "/org/fedoraproject/FirewallD1/config",
    interface: "org.fedoraproject.FirewallD1.config",
};

/// A zone or a policy, and the differences between the two in firewalld's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallKind {
    /// firewalld.zone(5)
    Zone,
    /// firewalld.policy(5)
    Policy,
}

impl FirewallKind {
    fn runtime(self) -> Object<'static> {
        let interface = match self {
            Self::Zone => "org.fedoraproject.FirewallD1.zone",
            Self::Policy => "org.fedoraproject.FirewallD1.policy",
        };
        Object {
            service: SERVICE,
            path: PATH,
            interface,
        }
    }

    /// The interface of a permanent object, and its methods to read and replace.
    fn permanent(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Zone => (
                "org.fedoraproject.FirewallD1.config.zone",
                "getSettings2",
                "update2",
            ),
            Self::Policy => (
                "org.fedoraproject.FirewallD1.config.policy",
                "getSettings",
                "update",
            ),
        }
    }

    pub(super) fn rich_rules(self) -> &'static str {
        if self == Self::Zone {
            "rules_str"
        } else {
            "rich_rules"
        }
    }
}

/// Permanent and runtime settings of one zone or policy.
///
/// # Errors
/// firewalld is not running, or refuses.
pub async fn view(bus: &Bus, kind: FirewallKind, name: &str) -> HostResult<FirewallView> {
    let permanent = match object(bus, kind, name).await? {
        None => None,
        Some(path) => {
            let (interface, get, _) = kind.permanent();
            let reply = bus
                .call(
                    Object {
                        service: SERVICE,
                        path: path.as_str(),
                        interface,
                    },
                    get,
                    &(),
                )
                .await?;
            Some(read(
                kind,
                &reply.body().deserialize().map_err(unreadable(name))?,
            ))
        }
    };
    let mut runtime = runtime(bus, kind, name)
        .await?
        .map(|settings| read(kind, &settings));
    if let (Some(runtime), Some(permanent)) = (&mut runtime, &permanent) {
        // Text for display: it cannot be set at run time and filters nothing.
        runtime.description.clone_from(&permanent.description);
    }
    Ok(FirewallView { permanent, runtime })
}

/// Names of all zones, policies and sets of addresses.
///
/// # Errors
/// firewalld is not running, or refuses.
pub async fn names(bus: &Bus) -> HostResult<FirewallNames> {
    let list = async |object: Object<'_>, method: &str| -> HostResult<Vec<String>> {
        bus.call(object, method, &())
            .await?
            .body()
            .deserialize()
            .map_err(unreadable(method))
    };
    let merged = |mut one: Vec<String>, other: Vec<String>| {
        one.extend(other);
        one.sort();
        one.dedup();
        one
    };
    let zones = merged(
        list(CONFIG, "getZoneNames").await?,
        list(FirewallKind::Zone.runtime(), "getZones").await?,
    );
    let policies = merged(
        list(CONFIG, "getPolicyNames").await?,
        list(FirewallKind::Policy.runtime(), "getPolicies").await?,
    );
    let ipsets = merged(
        list(CONFIG, "getIPSetNames").await?,
        list(ipset::RUNTIME, "getIPSets").await?,
    );
    Ok(FirewallNames {
        zones,
        policies,
        ipsets,
    })
}

/// Carries out one change in both configurations.
///
/// # Errors
/// firewalld is not running, or refuses; its own error names the setting.
pub async fn change(bus: &Bus, change: &FirewallChange) -> HostResult<()> {
    match change {
        FirewallChange::Zone { name, settings } => {
            set(bus, FirewallKind::Zone, name, settings).await
        }
        FirewallChange::Policy { name, settings } => {
            set(bus, FirewallKind::Policy, name, settings).await
        }
        FirewallChange::RemoveZone { name } => remove(bus, FirewallKind::Zone, name).await,
        FirewallChange::RemovePolicy { name } => remove(bus, FirewallKind::Policy, name).await,
        FirewallChange::Ipsets { sets } => ipset::set(bus, sets).await,
        FirewallChange::RemoveIpset { name } => ipset::remove(bus, name).await,
    }
}

async fn set(
    bus: &Bus,
    kind: FirewallKind,
    name: &str,
    settings: &FirewallSettings,
) -> HostResult<()> {
    let all = write(kind, name, settings, true);
    match object(bus, kind, name).await? {
        Some(path) => {
            let (interface, _, update) = kind.permanent();
            bus.call(
                Object {
                    service: SERVICE,
                    path: path.as_str(),
                    interface,
                },
                update,
                &(all,),
            )
            .await?;
        }
        None => {
            let add = if kind == FirewallKind::Zone {
                "addZone2"
            } else {
                "addPolicy"
            };
            bus.call(CONFIG, add, &(name, all)).await?;
        }
    }
    let running = runtime(bus, kind, name)
        .await?
        .map(|settings| read(kind, &settings));
    let fixed = |s: &FirewallSettings| (normal_target(kind, &s.target), s.priority);
    match running {
        Some(running) if fixed(&running) == fixed(settings) => {
            let changeable = write(kind, name, settings, false);
            set_runtime(bus, kind, name, &changeable).await
        }
        _ => reload(bus, Ours::One(kind, name)).await,
    }
}

async fn remove(bus: &Bus, kind: FirewallKind, name: &str) -> HostResult<()> {
    if let Some(path) = object(bus, kind, name).await? {
        let interface = kind.permanent().0;
        bus.call(
            Object {
                service: SERVICE,
                path: path.as_str(),
                interface,
            },
            "remove",
            &(),
        )
        .await?;
    }
    if runtime(bus, kind, name).await?.is_some() {
        reload(bus, Ours::One(kind, name)).await
    } else {
        Ok(())
    }
}

/// The settings that a reload should take from the permanent configuration.
#[derive(Clone, Copy)]
pub(super) enum Ours<'a> {
    /// A zone or a policy.
    One(FirewallKind, &'a str),
    /// Sets of addresses.
    Ipsets(&'a BTreeMap<String, IpsetSettings>),
    /// A set of addresses that is being removed.
    Gone,
}

impl Ours<'_> {
    fn is(self, kind: FirewallKind, name: &str) -> bool {
        matches!(self, Self::One(own, known) if (own, known) == (kind, name))
    }
}

/// Reloads, and restores all run-time settings except `ours`.
async fn reload(bus: &Bus, ours: Ours<'_>) -> HostResult<()> {
    let sets = ipset::entries(bus, ours).await?;
    let mut before = Vec::new();
    for (kind, list) in [
        (FirewallKind::Zone, "getZones"),
        (FirewallKind::Policy, "getPolicies"),
    ] {
        let names: Vec<String> = bus
            .call(kind.runtime(), list, &())
            .await?
            .body()
            .deserialize()
            .map_err(unreadable(list))?;
        for name in names.into_iter().filter(|n| !ours.is(kind, n)) {
            if let Some(settings) = runtime(bus, kind, &name).await? {
                before.push((kind, name, changeable(kind, settings)));
            }
        }
    }
    bus.call(
        Object {
            service: SERVICE,
            path: PATH,
            interface: SERVICE,
        },
        "reload",
        &(),
    )
    .await?;
    for (name, entries) in sets {
        ipset::set_entries(bus, &name, &entries).await?;
    }
    for (kind, name, settings) in before {
        let Some(now) = runtime(bus, kind, &name).await? else {
            continue;
        };
        if changeable(kind, now) != settings {
            set_runtime(bus, kind, &name, &settings).await?;
        }
    }
    Ok(())
}

async fn set_runtime(
    bus: &Bus,
    kind: FirewallKind,
    name: &str,
    settings: &Settings,
) -> HostResult<()> {
    let method = if kind == FirewallKind::Zone {
        "setZoneSettings2"
    } else {
        "setPolicySettings"
    };
    bus.call(kind.runtime(), method, &(name, settings))
        .await
        .map(drop)
}

/// The permanent object with this name.
async fn object(bus: &Bus, kind: FirewallKind, name: &str) -> HostResult<Option<OwnedObjectPath>> {
    let method = if kind == FirewallKind::Zone {
        "getZoneByName"
    } else {
        "getPolicyByName"
    };
    match bus.try_call(CONFIG, method, &(name,)).await? {
        Ok(reply) => reply
            .body()
            .deserialize()
            .map(Some)
            .map_err(unreadable(name)),
        Err((_, text)) if text.contains("INVALID_ZONE") || text.contains("INVALID_POLICY") => {
            Ok(None)
        }
        Err((_, text)) => Err(HostError::refused(format!("firewalld: {name}: {text}"))),
    }
}

async fn runtime(bus: &Bus, kind: FirewallKind, name: &str) -> HostResult<Option<Settings>> {
    let method = if kind == FirewallKind::Zone {
        "getZoneSettings2"
    } else {
        "getPolicySettings"
    };
    match bus.try_call(kind.runtime(), method, &(name,)).await? {
        Ok(reply) => reply
            .body()
            .deserialize()
            .map(Some)
            .map_err(unreadable(name)),
        Err((_, text)) if text.contains("INVALID_ZONE") || text.contains("INVALID_POLICY") => {
            Ok(None)
        }
        Err((_, text)) => Err(HostError::refused(format!("firewalld: {name}: {text}"))),
    }
}
