//! The record of the master's host.

use std::net::IpAddr;
use std::path::Path;

use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::masters::MasterPart;
use halite_pillar::resolve::{cluster_block, record};
use halite_pillar::validate::Context;

use super::releases::write;
use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::refusal::Refusal;

impl Declarations {
    /// Records that the host with one of these addresses runs the master, if the documents name
    /// another host: after a promotion of a standby, or a restore of a backup on a bare host.
    /// Returns its name if it is new.
    ///
    /// # Errors
    /// The documents cannot be read, or would not be valid with this record.
    pub async fn record_master(&self, own: &[IpAddr]) -> Result<Option<String>, Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let snapshot = self.load().await?;
        let Some(name) = other_master(snapshot.declaration(), own) else {
            return Ok(None);
        };
        let config_dir = self.config_dir().to_owned();
        in_background(move || {
            write_master(&snapshot, &config_dir, &name)?;
            Ok(Some(name))
        })
        .await
    }
}

/// The node with one of these addresses, unless the documents already name it as the master's host.
pub(super) fn other_master(declaration: &Declaration, own: &[IpAddr]) -> Option<String> {
    let mut nodes = declaration.nodes.values();
    let node = nodes.find(|node| {
        let address = node.control_plane();
        address.is_some_and(|address| own.contains(&IpAddr::V4(address)))
    })?;
    let name = &node.metadata.name;
    (declaration.part(name) != Some(MasterPart::Master)).then(|| name.clone())
}

fn write_master(snapshot: &Snapshot, config_dir: &Path, name: &str) -> Result<(), Refusal> {
    let Some(mut resolved) = snapshot.declaration().cluster.resolved.clone() else {
        return Err(Refusal::conflict(
            "cannot record the master's host: the cluster document has no `resolved`; run ctl bootstrap",
        ));
    };
    resolved.master = Some(name.to_owned());
    let mut texts =
        Texts::from_dir(config_dir).map_err(|problems| Refusal::from_problems(&problems))?;
    let document = &mut texts.cluster;
    let text = record(&document.file, &document.text, &cluster_block(&resolved));
    document.text = text.map_err(|problem| Refusal::invalid(problem.to_string()))?;
    load(&texts, &Context::default()).map_err(|problems| Refusal::from_problems(&problems))?;
    write(Path::new(&texts.cluster.file), &texts.cluster.text)
}
