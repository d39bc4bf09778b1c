//! Runs of jobs on a host in memory, the records that they keep, and the program as a shell runs
//! it. All are one program, because each program is linked with the whole crate. The modules are
//! marked as tests, so that the lints that do not apply to tests ignore them.

#[cfg(test)]
mod journal;
#[cfg(test)]
mod pending_triggers;
#[cfg(test)]
mod program;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod turns;
