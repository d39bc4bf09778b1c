//! The connection of this host to a master or standby: the identity that it presents, and the
//! reason of its end.

use std::path::{Path, PathBuf};

use halite_proto::tonic::Status;
use halite_proto::transport::{ClientIdentity, ConnectError};

use super::disk::CopyError;

/// The reason why a stream has ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The identity of this host's minion cannot be read.
    #[error("cannot read {}: has the minion of this host enrolled?", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The connection failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The master ended the stream.
    #[error("the master ended the stream: {}", .0.message())]
    Call(Box<Status>),
    /// Another master has taken its place.
    #[error("the master was replaced: another one has a higher epoch")]
    Replaced,
    /// The master refuses this host.
    #[error("the master refuses this standby: {0}")]
    Refused(String),
    /// The received data cannot be stored.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl From<Status> for SessionError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// The identity of this host's minion, and the CA of masters.
///
/// # Errors
/// A file cannot be read.
pub fn identity(minion: &Path) -> Result<(ClientIdentity, String), SessionError> {
    let read = |name: &str| {
        let path = minion.join(name);
        std::fs::read_to_string(&path).map_err(|source| SessionError::Identity { path, source })
    };
    let identity = ClientIdentity {
        certificate_pem: read("identity.crt")?,
        key_pem: read("identity.key")?,
    };
    Ok((identity, read("ca.crt")?))
}
