//! The reasons why a promotion fails.

use std::io;
use std::path::PathBuf;

use halite_api::{StreamGap, Time};
use halite_core::ca::CaError;
use halite_core::refusal::Refusal;
use halite_core::succession::{NotStarted, Replaced};
use halite_store::StoreError;
use halite_store::epoch::EpochError;

use super::super::disk::CopyError;
use super::super::session::SessionError;
#[cfg(test)]
use super::boundary::Boundary;

/// A copy that is promoted only with `--force`.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The copy differs from what this standby has acknowledged.
    #[error(
        "the copy of the master on this standby is damaged: {damage}; promote another standby, or restore a backup with `ctl \
         bootstrap --restore`; with --force --cluster {cluster} this host uses the rest of the copy, and the damaged part is lost"
    )]
    Damaged {
        /// The damaged parts.
        damage: String,
        /// The name of the cluster.
        cluster: String,
    },
    /// Another standby has a newer copy.
    #[error(
        "cannot promote this standby: its copy of the master is from {until}, and {other} had everything until {newer}; \
         promote {other} instead, or this one with --force --cluster {cluster}"
    )]
    Older {
        /// The time until which this standby had everything.
        until: Time,
        /// The other standby.
        other: String,
        /// The time until which the other standby had everything.
        newer: String,
        /// The name of the cluster.
        cluster: String,
    },
    /// Another standby may have a newer copy.
    #[error(
        "the copy of the master on this standby is from {until}, {age} ago, and the master may have continued since: {missed}; `ctl \
         master list` on {others} shows until when it followed: promote the standby with the later time, and this one only with \
         --force --cluster {cluster}"
    )]
    Behind {
        /// The time until which this standby had everything.
        until: Time,
        /// The time since then.
        age: String,
        /// The reason why there may be newer data.
        missed: StreamGap,
        /// The other standbys.
        others: String,
        /// The name of the cluster.
        cluster: String,
    },
}

/// An error of a promotion.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// The host had the master, which was replaced.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// The host has the master, and is handing it over.
    #[error(
        "this host hands the master over to {0}, which takes over as soon as it is up: `ctl master list` there shows it. If \
         {0} is dead, `ctl master promote --force --cluster NAME` makes this host the master's again"
    )]
    HandedOver(String),
    /// The host has the master, which is isolated.
    #[error(
        "this host has the master, which reaches no standby and fewer than half of the minions, and starts nothing: another \
         host may have taken its place. If none has, `ctl master promote --force --cluster NAME` makes it act alone"
    )]
    Isolated,
    /// The host is neither a standby nor has it an interrupted promotion.
    #[error("this host is not a standby: {} does not exist", .0.display())]
    NoStandby(PathBuf),
    /// There is no copy.
    #[error(
        "this standby has no whole copy of the master yet: promote another standby, or restore a backup with `ctl bootstrap \
         --restore`"
    )]
    NoCopy,
    /// A newer program has changed the copy.
    #[error(
        "cannot promote this standby: a newer halite-master wrote its copy (migration {last}; this program knows {known}); \
         {remedy}"
    )]
    Newer {
        /// The number of the last migration of the copy.
        last: i64,
        /// The number of the last migration that this program knows.
        known: i64,
        /// The commands that install the newer program and promote with it.
        remedy: String,
    },
    /// The copy is damaged, or another standby may have a newer one.
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
    /// The name of the cluster is missing or wrong.
    #[error(
        "--force requires --cluster {0}: changes that the other master makes from now on are lost"
    )]
    Cluster(String),
    /// The minion's identity cannot be read.
    #[error(transparent)]
    Identity(#[from] SessionError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// The copy cannot be used.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No epoch can be chosen.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The record of another master is unreadable.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The CAs, or the identities of this host, cannot be used.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The existing files cannot be listed.
    #[error(transparent)]
    Saved(#[from] Refusal),
    /// The unit of the daemon failed.
    #[error("cannot {action} the unit halite-master")]
    Unit {
        /// The verb.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A test interrupted the promotion.
    #[cfg(test)]
    #[error("interrupted at {0:?}")]
    Ended(Boundary),
}
