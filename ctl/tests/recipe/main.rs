//! The walk of the guide (`docs/guide/bundle.md`) with the real `ctl`: from `ctl bundle init` to a signed ISO with an own
//! image and an own chart, everything from servers on this machine. The modules are marked as tests for the lints that
//! tests are free of.

// Each is shared with tests of the library, which use more of it.
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/fixture.rs"]
mod fixture;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/program.rs"]
mod program;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/registry.rs"]
mod registry;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/server.rs"]
mod server;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/tls.rs"]
mod tls;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod world;
