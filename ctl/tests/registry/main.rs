//! The real `ctl` backs up the real registry and brings it back: whole, damaged, killed in the
//! middle, without room, and during pushes. The modules are marked as tests for the lints
//! that tests are free of.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod halts;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod round;
#[cfg(test)]
mod world;
