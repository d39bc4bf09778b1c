//! The name servers that pods get from their host.

use std::path::Path;

/// The stub of systemd-resolved, which the host's own programs query.
const STUB: &str = "127.0.0.53";
const RESOLVER: &str = "/etc/resolv.conf";
/// The name servers behind the stub; the kubelet gives this file to pods if the stub is in
/// [`RESOLVER`].
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";

/// The name servers in the file that the kubelet will give to pods: a declared one, or the host's.
pub(crate) fn for_pods(declared: Option<&str>) -> Vec<String> {
    let read = |path: &str| name_servers(&std::fs::read_to_string(path).unwrap_or_default());
    if let Some(path) = declared {
        return read(path);
    }
    let servers = read(RESOLVER);
    if servers.iter().any(|server| server == STUB) && Path::new(BEHIND_STUB).exists() {
        return read(BEHIND_STUB);
    }
    servers
}

pub(crate) fn name_servers(text: &str) -> Vec<String> {
    let server = |line: &str| {
        let rest = line.trim().strip_prefix("nameserver")?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_from_the_declared_file() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("resolv.conf");
        std::fs::write(
            &file,
            "# x\nnameserver 10.0.0.1 # here\nsearch a\nnameserver\n",
        )
        .unwrap();
        let path = file.display().to_string();
        assert_eq!(for_pods(Some(&path)), ["10.0.0.1"]);
        assert!(for_pods(Some("/missing/resolv.conf")).is_empty());
    }
}
