//! The service manager's notification socket (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends the service manager a state such as `READY=1`. Does nothing without a service manager.
///
/// # Errors
/// The service manager's socket cannot be reached.
pub fn notify(state: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.to_string_lossy().strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}
