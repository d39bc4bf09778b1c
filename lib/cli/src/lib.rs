//! The command lines of the daemons, their output, and their notifications to systemd. They are a
//! separate crate because `ctl` generates manual pages from the command lines and would otherwise
//! link both daemons. Durations have the same form in every command line.

pub mod builder;
pub mod duration;
pub mod master;
pub mod minion;
pub mod notify;
pub mod output;
