//! The boundaries of a command: the records that its steps have ended, in the order of the steps.

use anyhow::Result;
use halite_lab::cluster::CLUSTER;
use halite_lab::layout::Layout;
use halite_pillar::view::{MASTER, Pki};
use halite_states::compile;
use serde_json::{Value, json};

use crate::shipped_tree;

/// The steps of an orchestration on the hosts of a layout, as the master compiles it for this
/// pillar. They are read from the tree: a new step is a boundary at once.
pub(crate) fn of(sls: &str, pillar: &Value, layout: &Layout) -> Result<Vec<String>> {
    let declaration = shipped_tree::declaration(CLUSTER, layout)?;
    let bundle = shipped_tree::bundle()?;
    let grains = json!({"id": MASTER});
    let wanted = [sls.to_owned()];
    let compiled = shipped_tree::compile(
        &declaration,
        (&bundle, &Pki::default()),
        MASTER,
        &grains,
        pillar,
        |input| compile::step(input, &wanted),
    )?;
    let chunks = compiled.low.chunks.into_iter();
    Ok(chunks.map(|chunk| chunk.id).collect())
}
