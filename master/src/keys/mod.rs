//! Who may come in: enrolment tokens, minions' keys, and the gate that opens and closes with them.

mod enrol;
mod gate;
mod manage;
#[cfg(test)]
mod tests;
mod token;

pub use enrol::{Answer, EnrolmentRequest, enrol, renew};
pub use gate::Gate;
pub use manage::{Change, accept, change, list, status_of};
pub use token::{TokenText, Wanted, create_token, list_tokens, revoke_token};
