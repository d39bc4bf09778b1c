//! The reasons for which a promotion cannot be done.

use std::io;
use std::path::PathBuf;

use halite_core::ca::CaError;
use halite_core::refusal::Refusal;
use halite_core::succession::{NotStarted, Replaced};
use halite_store::StoreError;
use halite_store::epoch::EpochError;

use super::super::disk::CopyError;
use super::super::report::Missed;
use super::super::session::SessionError;
#[cfg(test)]
use super::boundary::Boundary;

/// A copy that is promoted by force only.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The copy is not what this standby has acknowledged.
    #[error(
        "the copy of the master on this standby is damaged: {damage}; promote another standby, or restore a backup with `ctl \
         bootstrap --restore`; with --force --cluster {cluster} this host takes what is left, and the rest is lost"
    )]
    Damaged {
        /// The parts that are damaged.
        damage: String,
        /// The name of the cluster.
        cluster: String,
    },
    /// Another standby has more.
    #[error(
        "cannot promote this standby: its copy of the master is from {until}, and {other} had everything until {newer}; \
         promote {other} instead, or this one with --force --cluster {cluster}"
    )]
    Older {
        /// The time until which this one had everything.
        until: String,
        /// The other standby.
        other: String,
        /// The time until which that one had everything.
        newer: String,
        /// The name of the cluster.
        cluster: String,
    },
    /// Another standby may have more.
    #[error(
        "the copy of the master on this standby is of {until}, {age} ago, and the master may have gone on since: {missed}; `ctl \
         master list` on {others} says until when it followed: promote the one with the later time, and this one only with \
         --force --cluster {cluster}"
    )]
    Behind {
        /// The time until which it had everything.
        until: String,
        /// The time since then.
        age: String,
        /// Why there may be more.
        missed: Missed,
        /// The other standbys.
        others: String,
        /// The name of the cluster.
        cluster: String,
    },
}

/// A promotion that cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// The host had the master, which was replaced.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// The host has the master, and hands it over.
    #[error(
        "this host hands the master over to {0}, which takes it as soon as it is there: `ctl master list` there shows it. If \
         {0} is dead, `ctl master promote --force --cluster NAME` makes this host the master's again"
    )]
    HandedOver(String),
    /// The host has the master, which begins nothing.
    #[error(
        "this host has the master, which reaches no standby and fewer than half of the minions, and begins nothing: another \
         host may have taken its place. If none has, `ctl master promote --force --cluster NAME` has it act alone"
    )]
    Isolated,
    /// The host is neither a standby nor was its promotion interrupted.
    #[error("this host is no standby: {} is not there", .0.display())]
    NoStandby(PathBuf),
    /// There is no copy.
    #[error(
        "this standby has no whole copy of the master yet: promote another one, or restore a backup with `ctl bootstrap \
         --restore`"
    )]
    NoCopy,
    /// The copy is damaged, or another standby may have more.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A master answers.
    #[error(
        "the master at {0} answers: two masters must not act. Stop it first (`systemctl disable --now halite-master` there), \
         or promote with --force --cluster NAME"
    )]
    Alive(String),
    /// A master answers another standby.
    #[error(
        "cannot promote this standby: the master at {master}, which this host does not reach, answers the standby {standby} \
         at {address}, and two masters must not act; repair the network between this host and that master, stop that master \
         (`systemctl disable --now halite-master` there), or promote with --force --cluster NAME"
    )]
    Heard {
        /// The name of the standby.
        standby: String,
        /// Its address.
        address: String,
        /// The address of the master.
        master: String,
    },
    /// The name of the cluster is missing or another one.
    #[error("--force needs --cluster {0}: what the other master does from now on is lost")]
    Cluster(String),
    /// The minion's identity.
    #[error(transparent)]
    Identity(#[from] SessionError),
    /// A file.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// The copy.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The epoch.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The record of another master.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The CAs, or the identities of this host.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The files that are there.
    #[error(transparent)]
    Saved(#[from] Refusal),
    /// The daemon.
    #[error("cannot {action} the unit halite-master")]
    Unit {
        /// A verb.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A test ended it.
    #[cfg(test)]
    #[error("ended at {0:?}")]
    Ended(Boundary),
}
