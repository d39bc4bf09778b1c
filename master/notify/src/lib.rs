//! Notifications of the findings of `ctl health`.
//!
//! [`ledger`] compares each round of the checks with what each sink knows, and says what is due;
//! [`payload`] makes the body of a request, and [`client`] sends it. The ledger has no clock, no
//! network and no file: the master's loop gives it the time, and stores its text.

pub mod client;
pub mod ledger;
pub mod notice;
pub mod payload;
