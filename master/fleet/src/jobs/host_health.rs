//! The queries about the health of hosts and their pod networks, which only their minions know.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use halite_host_reports::health::{FUNCTION, HostHealth};
use halite_host_reports::pod_network;
use halite_host_reports::pod_network::{PodNetworkReport, Question};
use halite_names::NodeName;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Jobs;

impl Jobs {
    /// The answers of the connected minions of these hosts, which are asked in parallel. A minion
    /// of an earlier version does not answer.
    pub async fn host_health(
        &self,
        hosts: impl Iterator<Item = &NodeName>,
        limit: Duration,
    ) -> BTreeMap<NodeName, HostHealth> {
        self.ask_hosts(hosts.map(|host| (host, json!({}))), FUNCTION, limit)
            .await
    }

    /// The answers of the connected minions to the queries about their pod networks.
    pub async fn pod_networks(
        &self,
        questions: &BTreeMap<NodeName, Question>,
        limit: Duration,
    ) -> BTreeMap<NodeName, PodNetworkReport> {
        let hosts = questions.iter();
        let hosts = hosts.map(|(host, question)| (host, json!(question)));
        self.ask_hosts(hosts, pod_network::FUNCTION, limit).await
    }

    async fn ask_hosts<T: DeserializeOwned>(
        &self,
        hosts: impl Iterator<Item = (&NodeName, Value)>,
        function: &str,
        limit: Duration,
    ) -> BTreeMap<NodeName, T> {
        let connected = self.app.connections.connected();
        let hosts = hosts.filter_map(|(name, args)| {
            let minion = connected.iter().find(|id| *id == name.as_str())?;
            Some((name, minion, args))
        });
        let ask = |(name, minion, args): (_, _, Value)| async move {
            let answer = self.ask(minion, function, &args, limit).await;
            let answer =
                answer.inspect_err(|error| tracing::debug!(%minion, %error, function, "no answer"));
            let answer = serde_json::from_value(answer.ok()?).ok()?;
            Some((NodeName::clone(name), answer))
        };
        let answers = join_all(hosts.map(ask)).await;
        answers.into_iter().flatten().collect()
    }
}
