//! Access: enrolment tokens, minions' keys, operators, and the gate that opens and closes with
//! them.

mod declared_roles;
mod enrol;
mod host_facts;
pub mod host_root;
mod manage;
mod operator_renewal;
mod operators;
mod pending;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use declared_roles::declared_roles;
pub use declared_roles::{check_new_roles, check_role_change};
pub use enrol::{EnrolAnswer, EnrolmentRequest, enrol, renew};
pub use host_facts::parse as parse_grains;
pub use manage::{KeyOrder, change, list, status_of};
pub use operator_renewal::{renew_operator, with_another_ca};
pub use operators::{
    NewOperator, create as create_operator, list_operators, revoke as revoke_operator,
};
pub use token::{TokenRequest, TokenText, create_token, list_tokens, revoke_token};
