//! CAs of the operator: the request for one, and its import for the next rotation.

use std::sync::Arc;

use halite_errors::chain;

use super::{Declarations, in_background};
use crate::ca::{CaError, Cas, GivenCa, ImportedCa};
use crate::refusal::Refusal;

impl Declarations {
    /// A certificate request (PEM) for the next CA of a name. Its key is made by the first call,
    /// and stays with the master.
    ///
    /// # Errors
    /// The cluster cannot have this CA, another one is imported, or a file cannot be written.
    pub async fn request_ca(&self, name: &str) -> Result<String, Refusal> {
        let (cas, name) = self.cas_for(name).await?;
        in_background(move || cas.request_next(&name).map_err(refused)).await
    }

    /// Checks a CA and records it for the next rotation of its name.
    ///
    /// # Errors
    /// The cluster cannot have this CA, it has problems, which are all in the refusal, or a file
    /// cannot be written.
    pub async fn import_ca(&self, name: &str, given: GivenCa) -> Result<ImportedCa, Refusal> {
        let ((cas, name), now) = (self.cas_for(name).await?, self.clock.now());
        in_background(move || cas.import_next(&name, &given, now).map_err(refused)).await
    }

    /// Removes what was requested or imported for the next rotation of a CA. Returns `false` if
    /// there was nothing.
    ///
    /// # Errors
    /// The cluster cannot have this CA, or the file cannot be removed.
    pub async fn discard_ca(&self, name: &str) -> Result<bool, Refusal> {
        let (cas, name) = self.cas_for(name).await?;
        in_background(move || cas.discard_next(&name).map_err(refused)).await
    }

    async fn cas_for(&self, name: &str) -> Result<(Arc<Cas>, String), Refusal> {
        let snapshot = self.in_force().await?;
        if name == "etcd" && snapshot.declaration().cluster.external_etcd().is_some() {
            return Err(Refusal::conflict(
                "cannot have a CA of your own for etcd: etcd is outside the cluster; replace its CA there, then change `etcd.external` \
                 in the cluster document",
            ));
        }
        Ok((Arc::clone(self.reader.cas()), name.to_owned()))
    }
}

/// The refusal of an error, by what the operator can change.
fn refused(error: CaError) -> Refusal {
    let said = chain(&error);
    match error {
        CaError::NotImported(_) | CaError::Imported { .. } | CaError::NotRequested(_) => {
            Refusal::invalid(said)
        }
        CaError::KeyOfRequest(_)
        | CaError::AlreadyImported(_)
        | CaError::ImportDuringRotation(_) => Refusal::conflict(said),
        _ => Refusal::internal(said),
    }
}
