//! The options of `ctl node`.

use std::net::Ipv4Addr;
use std::str::FromStr;

use clap::{Args, Subcommand};
use halite_names::NodeName;
use halite_preflight::checks::{CHECKS, Scope};

/// `ctl node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Declare hosts, print the command to run on each, and wait until their nodes are Ready. May
    /// be repeated.
    Add(NodeAdd),
}

/// A new host on the command line: `NAME` or `NAME=ADDRESS`.
#[derive(Debug, Clone)]
pub struct NewHost {
    /// The node's name.
    pub name: NodeName,
    /// The address as text; empty without one.
    pub address: String,
}

impl FromStr for NewHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').unwrap_or((text, ""));
        if text.contains('=') && address.parse::<Ipv4Addr>().is_err() {
            return Err(format!("{address:?} is not an IPv4 address"));
        }
        Ok(Self {
            name: name.parse().map_err(|error| format!("{error}"))?,
            address: address.to_owned(),
        })
    }
}

/// Accepts the name of a check.
fn check_name(text: &str) -> Result<String, String> {
    let names: Vec<&str> = (CHECKS.iter())
        .filter(|check| check.scope != Scope::First)
        .map(|check| check.name)
        .collect();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "there is no such check; there are {}",
        names.join(", ")
    ))
}

/// `ctl node add`.
#[derive(Debug, Args)]
pub struct NodeAdd {
    /// The new hosts' names, each with its address in a control-plane network; without one the
    /// address is taken from the host's grains.
    #[arg(required = true, value_name = "NAME[=ADDRESS]")]
    pub nodes: Vec<NewHost>,
    /// The address of the only new host.
    #[arg(long, default_value = "")]
    pub address: String,
    /// The roles of each of them.
    #[arg(long, value_delimiter = ',', default_value = "worker")]
    pub roles: Vec<String>,
    /// A label of the Kubernetes node, KEY=VALUE; may be repeated.
    #[arg(long = "label")]
    pub labels: Vec<String>,
    /// Go on in spite of problems that these checks of the preflight find.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
    /// Only declare the host and print the command; do not wait.
    #[arg(long)]
    pub no_wait: bool,
}
