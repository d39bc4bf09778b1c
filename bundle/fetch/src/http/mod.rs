//! Files over HTTPS.
//!
//! One [`Client`] serves all fetches: it follows a bounded number of redirects, resumes an
//! interrupted transfer, waits as long as a server requests (within bounds), and uses the proxies
//! of the environment.

mod client;
mod credentials;
mod headers;
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
