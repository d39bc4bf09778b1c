//! Damages of the firewall: in the running configuration on one host, in the permanent one on the
//! other.

use halite_lab::cluster::{BOOTSTRAP, WORKER};
use serde_json::{Map, Value};

use super::damage::{Foreign, ObjectDamage, quote};
use super::low::{Low, LowStateEntry};

/// Damages of every zone and policy of Halite; additions too if Halite owns the whole object.
pub fn damages(low: &Low) -> Vec<ObjectDamage> {
    let mut all: Vec<ObjectDamage> = low.0.iter().filter_map(damage).collect();
    // If a zone that a policy names is missing, firewall-cmd changes nothing more in the permanent
    // configuration: delete zones last.
    all.sort_by_key(|damage| damage.line.contains("--delete-zone"));
    all
}

fn damage(state: &LowStateEntry) -> Option<ObjectDamage> {
    let name = quote(&state.name);
    let runtime = state.minion == BOOTSTRAP;
    let permanent = if runtime { "" } else { "--permanent " };
    let (what, line) = match (state.function.as_str(), first(state, "rich_rules"), runtime) {
        ("firewalld.policy", Some(rule), _) => {
            let rule = quote(rule);
            let port = "--add-rich-rule='rule family=\"ipv4\" source address=\"10.10.0.0/16\" port port=\"9\" protocol=\"tcp\" accept'";
            let edit = format!(
                "firewall-cmd -q {permanent}--policy={name} --remove-rich-rule={rule} && firewall-cmd -q {permanent}--policy={name} {port}"
            );
            ("one rule less, one more", edit)
        }
        ("firewalld.policy", None, true) => (
            "no egress zone now",
            format!("firewall-cmd -q --policy={name} --remove-egress-zone=ANY"),
        ),
        ("firewalld.policy", None, false) => (
            "another target at boot",
            format!("firewall-cmd -q --permanent --policy={name} --set-target=DROP"),
        ),
        ("firewalld.zone", _, true) => {
            let interface = first(state, "interfaces").unwrap_or("lo");
            (
                "an interface less",
                format!("firewall-cmd -q --zone={name} --remove-interface={interface}"),
            )
        }
        ("firewalld.zone", _, false) => (
            "gone at boot",
            format!("firewall-cmd -q --permanent --delete-zone={name}"),
        ),
        ("firewalld.ipsets", ..) => {
            let (set, entry) = first_entry(state)?;
            let edit = format!(
                "firewall-cmd -q {permanent}--ipset={set} --remove-entry={entry} && firewall-cmd -q {permanent}--ipset={set} --add-entry=192.0.2.9"
            );
            ("one address less, one more", edit)
        }
        ("firewalld.owned", _, true) => (
            "a zone of an earlier version",
            "firewall-cmd -q --permanent --new-zone=halite-earlier".to_owned(),
        ),
        ("firewalld.owned", _, false) => (
            "a policy of an earlier version",
            "firewall-cmd -q --permanent --new-policy=halite-earlier".to_owned(),
        ),
        _ => return None,
    };
    let probe = match state.function.as_str() {
        "firewalld.policy" => probe("policy", "getPolicySettings", "policies", &state.name),
        "firewalld.zone" => probe("zone", "getZoneSettings2", "zones", &state.name),
        "firewalld.ipsets" => sets(state)?
            .keys()
            .map(|name| probe("ipset", "getIPSetSettings", "ipsets", name))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => "ls /etc/firewalld/zones /etc/firewalld/policies | grep 'halite-.*[.]xml$'".to_owned(),
    };
    Some(ObjectDamage::new(state, what, line, probe))
}

fn first<'a>(state: &'a LowStateEntry, key: &str) -> Option<&'a str> {
    state
        .args
        .get(key)
        .and_then(Value::as_array)
        .and_then(|list| list.first())
        .and_then(Value::as_str)
}

fn sets(state: &LowStateEntry) -> Option<&Map<String, Value>> {
    state.args.get("sets").and_then(Value::as_object)
}

/// The first set of the state, with its first address.
fn first_entry(state: &LowStateEntry) -> Option<(&str, &str)> {
    let (name, entries) = sets(state)?.iter().next()?;
    Some((name, entries.as_array()?.first()?.as_str()?))
}

/// Prints both configurations, with lists sorted: the order of rules has no meaning.
fn probe(kind: &str, method: &str, directory: &str, name: &str) -> String {
    format!(
        "busctl --json=pretty call org.fedoraproject.FirewallD1 /org/fedoraproject/FirewallD1 \
         org.fedoraproject.FirewallD1.{kind} {method} s {name} | sed 's/,$//' | sort\n\
         sort /etc/firewalld/{directory}/{name}.xml"
    )
}

/// An operator's own settings: a zone, a port of a zone only at run time, another only in the
/// permanent configuration.
pub fn foreign() -> Vec<Foreign> {
    [BOOTSTRAP, WORKER]
        .into_iter()
        .flat_map(foreign_of)
        .collect()
}

fn foreign_of(host: &str) -> [Foreign; 3] {
    let foreign = |what, add: &str, probe: &str, remove: &str| Foreign {
        host: host.to_owned(),
        what,
        add: add.to_owned(),
        probe: probe.to_owned(),
        remove: remove.to_owned(),
    };
    [
        foreign(
            "a zone",
            "firewall-cmd -q --permanent --new-zone=operator && firewall-cmd -q --permanent --zone=operator --add-source=192.0.2.0/24 && firewall-cmd -q --reload",
            "firewall-cmd --zone=operator --list-sources && cat /etc/firewalld/zones/operator.xml",
            "firewall-cmd -q --permanent --delete-zone=operator && firewall-cmd -q --reload",
        ),
        foreign(
            "a port at run time",
            "firewall-cmd -q --zone=public --add-port=7771/tcp",
            "firewall-cmd --zone=public --query-port=7771/tcp",
            "firewall-cmd -q --zone=public --remove-port=7771/tcp",
        ),
        foreign(
            "a port at the next boot",
            "firewall-cmd -q --permanent --zone=public --add-port=7772/tcp",
            "firewall-cmd --permanent --zone=public --query-port=7772/tcp && ! firewall-cmd -q --zone=public --query-port=7772/tcp",
            "firewall-cmd -q --permanent --zone=public --remove-port=7772/tcp",
        ),
    ]
}
