//! Settings of connections to servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Credentials;

/// The function that makes a pause; tests replace it.
pub type Pause = Arc<dyn Fn(Duration) + Send + Sync>;

/// Settings of connections to servers.
#[derive(Clone)]
pub struct Settings {
    /// PEM files of certificate authorities to trust, in addition to the system's.
    pub authorities: Vec<PathBuf>,
    /// `true` if the system's authorities are trusted; otherwise only `authorities` are.
    pub system_authorities: bool,
    /// `http://HOST:PORT` of a proxy for all requests, in place of the environment's; empty for no
    /// proxy.
    pub proxy: Option<String>,
    /// The exceptions from the proxy, as in `NO_PROXY`, in place of the environment's.
    pub no_proxy: Option<String>,
    /// Logins by host.
    pub credentials: Credentials,
    /// The longest time to establish a connection.
    pub connect: Duration,
    /// The longest time without data before a transfer counts as stalled.
    pub stall: Duration,
    /// The largest number of retries without progress in between.
    pub retries: u32,
    /// The pause before the first retry; it doubles each time.
    pub pause: Duration,
    /// The longest pause, even if a server requests a longer one.
    pub longest_pause: Duration,
    /// The largest size in bytes of a file whose size is not known beforehand; a larger one is
    /// abandoned.
    pub largest: Option<u64>,
    /// The largest number of redirects to follow.
    pub redirects: u32,
    /// The number of simultaneous transfers.
    pub threads: usize,
    /// Makes a pause.
    pub sleep: Pause,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            authorities: Vec::new(),
            system_authorities: true,
            proxy: None,
            no_proxy: None,
            credentials: Credentials::default(),
            connect: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            retries: 5,
            pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(120),
            largest: None,
            redirects: 10,
            threads: 4,
            sleep: Arc::new(std::thread::sleep),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("authorities", &self.authorities)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
