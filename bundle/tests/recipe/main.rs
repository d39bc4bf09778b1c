//! From a recipe to a bundle, with everything from servers on this machine: a real registry with TLS and logins, a web
//! server, an apt repository, charts. The modules are marked as tests for the lints that tests are free of.

// Each is shared with another test program, and none uses all of it.
#[cfg(test)]
#[allow(dead_code)]
#[path = "../fetch/fixture.rs"]
mod fixture;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../fetch/program.rs"]
mod program;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../fetch/registry.rs"]
mod registry;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../fetch/server.rs"]
mod server;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../bundle/site.rs"]
mod site;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../fetch/tls.rs"]
mod tls;

#[cfg(test)]
mod charts;
#[cfg(test)]
mod dnf;
#[cfg(test)]
mod images;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod rpm;
