//! The operator API: the calls that `ctl` makes to a running master. [`crate::serve`] has already
//! authenticated and authorised the caller.

pub mod audit;
pub mod backup;
mod backup_hosts;
mod backups;
mod certificates;
mod cluster_backups;
mod etcd;
mod etcd_members;
pub mod hand_over;
mod health;
pub mod history;
pub mod kubeconfig;
pub mod last_upgrade;
pub mod masters;
mod minions_first;
pub mod own_cas;
mod reports;
pub mod run;
pub mod show;
mod silences;
mod silent_hosts;
pub mod status;
mod updates;
mod upgrade;

use halite_api::Document;
use halite_proto::v1;

/// A document as an answer of the master.
#[must_use]
pub fn document(document: &impl Document) -> v1::Document {
    v1::Document {
        json: halite_api::to_text(document),
    }
}
