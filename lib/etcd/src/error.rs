//! Errors of calls.

use std::{fmt, io};

use halite_errors::chain;

use crate::refusal::Refusal;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member answered.
    #[error("cannot {action}")]
    NoAnswer {
        /// Verb and object.
        action: &'static str,
        /// The causes.
        source: Unanswered,
    },
    /// A member refused.
    #[error("cannot {action}: {endpoint} answers")]
    Refused {
        /// Verb and object.
        action: &'static str,
        /// The address of the member.
        endpoint: String,
        /// The reason.
        source: Refusal,
    },
}

impl EtcdError {
    /// The reason of the member that refused; `None` if none answered.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { source, .. } => Some(source),
            Self::NoAnswer { .. } => None,
        }
    }
}

/// Members that were asked, each with the reason why it did not answer.
#[derive(Debug, Default)]
pub struct Unanswered(pub Vec<(String, NoAnswer)>);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no address of a member is known");
        }
        for (index, (endpoint, cause)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{endpoint}: {}", chain(cause))?;
        }
        Ok(())
    }
}

impl std::error::Error for Unanswered {}

/// The reason why one member did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Not the address of a member.
    #[error("not an address of the form https://HOST:PORT")]
    Address,
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// TLS failed: one of the two does not trust the other.
    #[error("cannot make a trusted connection")]
    Tls(#[source] io::Error),
    /// HTTP/2 failed.
    #[error("cannot speak HTTP/2")]
    Http2(#[source] hyper::Error),
    /// No connection within the timeout.
    #[error("no connection within {0} s")]
    ConnectTimeout(u64),
    /// No answer within the timeout.
    #[error("no answer within {0} s")]
    Timeout(u64),
    /// It runs and cannot answer now.
    #[error(transparent)]
    Unavailable(Refusal),
    /// It is stopped. Used by the fake.
    #[error("connection refused")]
    Stopped,
}
