//! Grains: what this host says of itself, under Salt's names.
//!
//! Everything comes from `/proc`, `/sys`, `/etc` and the host's own tools; nothing is asked of the network. Salt's meanings
//! hold (`salt/grains/core.py`); `routes`, `ip4_routes`, `disk_free`, `cgroup_version` and `halite_version` are our own.

mod network;
mod system;

use serde_json::{Map, Value, json};

/// Grains that change all the time: no reason to tell the master that something changed.
const VOLATILE: &[&str] = &["disk_free"];

/// All grains. `id` is the minion's id; empty: the host's name.
pub async fn collect(id: &str) -> Value {
    let mut grains = Map::new();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let id = if id.is_empty() { &name } else { id };
    grains.insert("id".to_owned(), json!(id));
    grains.insert("halite_version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    system::add(&mut grains, &name).await;
    network::add(&mut grains).await;
    Value::Object(grains)
}

/// Whether something changed that a state could depend on.
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
        let grains = collect("me").await;
        assert_eq!(grains["id"], "me");
        for key in ["os", "os_family", "kernel", "kernelrelease", "cpuarch", "nodename", "host"] {
            assert!(grains[key].as_str().is_some_and(|v| !v.is_empty()), "{key}: {}", grains[key]);
        }
        assert!(grains["num_cpus"].as_u64().unwrap() >= 1);
        assert!(grains["mem_total"].as_u64().unwrap() > 0);
        assert!(grains["ip4_interfaces"].is_object() && grains["ipv4"].is_array());
        assert!(grains["dns"]["nameservers"].is_array());
    }

    #[test]
    fn free_space_is_no_news() {
        let (a, b) = (json!({"a": 1, "disk_free": {"/": 1}}), json!({"a": 1, "disk_free": {"/": 2}}));
        assert!(!differ(&a, &b));
        assert!(differ(&a, &json!({"a": 2})));
    }
}
