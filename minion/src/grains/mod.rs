//! Grains: facts about this host, under Salt's names.
//!
//! The sources are `/proc`, `/sys`, `/etc` and the host's own tools, never the network. Salt's
//! meanings hold (`salt/grains/core.py`); `routes`, `ip4_routes`, `disk_free`, `cgroup_version`,
//! `halite_version`, `reports`, `etcd`, `minion_program` and `minion_update` are our own.

mod etcd;
mod network;
mod program;
mod reports;
mod system;
mod update;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use halite_host_reports::{GRAIN, etcd as member, update as minion_update};
use halite_proto::ids::MinionId;
use serde_json::{Map, Value, json};

/// Grains that always change: they alone do not cause the grains to be sent to the master.
const VOLATILE: &[&str] = &["disk_free"];

/// All grains. `id` is the minion's id; `None`: the host's name. Scheduled work leaves its reports
/// in `reports`.
pub async fn collect(id: Option<&MinionId>, reports: &Path) -> Value {
    let mut grains = Map::new();
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let id = id.map_or(name.as_str(), MinionId::as_str);
    grains.insert("id".to_owned(), json!(id));
    grains.insert("halite_version".to_owned(), json!(crate::VERSION));
    system::add(&mut grains, &name).await;
    network::add(&mut grains).await;
    if let Some(reports) = reports::read(reports) {
        grains.insert(GRAIN.to_owned(), reports);
    }
    if let Some(found) = etcd::read(Path::new("/")) {
        grains.insert(member::GRAIN.to_owned(), found);
    }
    if let Some(program) = program::digest() {
        grains.insert(minion_update::PROGRAM.to_owned(), json!(program));
    }
    if let Some(reverted) = update::read(Path::new("/")) {
        grains.insert(minion_update::GRAIN.to_owned(), reverted);
    }
    Value::Object(grains)
}

/// The IPv4 addresses of this host at this moment. Cheap to call: no tool is started.
#[must_use]
pub fn local_addresses() -> Vec<Ipv4Addr> {
    network::addresses_of_this_host()
}

/// The IPv4 addresses in the network namespace of the calling thread. Cheap to call.
#[must_use]
pub fn addresses_of_this_thread() -> Vec<Ipv4Addr> {
    network::addresses_of_this_thread()
}

/// The MTU of the interface of each IPv4 address of this host. Cheap to call.
#[must_use]
pub fn mtus() -> BTreeMap<Ipv4Addr, u32> {
    network::mtus()
}

/// Returns whether these grains have the present reports of a directory, the present etcd member,
/// and the last update of the minion. Cheap to call.
#[must_use]
pub fn is_reported(grains: &Value, reports: &Path) -> bool {
    grains.get(GRAIN) == reports::read(reports).as_ref()
        && grains.get(member::GRAIN) == etcd::read(Path::new("/")).as_ref()
        && grains.get(minion_update::GRAIN) == update::read(Path::new("/")).as_ref()
}

/// Returns whether any grain differs that a state could depend on.
#[must_use]
pub fn differ(old: &Value, new: &Value) -> bool {
    let steady = |grains: &Value| {
        let mut grains = grains.clone();
        if let Value::Object(map) = &mut grains {
            map.retain(|key, _| !VOLATILE.contains(&key.as_str()));
        }
        grains
    };
    steady(old) != steady(new)
}

/// A file's text; empty when it cannot be read.
fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_host_has_what_templates_ask_for() {
        let me = "me".parse().unwrap();
        let grains = collect(Some(&me), Path::new("/nowhere")).await;
        assert_eq!(grains["id"], "me");
        for key in [
            "os",
            "os_family",
            "kernel",
            "kernelrelease",
            "cpuarch",
            "nodename",
            "host",
        ] {
            assert!(
                grains[key].as_str().is_some_and(|v| !v.is_empty()),
                "{key}: {}",
                grains[key]
            );
        }
        assert!(grains["num_cpus"].as_u64().unwrap() >= 1);
        assert!(grains["mem_total"].as_u64().unwrap() > 0);
        assert!(grains["ip4_interfaces"].is_object() && grains["ipv4"].is_array());
        assert!(grains["dns"]["nameservers"].is_array());
    }

    #[test]
    fn free_space_is_not_a_change() {
        let (a, b) = (
            json!({"a": 1, "disk_free": {"/": 1}}),
            json!({"a": 1, "disk_free": {"/": 2}}),
        );
        assert!(!differ(&a, &b));
        assert!(differ(&a, &json!({"a": 2})));
    }
}
