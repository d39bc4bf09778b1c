//! Fetching from servers on this machine: real ones, and one that misbehaves on demand. The modules
//! are marked as tests, because some lints do not apply to tests.

#[cfg(test)]
mod apt;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod distribution;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod http;
#[cfg(test)]
mod nginx;
#[cfg(test)]
mod oci;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod yum;
