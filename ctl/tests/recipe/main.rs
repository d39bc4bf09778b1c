//! The walk of the guide (`docs/guide/bundle.md`) with the real `ctl`: from `ctl bundle init` to a
//! signed ISO with an own image and an own chart, everything from servers on this machine. The
//! modules are marked as tests for the lints that tests are free of.

#[cfg(test)]
mod walk;
#[cfg(test)]
mod world;
