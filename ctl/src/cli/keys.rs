//! The command line of `ctl key` and `ctl token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use halite_cli::duration::duration;
use halite_proto::ids::MinionId;

/// `ctl key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List all keys.
    List,
    /// Accept the key of a pending minion, after comparing the fingerprint.
    Accept {
        /// The minion's id.
        id: MinionId,
        /// The fingerprint that the host shows; any other one is refused.
        #[arg(long, default_value = "", required_unless_present = "force")]
        fingerprint: String,
        /// Accept whatever key is pending under this id, without a comparison.
        #[arg(long, conflicts_with = "fingerprint")]
        force: bool,
    },
    /// Reject a minion's key.
    ///
    /// The host is cut off: it loses its connection, its tokens, and the operator access of its
    /// root user. Everything that runs on it keeps running.
    Reject(Destroy),
    /// Delete a minion's key.
    ///
    /// The host is cut off, as with `reject`. In addition, jobs that wait for it end, and another
    /// key can request its name.
    Delete(Destroy),
}

/// A command that cuts a minion off.
#[derive(Debug, Args)]
pub struct Destroy {
    /// The minion's id.
    pub id: MinionId,
    /// Do it even if the minion is connected.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
}

/// `ctl token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token.
    ///
    /// With it, a new host enrols without further questions, until the token expires or is used up.
    /// `ctl node add` creates its own.
    Create {
        /// The time for which the token is valid, for example 30m or 24h.
        #[arg(long, default_value = "24h", value_name = "TIME", value_parser = duration)]
        ttl: Duration,
        /// The number of minions that may use it.
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// Only minions with these roles may use it. Default: the roles of the host that --id
        /// names; without --id, no host with the role bootstrap, control-plane, etcd or registry.
        #[arg(long, value_delimiter = ',')]
        roles: Vec<String>,
        /// Only this minion may use it.
        #[arg(long, value_parser = MinionId::for_host)]
        id: Option<MinionId>,
    },
    /// List all tokens, without their secrets.
    List,
    /// Revoke a token.
    ///
    /// No further host can enrol with it. Hosts that have already enrolled stay.
    Revoke {
        /// The token's id.
        token: String,
    },
}
