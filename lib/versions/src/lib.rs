//! The orders of package versions: Debian's and rpm's.

pub mod deb;
pub mod rpm;

use std::cmp::Ordering;

/// Compares numbers of any length.
fn number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}
