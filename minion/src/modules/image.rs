//! `image.*`

use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::image_name::stored;
use super::{Failure, Plan};
use crate::host::Host;
use crate::host::effect::Effect;

pub(super) async fn present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let reference = &chunk.name;
    let stored = stored(reference)?;
    if host.image(&stored).await? {
        return Ok(Plan::nothing(format!("Image {reference} is present")));
    }
    Ok(Plan::change(
        Map::from_iter([(reference.clone(), json!({"old": "", "new": "pulled"}))]),
        vec![Effect::PullImage { reference: stored }],
        format!("Image {reference} would be pulled"),
        format!("Image {reference} was pulled"),
    ))
}
