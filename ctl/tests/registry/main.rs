//! The real `ctl` backs up the real registry and brings it back: whole, damaged, killed in the middle, without room, and
//! while somebody pushes. The modules are marked as tests for the lints that tests are free of.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod halts;
#[cfg(test)]
mod round;
#[cfg(test)]
mod world;

// Each is shared with other tests, which use more of it.
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
#[path = "../../../bundle/tests/bundle/site.rs"]
mod site;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../bundle/tests/fetch/tls.rs"]
mod tls;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../bundle/work.rs"]
mod work;
