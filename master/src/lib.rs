//! The daemon that holds pillar, keys, jobs and the certificate authorities, compiles states and
//! dispatches jobs.

pub mod app;
pub mod ca;
pub mod clock;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod files;
pub mod follow;
pub mod hub;
pub mod init;
pub mod jobs;
pub mod keys;
pub mod kubernetes;
pub mod metrics;
pub mod orchestrate;
pub mod serve;
pub mod store;
pub mod view;
