//! The facts about the first host of the new cluster.

use std::path::Path;

use anyhow::Context as _;
use halite_pillar::host_facts::{HostFacts, Route};
use halite_preflight::{addresses_by_interface, kernel_routes, local_addresses};
use serde::Deserialize;
use serde_json::Value;

use crate::cli::ConfigWizard;

/// The name of a host in its grains.
#[derive(Deserialize)]
struct NamedGrains {
    id: Option<String>,
}

/// The first host, as far as this program knows it.
pub struct FirstHost {
    /// Its name.
    pub name: Option<String>,
    /// Its addresses and routes.
    pub facts: Option<HostFacts>,
    /// `true` if it is this host.
    pub is_here: bool,
}

impl FirstHost {
    /// The facts that the command line names, or else those of this host.
    ///
    /// # Errors
    /// The file with the grains cannot be read.
    pub fn find(args: &ConfigWizard) -> anyhow::Result<Self> {
        if args.other_host {
            return Ok(Self {
                name: None,
                facts: None,
                is_here: false,
            });
        }
        match &args.grains {
            Some(file) => Self::from_grains(file),
            None => Ok(Self::here()),
        }
    }

    fn from_grains(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
        let unreadable = || {
            format!("cannot read {shown} as JSON; write it with `halite-minion grains` on the host")
        };
        let grains: Value = serde_json::from_str(&text).with_context(unreadable)?;
        let NamedGrains { id: name } =
            NamedGrains::deserialize(&grains).with_context(unreadable)?;
        let facts = HostFacts::from_grains(name.as_deref().unwrap_or_default(), &grains);
        Ok(Self {
            name,
            facts: Some(facts),
            is_here: false,
        })
    }

    fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let routes = kernel_routes(&read("/proc/net/route"));
        let addresses = local_addresses(&read("/proc/net/fib_trie"));
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        let facts = HostFacts {
            name: name.clone(),
            addresses: addresses_by_interface(&addresses, &routes),
            routes: routes
                .into_iter()
                .filter_map(|route| {
                    let destination = format!("{}/{}", route.destination, route.prefix_len);
                    Some(Route {
                        destination: destination.parse().ok()?,
                        interface: route.interface,
                        gateway: route.gateway,
                    })
                })
                .collect(),
        };
        Self {
            name: Some(name),
            facts: Some(facts),
            is_here: true,
        }
    }
}
