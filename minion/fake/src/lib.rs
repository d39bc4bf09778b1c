//! A host in memory, for tests of the minion.
//!
//! [`FakeHost`] implements [`halite_minion::host::Host`]: it answers every question from a
//! [`FakeState`] and every effect changes that state, so that state modules, runner and overlay are
//! tested against one law: apply, check again, nothing missing. Its [`disk::Disk`] knows which
//! writes are durable and can lose power after any of them. Input: the state that a test sets up.
//! Output: the state after the effects. It never touches the machine that runs the tests, except
//! that it has `openssl` make RSA keys. The shipped minion does not contain it.

pub mod ca;
mod commands;
pub mod disk;
mod effects;
mod host;
mod packages;
mod units;

pub use self::host::{CommandHook, FakeHost, FakeState, Offer};
