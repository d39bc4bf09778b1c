//! The question for the health of hosts, which only their minions know.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use halite_host_reports::health::{FUNCTION, HostHealth};
use halite_names::NodeName;
use halite_pillar::declaration::Declaration;
use serde_json::json;

use super::Jobs;

impl Jobs {
    /// The answers of the connected minions of declared hosts, which are asked side by side. A minion
    /// of an earlier version knows no answer.
    pub async fn host_health(
        &self,
        declaration: &Declaration,
        limit: Duration,
    ) -> BTreeMap<NodeName, HostHealth> {
        let connected = self.app.connections.connected();
        let hosts = declaration.nodes.keys().filter_map(|name| {
            let minion = connected.iter().find(|id| *id == name.as_str())?;
            Some((name, minion))
        });
        let ask = |(name, minion)| async move {
            let answer = self.ask(minion, FUNCTION, &json!({}), limit).await;
            let answer = answer.inspect_err(|error| tracing::debug!(%minion, %error, "no health"));
            let health = serde_json::from_value(answer.ok()?).ok()?;
            Some((NodeName::clone(name), health))
        };
        let answers = join_all(hosts.map(ask)).await;
        answers.into_iter().flatten().collect()
    }
}
