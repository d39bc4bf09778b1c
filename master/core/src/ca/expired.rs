//! CAs that have expired.

use std::fmt;

use crate::clock::rfc3339;

/// The CA of identities: [`super::HALITE`].
const IDENTITIES: &str = "halite";

/// A CA that has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredCa {
    /// Its name.
    pub name: String,
    /// The end of its validity, in seconds since the epoch.
    pub not_after: i64,
}

impl fmt::Display for ExpiredCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = rfc3339(self.not_after.saturating_mul(1000));
        let name = &self.name;
        let rotate = format!("`ctl certs rotate {name}");
        write!(f, "the CA {name} expired on {when}; ")?;
        match name.as_str() {
            IDENTITIES => write!(
                f,
                "its identities expired with it, at the latest, but it still signs new ones: the master makes its own when it \
                 starts, and minions enrol again; run `halite-master init` for root, and `ctl operator create` for others; {rotate}` replaces it",
            ),
            // A rotation in stages would need its signatures.
            _ => write!(
                f,
                "no certificate of it is valid, and the master signs none; {rotate} --compromised` replaces it; the guide's \
                 page about certificates has what still works",
            ),
        }
    }
}
