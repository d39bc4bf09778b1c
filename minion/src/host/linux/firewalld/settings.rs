//! Settings in firewalld's own keys and types, and in ours.

use std::collections::HashMap;

use zbus::{OwnedVariant, Variant};

use super::FirewallKind;
use crate::host::effect::FirewallSettings;

/// Settings in the form in which firewalld sends and receives them.
pub(super) type Settings = HashMap<String, OwnedVariant>;

/// The settings that firewalld can change at run time.
pub(super) fn changeable(kind: FirewallKind, settings: Settings) -> Settings {
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
    // firewalld returns rules in any order, and the order within a list has no meaning.
    if let Some(rules) = kept.get(kind.rich_rules()).map(texts) {
        kept.insert(kind.rich_rules().to_owned(), list_of(&rules));
    }
    kept
}

/// firewalld's own name of a target; an empty one is the default of its kind.
pub(super) fn normal_target(kind: FirewallKind, target: &str) -> String {
    match (kind, target) {
        (FirewallKind::Zone, "") => "default",
        (FirewallKind::Policy, "") => "CONTINUE",
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

/// firewalld's keys and values as settings.
pub(super) fn read(kind: FirewallKind, settings: &Settings) -> FirewallSettings {
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

/// firewalld's own keys and types. `whole` adds the ones that only the permanent configuration has.
pub(super) fn write(
    kind: FirewallKind,
    name: &str,
    settings: &FirewallSettings,
    whole: bool,
) -> Settings {
    let ports: Vec<(String, String)> = settings
        .ports
        .iter()
        .map(|p| {
            p.split_once('/')
                .map_or((p.clone(), "tcp".to_owned()), |(a, b)| {
                    (a.to_owned(), b.to_owned())
                })
        })
        .collect();
    let mut sent = Settings::from([
        ("services".to_owned(), list_of(&settings.services)),
        ("ports".to_owned(), owned(Variant::from(ports))),
        ("protocols".to_owned(), list_of(&settings.protocols)),
        (kind.rich_rules().to_owned(), list_of(&settings.rich_rules)),
        ("masquerade".to_owned(), settings.masquerade.into()),
    ]);
    match kind {
        FirewallKind::Zone => {
            sent.insert("sources".to_owned(), list_of(&settings.sources));
            sent.insert("interfaces".to_owned(), list_of(&settings.interfaces));
            sent.insert("forward".to_owned(), settings.forward.into());
        }
        FirewallKind::Policy => {
            sent.insert("ingress_zones".to_owned(), list_of(&settings.ingress_zones));
            sent.insert("egress_zones".to_owned(), list_of(&settings.egress_zones));
        }
    }
    if whole {
        let target = match (kind, normal_target(kind, &settings.target)) {
            (FirewallKind::Zone, target) if target == "REJECT" => "%%REJECT%%".to_owned(),
            (_, target) => target,
        };
        sent.insert("target".to_owned(), owned(Variant::from(target)));
        sent.insert("short".to_owned(), owned(Variant::from(name.to_owned())));
        sent.insert(
            "description".to_owned(),
            owned(Variant::from(settings.description.clone())),
        );
        if let (FirewallKind::Policy, Some(priority)) = (kind, settings.priority) {
            sent.insert("priority".to_owned(), priority.into());
        }
    }
    sent
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
    fn written_settings_are_read_again() {
        let zone = FirewallSettings {
            sources: vec!["10.0.0.0/8".into()],
            interfaces: vec!["cni0".into()],
            forward: true,
            ..sample()
        };
        assert_eq!(
            read(
                FirewallKind::Zone,
                &write(FirewallKind::Zone, "z", &zone, true)
            ),
            zone
        );
        let policy = FirewallSettings {
            ingress_zones: vec!["ANY".into()],
            egress_zones: vec!["HOST".into()],
            priority: Some(-10),
            ..sample()
        };
        assert_eq!(
            read(
                FirewallKind::Policy,
                &write(FirewallKind::Policy, "p", &policy, true)
            ),
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
            read(
                FirewallKind::Zone,
                &write(FirewallKind::Zone, "z", &zone, true)
            )
            .target,
            "default"
        );
        let reject = FirewallSettings {
            target: "REJECT".into(),
            ..sample()
        };
        let sent = write(FirewallKind::Zone, "z", &reject, true);
        assert_eq!(<&str>::try_from(&sent["target"]).unwrap(), "%%REJECT%%");
        assert_eq!(read(FirewallKind::Zone, &sent).target, "REJECT");
    }

    #[test]
    fn only_lists_and_switches_go_to_the_running_firewall() {
        let sent = write(FirewallKind::Policy, "p", &sample(), false);
        for key in ["target", "short", "description", "priority"] {
            assert!(!sent.contains_key(key), "{key} is refused at run time");
        }
    }
}
