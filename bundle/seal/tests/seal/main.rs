//! Seals: made, damaged in every way, and checked, with this crate and with standard programs. The
//! modules are marked as tests, because some lints do not apply to tests.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod image;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod sound;
#[cfg(test)]
mod trust;
