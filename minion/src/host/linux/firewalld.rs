//! firewalld over D-Bus (firewalld.dbus(5)): the permanent configuration first, then the running
//! one.
//!
//! firewalld 1.3 can change lists and switches of a known zone or policy at run time, but makes new
//! ones, removes them, and takes a new target or priority only by a reload, which forgets what
//! others have set at run time. So a reload is made only when one of those is due, and what the
//! other zones and policies had at run time is put back after it.

use std::collections::HashMap;

use zbus::{OwnedObjectPath, OwnedVariant, Variant};

use super::bus::{Bus, Object, unreadable};
use crate::host::effect::{FirewallChange, FirewallSettings};
use crate::host::{FirewallNames, FirewallView, HostError, HostResult};

const SERVICE: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const CONFIG: Object<'static> = Object {
    service: SERVICE,
    path: "/org/fedoraproject/FirewallD1/config",
    interface: "org.fedoraproject.FirewallD1.config",
};

type Settings = HashMap<String, OwnedVariant>;

/// A zone or a policy: what differs between the two in firewalld's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// firewalld.zone(5)
    Zone,
    /// firewalld.policy(5)
    Policy,
}

impl Kind {
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

    fn rich_rules(self) -> &'static str {
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
pub async fn view(bus: &Bus, kind: Kind, name: &str) -> HostResult<FirewallView> {
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
        // Text for people: it cannot be set at run time and filters nothing.
        runtime.description.clone_from(&permanent.description);
    }
    Ok(FirewallView { permanent, runtime })
}

/// Names of all zones and policies.
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
        list(Kind::Zone.runtime(), "getZones").await?,
    );
    let policies = merged(
        list(CONFIG, "getPolicyNames").await?,
        list(Kind::Policy.runtime(), "getPolicies").await?,
    );
    Ok(FirewallNames { zones, policies })
}

/// Carries out one change in both configurations.
///
/// # Errors
/// firewalld is not running, or refuses; its own error names the setting.
pub async fn change(bus: &Bus, change: &FirewallChange) -> HostResult<()> {
    match change {
        FirewallChange::Zone { name, settings } => set(bus, Kind::Zone, name, settings).await,
        FirewallChange::Policy { name, settings } => set(bus, Kind::Policy, name, settings).await,
        FirewallChange::RemoveZone { name } => remove(bus, Kind::Zone, name).await,
        FirewallChange::RemovePolicy { name } => remove(bus, Kind::Policy, name).await,
    }
}

async fn set(bus: &Bus, kind: Kind, name: &str, wanted: &FirewallSettings) -> HostResult<()> {
    let all = write(kind, name, wanted, true);
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
            let add = if kind == Kind::Zone {
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
        Some(running) if fixed(&running) == fixed(wanted) => {
            let changeable = write(kind, name, wanted, false);
            set_runtime(bus, kind, name, &changeable).await
        }
        _ => reload(bus, Some((kind, name))).await,
    }
}

async fn remove(bus: &Bus, kind: Kind, name: &str) -> HostResult<()> {
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
        reload(bus, Some((kind, name))).await
    } else {
        Ok(())
    }
}

/// Reloads and puts back what all but `ours` had at run time.
async fn reload(bus: &Bus, ours: Option<(Kind, &str)>) -> HostResult<()> {
    let mut before = Vec::new();
    for (kind, list) in [(Kind::Zone, "getZones"), (Kind::Policy, "getPolicies")] {
        let names: Vec<String> = bus
            .call(kind.runtime(), list, &())
            .await?
            .body()
            .deserialize()
            .map_err(unreadable(list))?;
        for name in names
            .into_iter()
            .filter(|n| ours != Some((kind, n.as_str())))
        {
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

/// What can be changed at run time, of what firewalld says.
fn changeable(kind: Kind, settings: Settings) -> Settings {
    let fixed = [
        "version",
        "short",
        "description",
        "target",
        "priority",
        "UNUSED",
        "ingress_priority",
        "egress_priority",
    ];
    let mut kept: Settings = settings
        .into_iter()
        .filter(|(key, _)| !fixed.contains(&key.as_str()))
        .collect();
    // firewalld hands out rules of other zones' policies in any order; the order of rules in one
    // list has no meaning.
    if let Some(rules) = kept.get(kind.rich_rules()).map(texts) {
        kept.insert(kind.rich_rules().to_owned(), list_of(&rules));
    }
    kept
}

async fn set_runtime(bus: &Bus, kind: Kind, name: &str, settings: &Settings) -> HostResult<()> {
    let method = if kind == Kind::Zone {
        "setZoneSettings2"
    } else {
        "setPolicySettings"
    };
    bus.call(kind.runtime(), method, &(name, settings))
        .await
        .map(drop)
}

/// The permanent object of that name.
async fn object(bus: &Bus, kind: Kind, name: &str) -> HostResult<Option<OwnedObjectPath>> {
    let method = if kind == Kind::Zone {
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
        Err((_, text)) => Err(HostError(format!("firewalld: {name}: {text}"))),
    }
}

async fn runtime(bus: &Bus, kind: Kind, name: &str) -> HostResult<Option<Settings>> {
    let method = if kind == Kind::Zone {
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
        Err((_, text)) => Err(HostError(format!("firewalld: {name}: {text}"))),
    }
}

/// firewalld's own name of a target; an empty one is the default of its kind.
fn normal_target(kind: Kind, target: &str) -> String {
    match (kind, target) {
        (Kind::Zone, "") => "default",
        (Kind::Policy, "") => "CONTINUE",
        (_, "%%REJECT%%") => "REJECT",
        (_, other) => other,
    }
    .to_owned()
}

fn texts(value: &OwnedVariant) -> Vec<String> {
    let mut list: Vec<String> = value
        .try_clone()
        .ok()
        .and_then(|v| Vec::<String>::try_from(v).ok())
        .unwrap_or_default();
    list.sort();
    list
}

fn list_of(items: &[String]) -> OwnedVariant {
    owned(Variant::from(items.to_vec()))
}

/// Strings, numbers and lists of them always convert: only file descriptors do not.
fn owned(value: Variant<'_>) -> OwnedVariant {
    value
        .try_into_owned()
        .unwrap_or_else(|_| OwnedVariant::from(false))
}

fn read(kind: Kind, settings: &Settings) -> FirewallSettings {
    let text = |key: &str| {
        settings
            .get(key)
            .and_then(|v| <&str>::try_from(v).ok())
            .unwrap_or_default()
    };
    let list = |key: &str| settings.get(key).map(texts).unwrap_or_default();
    let flag = |key: &str| {
        settings
            .get(key)
            .and_then(|v| bool::try_from(v).ok())
            .unwrap_or(false)
    };
    let ports: Vec<(String, String)> = settings
        .get("ports")
        .and_then(|v| v.try_clone().ok())
        .and_then(|v| v.try_into().ok())
        .unwrap_or_default();
    let mut ports: Vec<String> = ports
        .into_iter()
        .map(|(port, protocol)| format!("{port}/{protocol}"))
        .collect();
    ports.sort();
    FirewallSettings {
        description: text("description").to_owned(),
        target: normal_target(kind, text("target")),
        services: list("services"),
        ports,
        protocols: list("protocols"),
        sources: list("sources"),
        interfaces: list("interfaces"),
        rich_rules: list(kind.rich_rules()),
        masquerade: flag("masquerade"),
        forward: flag("forward"),
        ingress_zones: list("ingress_zones"),
        egress_zones: list("egress_zones"),
        priority: settings.get("priority").and_then(|v| i32::try_from(v).ok()),
    }
}

/// firewalld's own keys and types. `whole` adds what only the permanent configuration takes.
fn write(kind: Kind, name: &str, wanted: &FirewallSettings, whole: bool) -> Settings {
    let ports: Vec<(String, String)> = wanted
        .ports
        .iter()
        .map(|p| {
            p.split_once('/')
                .map_or((p.clone(), "tcp".to_owned()), |(a, b)| {
                    (a.to_owned(), b.to_owned())
                })
        })
        .collect();
    let mut settings = Settings::from([
        ("services".to_owned(), list_of(&wanted.services)),
        ("ports".to_owned(), owned(Variant::from(ports))),
        ("protocols".to_owned(), list_of(&wanted.protocols)),
        (kind.rich_rules().to_owned(), list_of(&wanted.rich_rules)),
        ("masquerade".to_owned(), wanted.masquerade.into()),
    ]);
    match kind {
        Kind::Zone => {
            settings.insert("sources".to_owned(), list_of(&wanted.sources));
            settings.insert("interfaces".to_owned(), list_of(&wanted.interfaces));
            settings.insert("forward".to_owned(), wanted.forward.into());
        }
        Kind::Policy => {
            settings.insert("ingress_zones".to_owned(), list_of(&wanted.ingress_zones));
            settings.insert("egress_zones".to_owned(), list_of(&wanted.egress_zones));
        }
    }
    if whole {
        let target = match (kind, normal_target(kind, &wanted.target)) {
            (Kind::Zone, target) if target == "REJECT" => "%%REJECT%%".to_owned(),
            (_, target) => target,
        };
        settings.insert("target".to_owned(), owned(Variant::from(target)));
        settings.insert("short".to_owned(), owned(Variant::from(name.to_owned())));
        settings.insert(
            "description".to_owned(),
            owned(Variant::from(wanted.description.clone())),
        );
        if let (Kind::Policy, Some(priority)) = (kind, wanted.priority) {
            settings.insert("priority".to_owned(), priority.into());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FirewallSettings {
        FirewallSettings {
            description: "d".into(),
            target: "ACCEPT".into(),
            services: vec!["ssh".into()],
            ports: vec!["6443/tcp".into(), "8472/udp".into()],
            rich_rules: vec!["rule family=\"ipv4\" accept".into()],
            masquerade: true,
            ..FirewallSettings::default()
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let zone = FirewallSettings {
            sources: vec!["10.0.0.0/8".into()],
            interfaces: vec!["cni0".into()],
            forward: true,
            ..sample()
        };
        assert_eq!(read(Kind::Zone, &write(Kind::Zone, "z", &zone, true)), zone);
        let policy = FirewallSettings {
            ingress_zones: vec!["ANY".into()],
            egress_zones: vec!["HOST".into()],
            priority: Some(-10),
            ..sample()
        };
        assert_eq!(
            read(Kind::Policy, &write(Kind::Policy, "p", &policy, true)),
            policy
        );
    }

    #[test]
    fn the_default_target_has_one_name_and_reject_has_firewallds_own() {
        let zone = FirewallSettings {
            target: String::new(),
            ..sample()
        };
        assert_eq!(
            read(Kind::Zone, &write(Kind::Zone, "z", &zone, true)).target,
            "default"
        );
        let reject = FirewallSettings {
            target: "REJECT".into(),
            ..sample()
        };
        let sent = write(Kind::Zone, "z", &reject, true);
        assert_eq!(<&str>::try_from(&sent["target"]).unwrap(), "%%REJECT%%");
        assert_eq!(read(Kind::Zone, &sent).target, "REJECT");
    }

    #[test]
    fn only_lists_and_switches_go_to_the_running_firewall() {
        let sent = write(Kind::Policy, "p", &sample(), false);
        for key in ["target", "short", "description", "priority"] {
            assert!(!sent.contains_key(key), "{key} is refused at run time");
        }
    }
}
