//! Tools that measure the availability of a cluster: a write loop, and a sampler of the hosts that
//! hold an address. Suites start them before they cut power and links, and judge their records
//! afterwards.

pub mod holders;
pub mod record;
pub mod target;
pub mod writes;
