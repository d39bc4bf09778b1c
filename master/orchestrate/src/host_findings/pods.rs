//! Pods that hold up or stop the drains of an upgrade.

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_cluster::kubernetes::drain::Options;
use halite_cluster::kubernetes::obstacles::{Obstacle, ObstacleReason, obstacles};
use halite_cluster::kubernetes::{Api, ApiError};
use serde_json::Value;

use super::against::{Against, finding};

/// The findings about pods on nodes that are drained.
///
/// # Errors
/// The API failed.
pub async fn findings(
    against: &Against<'_>,
    api: &dyn Api,
) -> Result<Vec<UpgradeFinding>, ApiError> {
    let drained = against.turns.iter().flat_map(|turn| &turn.drained);
    // Others are not drained, or stop the run before.
    let nodes: Vec<String> = drained
        .filter(|node| against.is_connected(node))
        .map(ToString::to_string)
        .collect();
    let drain = against.options.get("drain");
    let flag = |name: &str| drain.and_then(|drain| drain.get(name)) == Some(&Value::Bool(true));
    let options = Options {
        delete_emptydir_data: flag("delete_emptydir_data"),
        force: flag("force"),
        grace_period: None,
    };
    let found = obstacles(api, &nodes, &options).await?;
    Ok(found.iter().map(obstacle).collect())
}

fn obstacle(found: &Obstacle) -> UpgradeFinding {
    let Obstacle {
        node, pod, owner, ..
    } = found;
    let host = Some(node.as_str());
    match &found.reason {
        ObstacleReason::Budget(held) => finding(
            UpgradeSeverity::Warning,
            UpgradeCheck::Budgets,
            host,
            format!("{pod} ({owner}) on {node} cannot be evicted now: {held}"),
            "scale up the owner, or change the budget",
        ),
        ObstacleReason::Flag(reason) => finding(
            UpgradeSeverity::Error,
            UpgradeCheck::Pods,
            host,
            format!("{pod} ({owner}) on {node} stops its drain: {reason}"),
            "delete the pod, or let a controller own it",
        ),
    }
}
