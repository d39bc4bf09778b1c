//! The hidden command that runs a write loop.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use halite_suites::availability::target::{Address, Identity, Target, WriteKind};
use halite_suites::availability::writes;

/// The target of the loop.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// `https://api.demo.internal:6443`
    url: String,
    /// Prefix of the names of written objects.
    prefix: String,
    /// The address to which the name in the URL resolves, with the port.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// A hosts file that has this address, read for each new connection.
    #[arg(long, conflicts_with = "address")]
    hosts: Option<PathBuf>,
    /// Write ConfigMaps to this namespace; without it, keys to etcd.
    #[arg(long)]
    namespace: Option<String>,
    /// File with the authority of the server.
    #[arg(long, requires_all = ["certificate", "key"])]
    authority: Option<PathBuf>,
    /// File with the client's certificate.
    #[arg(long, requires = "authority")]
    certificate: Option<PathBuf>,
    /// File with its key.
    #[arg(long, requires = "authority")]
    key: Option<PathBuf>,
}

impl Arguments {
    /// Writes until standard input ends.
    pub(crate) fn serve(self) -> Result<()> {
        let identity = match (self.authority, self.certificate, self.key) {
            (Some(authority), Some(certificate), Some(key)) => Some(Identity {
                authority,
                certificate,
                key,
            }),
            _ => None,
        };
        let kind = self
            .namespace
            .map_or(WriteKind::Etcd, |namespace| WriteKind::Kubernetes {
                namespace,
            });
        let address = self.address.map(Address::Fixed);
        let address = address.or(self.hosts.map(Address::Hosts));
        writes::serve(Target {
            kind,
            url: self.url,
            address,
            prefix: self.prefix,
            identity,
        })
    }
}
