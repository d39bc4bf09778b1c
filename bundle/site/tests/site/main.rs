//! The bundles of a site. The modules are marked as tests, because some lints do not apply to
//! tests.

#[cfg(test)]
mod copy;
