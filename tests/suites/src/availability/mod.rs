//! Tools that measure how available a cluster is: a loop of writes, and a sampler of the host that
//! holds an address. Suites that cut power and links start them before, and judge their records
//! afterwards.

pub mod holders;
pub mod record;
pub mod target;
pub mod writes;
