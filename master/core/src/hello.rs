//! The hello to a minion.

use halite_proto::v1::MasterHello;

use crate::app::App;
use crate::ca::HALITE;

/// The hello to a minion, with the addresses of the masters (`HOST:PORT`); without any, it keeps
/// those that it knows.
#[must_use]
pub fn hello(app: &App, masters: Vec<String>) -> MasterHello {
    // This CA always exists.
    let ca_pem = app.cas.certificate_pem(HALITE).unwrap_or_default();
    MasterHello {
        protocol: halite_proto::PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        masters,
        epoch: app.store.epoch(),
        refused: String::new(),
        evidence: Some(app.succession.evidence()),
        ca_pem: ca_pem.to_owned(),
    }
}
