//! Files over HTTPS.
//!
//! One [`Client`] serves everything that is fetched: it follows a bounded number of redirects,
//! takes up a transfer where it was cut, waits as long as a server asks (within bounds), and goes
//! through the proxies of the environment.

mod client;
mod credentials;
mod proxy;
mod retry;
mod settings;
mod tls;
mod transfer;

pub use client::address;
pub use client::{Client, shown};
pub(crate) use client::{Login, Reply, Request, host};
pub use credentials::{Credentials, Secret};
pub use settings::{Pause, Settings};
pub(crate) use transfer::Target;
