//! The bundles of a site. The modules are marked as tests for the lints that tests are free of.

#[cfg(test)]
mod copy;
