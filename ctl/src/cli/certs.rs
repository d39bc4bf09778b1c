//! The command line of `ctl certs`.

use clap::{Args, Subcommand};

use super::targets::{Applying, TargetKind};

/// `ctl certs`.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// List the CAs, the certificates on the hosts, and those of the master and of operators. The
    /// exit code is 1 if one has expired, or if a host does not answer.
    ///
    /// Each has its end, the CA that signed it, and the actor that renews it: the master, the program
    /// that uses it (owner), an operator, or none.
    List {
        /// The hosts: a name, or a pattern such as 'cp-*'. Default: all, with CAs and operators.
        target: Option<String>,
    },
    /// Renew the certificates on hosts now, due or not.
    ///
    /// Control planes and etcd hosts come first, one after the other, with a check of etcd before
    /// each; then all others. A certificate of the last day stays, so an interrupted command can be
    /// repeated. Before the question, it shows how many certificates are made on each host, and which
    /// programs restart or load them. CAs stay, and so do the certificates that minions, kubelets and
    /// the master renew themselves.
    Renew(CertsRenew),
}

/// `ctl certs renew`.
#[derive(Debug, Args)]
pub struct CertsRenew {
    /// The target hosts. Default: all.
    #[arg(default_value = "*", hide_default_value = true)]
    pub target: String,
    #[command(flatten)]
    pub kind: TargetKind,
    #[command(flatten)]
    pub applying: Applying,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
}
