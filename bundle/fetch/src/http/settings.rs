//! How to reach servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Credentials;

/// How a pause is made; tests make none.
pub type Pause = Arc<dyn Fn(Duration) + Send + Sync>;

/// How to reach servers.
#[derive(Clone)]
pub struct Settings {
    /// Files with certificates (PEM) of authorities to trust, besides the system's.
    pub authorities: Vec<PathBuf>,
    /// Whether the system's authorities are trusted; without them only `authorities` are.
    pub system_authorities: bool,
    /// `http://HOST:PORT` of a proxy for everything, in place of what the environment says; empty
    /// for none at all.
    pub proxy: Option<String>,
    /// What not to use a proxy for, as in `NO_PROXY`, in place of what the environment says.
    pub no_proxy: Option<String>,
    /// Logins by host.
    pub credentials: Credentials,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long nothing may come before a transfer counts as stalled.
    pub stall: Duration,
    /// How often something is tried again without any progress in between.
    pub retries: u32,
    /// The pause before the first time again; it doubles from then on.
    pub pause: Duration,
    /// No pause is longer, also if a server asks for it.
    pub longest_pause: Duration,
    /// How many bytes something may have whose size is not known beforehand; what goes on beyond is
    /// abandoned.
    pub largest: Option<u64>,
    /// How many redirects are followed.
    pub redirects: u32,
    /// How many transfers run at once.
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
