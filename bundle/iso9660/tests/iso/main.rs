//! ISO 9660 images: written by this crate, read by it and by other programs, and damaged. The
//! modules are marked as tests, because some lints do not apply to tests.

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod image;
#[cfg(test)]
mod large;
#[cfg(test)]
mod made;
#[cfg(test)]
mod others;
#[cfg(test)]
mod roundtrip;
