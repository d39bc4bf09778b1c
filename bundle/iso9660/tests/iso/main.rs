//! ISO 9660 images: written by us, read by us and by others, and damaged. The modules are marked as
//! tests for the lints that tests are free of.

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
