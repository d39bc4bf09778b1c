//! The registrations of a site's hosts: no host is registered partly, or twice.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{KeyList, KeyState, MinionKey};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use crate::ctl_answer;

/// Limit for systemd to restart a killed program, and for that program to answer.
const ANSWER: Duration = Duration::from_secs(180);

/// The items of a list that kubectl prints.
pub fn items(bootstrap: &Host, args: &[&str]) -> Result<Vec<Value>> {
    let text = bootstrap.run(&[&["kubectl"], args, &["-o", "json"]].concat())?;
    let list: Value = serde_json::from_str(&text).context("kubectl did not print JSON")?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// All keys that the master has.
pub fn keys(bootstrap: &Host) -> Result<Vec<MinionKey>> {
    let list: KeyList = ctl_answer::of(bootstrap, &["key", "list"])?;
    Ok(list.keys)
}

/// Waits until the master answers, even if the minions do not.
pub fn master_answers(bootstrap: &Host) -> Result<()> {
    wait::until("the master to answer", ANSWER, || keys(bootstrap).map(drop))
}

/// Waits for one key, accepted and connected, and one Ready node for each of `hosts` (sorted), and
/// no others: a minion whose program was replaced last connects again two seconds after its return.
pub fn once(bootstrap: &Host, hosts: &[&str]) -> Result<()> {
    wait::until("each host to be registered once", ANSWER, || {
        is_once(bootstrap, hosts)
    })
}

fn is_once(bootstrap: &Host, hosts: &[&str]) -> Result<()> {
    let keys = keys(bootstrap)?;
    let good = |key: &&MinionKey| key.state == KeyState::Accepted && key.connected;
    let mut names: Vec<&str> = keys
        .iter()
        .filter(good)
        .map(|key| key.minion.as_str())
        .collect();
    names.sort_unstable();
    ensure!(
        names == hosts && keys.len() == hosts.len(),
        "not one good key for each host: {keys:#?}"
    );
    let nodes = items(bootstrap, &["get", "nodes"])?;
    let ready = |node: &&Value| {
        let conditions = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let mut names: Vec<&str> = nodes
        .iter()
        .filter(ready)
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    names.sort_unstable();
    ensure!(
        names == hosts && nodes.len() == hosts.len(),
        "not one Ready node for each host: {nodes:#?}"
    );
    Ok(())
}
