//! Removal of the documents of nodes that leave the cluster.

use std::path::Path;

use halite_errors::chain;
use halite_pillar::load::{Texts, load};
use halite_pillar::resolve;
use halite_pillar::validate::Context;

use super::nodes::write;
use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::ca::files;
use crate::refusal::Refusal;

impl Declarations {
    /// Removes the document of a node. With `keep`, removes only Halite's record in it; the
    /// operator's declaration stays for a replacement host. Returns whether there was anything to
    /// remove.
    ///
    /// # Errors
    /// The other documents need this one, in which case it stays; or it cannot be removed.
    pub async fn forget_node(&self, name: &str, keep: bool) -> Result<bool, Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let (snapshot, name) = (self.load().await?, name.to_owned());
        let config_dir = self.config_dir().to_owned();
        in_background(move || forget(&snapshot, &config_dir, &name, keep)).await
    }
}

fn forget(snapshot: &Snapshot, config_dir: &Path, name: &str, keep: bool) -> Result<bool, Refusal> {
    let declaration = snapshot.declaration();
    let Some(node) = declaration.nodes.get(name) else {
        return Ok(false);
    };
    let file = &node.source.file;
    let kept = if keep {
        let text = resolve::without_record(declaration, name);
        match text.map_err(|problem| Refusal::invalid(problem.to_string()))? {
            Some(text) => Some(text),
            None => return Ok(false),
        }
    } else {
        None
    };
    let mut texts =
        Texts::from_dir(config_dir).map_err(|problems| Refusal::from_problems(&problems))?;
    match &kept {
        Some(kept) => {
            let own = texts.nodes.iter_mut().filter(|text| text.file == *file);
            own.for_each(|text| text.text.clone_from(kept));
        }
        None => texts.nodes.retain(|text| text.file != *file),
    }
    load(&texts, &Context::default()).map_err(|problems| Refusal::from_problems(&problems))?;
    match &kept {
        Some(kept) => write(Path::new(file), kept)?,
        None => files::remove(Path::new(file)).map_err(|error| Refusal::internal(chain(&error)))?,
    }
    tracing::info!(node = name, keep, "node document removed");
    Ok(true)
}
