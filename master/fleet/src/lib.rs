//! The minions of the master: the keys with which they enrol, the low states that are compiled for
//! them, the jobs that they run, and the files that a job may fetch.
//!
//! - Inputs: requests for jobs and keys, messages of minions.
//! - Outputs: jobs to the connections of minions, returns in the store and on the event bus.
//! - It never runs a command on a host, and never writes a secret into a job, event or log line.

pub mod compile;
pub mod files;
pub mod jobs;
pub mod keys;
