//! The stored detail of a step, for documents.

use halite_api::StepDetail;
use halite_store::Step;

/// The results of a step, without the facts that only the master uses.
pub(super) fn detail(step: &Step) -> StepDetail {
    serde_json::from_str(&step.detail_json).unwrap_or_default()
}
