//! The guide's walkthrough (`docs/guide/bundle.md`) with the real `ctl`: from `ctl bundle init` to
//! a signed ISO with the site's own image and chart, everything from servers on this machine. The
//! modules are marked as tests for the lints that do not apply to tests.

#[cfg(test)]
mod walk;
#[cfg(test)]
mod world;
