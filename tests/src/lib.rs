//! The lab (real hosts on one machine) and the acceptance suites that run in it.

pub mod bench;
pub mod build;
pub mod cluster;
pub mod demo;
pub mod lab;
pub mod suite;
pub mod upstream;
