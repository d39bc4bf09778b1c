//! Seals: made, damaged in every way, and checked, with our code and with the programs that a site
//! has anyway. The modules are marked as tests for the lints that tests are free of.

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
