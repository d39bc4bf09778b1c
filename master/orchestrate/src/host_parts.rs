//! The part of an upgrade's plan that belongs to one host: a digest of all that each SLS declares
//! for it once the upgrade has ended.
//!
//! The end is compared, not the next step: during an upgrade, states also depend on the bundles of
//! the other hosts, and change with each host that is done. Those of the end change only with the
//! documents, the operator's own states, the bundle, or the host's grains. The servers of bundles
//! are left out: their states also change with each bundle that the site gets or loses.
//!
//! Digests of masters of different versions are not comparable.

use std::collections::BTreeMap;

use halite_core::declared::Direction;
use halite_core::refusal::Refusal;
use halite_fleet::compile;
use halite_fleet::compile::RequestedStates;
use halite_fleet::jobs::{Jobs, target};
use halite_names::BundleVersion;
use halite_proto::ids::MinionId;
use halite_states::low::Chunk;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The hexadecimal digits of a digest that are kept: enough to notice a change.
const DIGITS: usize = 12;

/// The version of this master's program.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The SLS, with all below it, whose states depend on all bundles of the site.
const BUNDLE_SERVER: &str = "halite.services.bundle_server";

/// The digest of each SLS, for each host.
pub type HostParts = BTreeMap<MinionId, BTreeMap<String, String>>;

/// The parts of several hosts.
#[derive(Debug, Default)]
pub struct CompiledParts {
    /// The digests.
    pub states: HostParts,
    /// The hosts whose states do not compile, with the reason.
    pub failures: BTreeMap<MinionId, String>,
}

/// Computes the parts of these hosts in an upgrade, or a return, to a bundle. A host that has never
/// connected has none: its states depend on its grains.
///
/// # Errors
/// The documents or the bundle cannot be read, or the cluster cannot be upgraded to it; or the
/// store failed.
pub async fn host_parts(
    jobs: &Jobs,
    bundle: &BundleVersion,
    direction: Direction,
    hosts: &[MinionId],
) -> Result<CompiledParts, Refusal> {
    let snapshot = jobs.declarations().upgraded(bundle, direction).await?;
    let mut parts = CompiledParts::default();
    for host in hosts {
        let grains = target::grains(jobs.app(), host).await?;
        if grains.get("id").is_none() {
            continue;
        }
        let wanted = RequestedStates::Highstate;
        match compile::in_background(snapshot.clone(), host.clone(), grains, wanted).await {
            Ok(compiled) => {
                let states = digests(&compiled.low.chunks);
                parts.states.insert(host.clone(), states);
            }
            Err(refusal) => {
                parts.failures.insert(host.clone(), refusal.message);
            }
        }
    }
    Ok(parts)
}

/// A digest of the chunks of each SLS. The positions of requisites change with every other state,
/// so they do not count; neither do the servers of bundles.
fn digests(chunks: &[Chunk]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Sha256> = BTreeMap::new();
    for chunk in chunks.iter().filter(|chunk| !serves_bundles(&chunk.sls)) {
        let own = json!([chunk.tag(), chunk.args, chunk.controls]);
        let digest = all.entry(chunk.sls.clone()).or_default();
        digest.update(own.to_string());
    }
    let short = |(sls, digest): (String, Sha256)| {
        let mut text = format!("{:x}", digest.finalize());
        text.truncate(DIGITS);
        (sls, text)
    };
    all.into_iter().map(short).collect()
}

fn serves_bundles(sls: &str) -> bool {
    let below = sls.strip_prefix(BUNDLE_SERVER);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// One text for each host whose part differs from its planned one. Hosts without a planned part are
/// not compared.
#[must_use]
pub fn differences(planned: &HostParts, now: &HostParts) -> Vec<String> {
    let mut found = Vec::new();
    for (host, now) in now {
        let Some(planned) = planned.get(host) else {
            continue;
        };
        let names = |of: &BTreeMap<String, String>, is: &dyn Fn(&str) -> bool| {
            let own = of.keys().filter(|sls| is(sls.as_str()));
            own.cloned().collect::<Vec<_>>().join(", ")
        };
        let kinds = [
            (
                "changed",
                names(now, &|sls| {
                    planned
                        .get(sls)
                        .is_some_and(|own| Some(own) != now.get(sls))
                }),
            ),
            ("added", names(now, &|sls| !planned.contains_key(sls))),
            ("removed", names(planned, &|sls| !now.contains_key(sls))),
        ];
        let texts = kinds.iter().filter(|(_, names)| !names.is_empty());
        let texts: Vec<String> = texts
            .map(|(kind, names)| format!("{kind} {names}"))
            .collect();
        if !texts.is_empty() {
            found.push(format!("{host}: {}", texts.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(states: &[(&str, &str)]) -> HostParts {
        let states = states.iter();
        let states = states.map(|(sls, digest)| ((*sls).to_owned(), (*digest).to_owned()));
        BTreeMap::from([("cp-1".parse().unwrap(), states.collect())])
    }

    #[test]
    fn a_difference_names_the_sls() {
        let planned = parts(&[
            ("halite.host", "a"),
            ("custom.motd", "b"),
            ("custom.old", "c"),
        ]);
        assert!(differences(&planned, &planned).is_empty());
        let now = parts(&[
            ("halite.host", "a"),
            ("custom.motd", "x"),
            ("custom.new", "c"),
        ]);
        assert_eq!(
            differences(&planned, &now),
            ["cp-1: changed custom.motd, added custom.new, removed custom.old"]
        );
        assert!(differences(&HostParts::new(), &now).is_empty());
    }

    #[test]
    fn a_digest_counts_what_is_declared_and_not_where() {
        let low = |line: u32, requires: &[usize], mode: &str| -> Vec<Chunk> {
            let chunk = json!({"state": "file", "fun": "managed", "id": "motd", "name": "/etc/motd", "sls": "custom.motd",
                "source": {"file": "custom/motd.sls", "line": line, "column": 1}, "args": {"mode": mode},
                "requisites": {"require": requires}});
            serde_json::from_value(json!([chunk])).unwrap()
        };
        let of = |line, requires: &[usize], mode| digests(&low(line, requires, mode));
        let first = of(1, &[], "0644");
        assert_eq!(first, of(9, &[3], "0644"));
        assert_ne!(first, of(1, &[], "0600"));
        assert_eq!(first["custom.motd"].len(), DIGITS);
    }

    #[test]
    fn servers_of_bundles_do_not_count() {
        assert!(serves_bundles("halite.services.bundle_server"));
        assert!(serves_bundles("halite.services.bundle_server.copies"));
        assert!(!serves_bundles("halite.services.bundle_servers"));
        assert!(!serves_bundles("halite.services.ctl"));
    }
}
