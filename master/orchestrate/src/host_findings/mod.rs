//! Findings about hosts against an upgrade: before it starts, and again before the turn of each
//! host.

mod against;
pub mod holds;
pub mod kubelets;
pub mod minions;
pub mod pods;

use std::collections::BTreeMap;
use std::time::Duration;

use halite_api::{UpgradeFinding, UpgradeSeverity};
use halite_cluster::kubernetes::Api;
use halite_cluster::kubernetes::node::{overview_of, reference};
use halite_core::refusal::Refusal;
use halite_names::NodeName;

pub use self::against::{Against, finding};

/// The time for the hosts, and for the Kubernetes API, to answer before a turn.
const LIMIT: Duration = Duration::from_secs(3);

/// The errors about the hosts of `against`, immediately before they change. Whatever does not
/// answer stops nothing here: the steps of the turn wait for it. Quorum, budgets and space are not
/// asked: gates and drains wait for the first two, and little space is never certain.
///
/// # Errors
/// The documents or a bundle cannot be read, or the store failed.
pub async fn before_turn(against: &Against<'_>) -> Result<Vec<UpgradeFinding>, Refusal> {
    let declaration = against.snapshot.declaration();
    let hosts: Vec<&NodeName> = against
        .hosts_that_change()
        .filter_map(|host| declaration.nodes.get_key_value(host.as_str()))
        .map(|(name, _)| name)
        .collect();
    let api = async {
        let api = against.jobs.clusters().api(against.snapshot).await.ok()?;
        let asked = async {
            let kubelets = kubelets(api.as_ref(), &hosts).await;
            (kubelets, pods::findings(against, api.as_ref()).await)
        };
        tokio::time::timeout(LIMIT, asked).await.ok()
    };
    let (answers, of_api) =
        tokio::join!(against.jobs.host_health(hosts.iter().copied(), LIMIT), api);
    let (kubelets, pods) = of_api.unwrap_or_else(|| (BTreeMap::new(), Ok(Vec::new())));
    let kubelets = kubelets
        .iter()
        .map(|(host, own)| (host.as_str(), own.as_str()));
    let mut found = holds::findings(against, &answers).await?;
    found.extend(minions::findings(against).await?);
    found.extend(kubelets::findings(against, &kubelets.collect())?);
    found.extend(pods.unwrap_or_default());
    found.retain(|finding| {
        let host = finding.host.as_deref();
        finding.severity == UpgradeSeverity::Error
            && host.is_some_and(|host| hosts.iter().any(|own| own.as_str() == host))
    });
    Ok(found)
}

/// The versions of the kubelets of these hosts, as far as the API answers.
async fn kubelets(api: &dyn Api, hosts: &[&NodeName]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for host in hosts {
        let Ok(Some(node)) = api.get(&reference(host.as_str())).await else {
            continue;
        };
        if let Some(version) = overview_of(&node).and_then(|(_, state)| state.kubelet) {
            found.insert(host.to_string(), version);
        }
    }
    found
}
