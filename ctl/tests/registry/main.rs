//! The real `ctl` backs up and restores the real registry: intact, damaged, killed in the middle,
//! on full disks, and during pushes. The modules are marked as tests for the lints that do not
//! apply to tests.

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
