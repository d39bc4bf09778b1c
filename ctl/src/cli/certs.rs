//! The command line of `ctl certs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use halite_pillar::ca_rotation::CLUSTER_CAS;

use super::targets::{Applying, HostBudget, StatesLimit, TargetKind};

/// `ctl certs`.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// List the CAs, the certificates on the hosts, and those of the master and of operators. The
    /// exit code is 1 if one has expired, or if a host does not answer.
    ///
    /// For each, it shows the expiry, the CA that signed it, and the actor that renews it: the
    /// master, the program that uses it (owner), an operator, or none.
    List {
        /// The hosts: a name, or a pattern such as 'cp-*'. Default: all, with CAs and operators.
        target: Option<String>,
    },
    /// Renew the certificates on hosts now, due or not.
    ///
    /// Control planes and etcd hosts come first, one after the other, with a check of etcd before
    /// each; then all others. A certificate that is less than a day old is kept, so you can repeat
    /// an interrupted command. Before it asks, the command shows how many certificates each host
    /// gets, and which programs restart or load them. CAs are kept, and so are the certificates
    /// that minions, kubelets and the master renew themselves.
    Renew(CertsRenew),
    /// Replace keys or a CA of the cluster on all hosts that use them, in stages, without an
    /// interruption.
    ///
    /// Each stage reaches all of these hosts before the next one starts: they accept the new key,
    /// then they use it, then they drop the old one. Repeat the command to continue a rotation that
    /// was stopped, or to join one that is running.
    Rotate(CertsRotate),
    /// Print a certificate request for a CA of your own, which another CA signs as an intermediate.
    ///
    /// The master makes the key, and no operator sees it. Until a rotation uses the CA, or it is
    /// discarded, the command always prints a request for the same key.
    Csr(CertsCsr),
    /// Import a CA of your own, which the next `ctl certs rotate` of that name uses.
    ///
    /// All problems of the CA are reported together. Nothing changes on any host before the
    /// rotation.
    Import(CertsImport),
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
    pub budget: HostBudget,
    #[command(flatten)]
    pub applying: Applying,
    #[command(flatten)]
    pub limit: StatesLimit,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
}

/// `ctl certs rotate`.
#[derive(Debug, Args)]
pub struct CertsRotate {
    /// The keys to replace.
    pub what: RotatedKeys,
    /// Remove the old CA at once, because others may know its key. Hosts, pods and kubeconfigs do
    /// not reach each other until they have the new one. With `halite`, hosts that are off have to
    /// enrol again.
    #[arg(long)]
    pub compromised: bool,
    /// Restart workloads whose pods depend on the old CA or key, as `kubectl rollout restart` does,
    /// instead of waiting until you have.
    #[arg(long)]
    pub restart_pods: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show the steps; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl certs csr`.
#[derive(Debug, Args)]
pub struct CertsCsr {
    /// The CA: kubernetes, etcd or front-proxy.
    #[arg(value_parser = importable)]
    pub ca: String,
    /// Write the request to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `ctl certs import`.
#[derive(Debug, Args)]
pub struct CertsImport {
    /// The CA: kubernetes, etcd or front-proxy.
    #[arg(value_parser = importable)]
    pub ca: String,
    /// The file with the certificate of the CA (PEM).
    #[arg(long, value_name = "FILE", required_unless_present = "discard")]
    pub cert: Option<PathBuf>,
    /// The file with its private key (PEM), unless the certificate is for the request of
    /// `ctl certs csr`.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The file with the certificates of the CAs above it, up to the root (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub chain: Option<PathBuf>,
    /// Remove the CA that was requested or imported, with its key.
    #[arg(long, conflicts_with = "cert")]
    pub discard: bool,
    /// Do not ask for confirmation.
    #[arg(long, short, conflicts_with = "cert")]
    pub yes: bool,
}

/// The error of a CA that an operator cannot import.
#[derive(Debug, thiserror::Error)]
#[error("name kubernetes, etcd or front-proxy; Halite itself makes the CAs halite and site")]
pub struct NotImportable;

/// The name of a CA that an operator can import.
fn importable(text: &str) -> Result<String, NotImportable> {
    match CLUSTER_CAS.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(NotImportable),
    }
}

/// Keys that `ctl certs rotate` replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RotatedKeys {
    /// The key that encrypts Secrets in etcd. Also starts the encryption in a running cluster.
    Encryption,
    /// The CA of the Kubernetes API, kubelets and kubeconfigs.
    Kubernetes,
    /// The CA of etcd's members and their clients.
    Etcd,
    /// The CA with which the API server authenticates itself to aggregated API servers.
    FrontProxy,
    /// The key pair that signs tokens of service accounts.
    Sa,
    /// The CA of the identities of masters, minions and operators, which also signs backups.
    Halite,
    /// The CA of the site's servers: bundles, the site registry, metrics.
    Site,
    /// The identity of this host that decrypts the values of secrets. Run it on the master's host.
    Secrets,
}
