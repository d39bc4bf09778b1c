//! The work behind the network services.
//!
//! The services (`serve`) authenticate, authorise, audit, enrol and sign; the [`Backend`] compiles,
//! dispatches and orchestrates.

#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod bundle_tests;
#[cfg(test)]
mod certificate_tests;
#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod contract_tests;
#[cfg(test)]
mod etcd_tests;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod health_tests;
mod live;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod minor_release_tests;
#[cfg(test)]
mod preflight_tests;
#[cfg(test)]
mod promoted_tests;
#[cfg(test)]
mod quorum_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod scripted_minion;
#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod stop_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;
#[cfg(test)]
mod turn_tests;
#[cfg(test)]
mod upgrade_tests;
#[cfg(test)]
mod version_tests;
#[cfg(test)]
pub(crate) mod wire;
#[cfg(test)]
mod wire_contract_tests;

pub use live::{Backend, start};
