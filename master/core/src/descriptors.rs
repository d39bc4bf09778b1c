//! The file descriptors of the process: as many as the system allows, with some reserved for the
//! store.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved from connections: for the store with its log and temporary files, documents
/// and bundles, the Kubernetes API and metrics.
const RESERVED: u64 = 256;
/// The minimum number of connections, however few descriptors there are.
const LEAST: u64 = 64;

/// Raises the soft limit of descriptors to the hard limit. systemd starts services with a soft
/// limit of 1,024, which a fleet of as many minions would exhaust.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            limit = limit.current,
            %error,
            "cannot raise the limit of open files"
        );
    }
}

/// The number of connections that may be open at a time.
#[must_use]
pub fn for_connections() -> usize {
    connections(getrlimit(Resource::Nofile).current)
}

fn connections(limit: Option<u64>) -> usize {
    // An unlimited hard limit still leaves a system-wide one.
    let limit = limit.unwrap_or(1 << 20);
    let free = limit.saturating_sub(RESERVED).max(LEAST.min(limit / 2));
    usize::try_from(free).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_has_descriptors_whatever_the_limit() {
        for (limit, wanted) in [
            (None, (1 << 20) - 256),
            (Some(65_536), 65_280),
            (Some(1024), 768),
            (Some(256), 64),
            (Some(100), 50),
        ] {
            assert_eq!(connections(limit), wanted, "{limit:?}");
        }
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
