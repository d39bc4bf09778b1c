//! Repair: `ctl highstate --test` lists every damage, `ctl highstate` repairs it, and it stays
//! repaired; without damage a highstate changes nothing.
//!
//! The damages are generated from the low state itself, so a new state in the tree is damaged too,
//! or the last test here reports that it is not.

mod answer;
mod certificates;
mod containers;
mod cover;
pub(super) mod damage;
mod files;
mod firewall;
mod foreign;
mod kinds;
mod lost_etcd;
mod low;
mod objects;
mod one_cycle;
mod renewal;
mod system;
mod upkeep;
mod wait_ready;

use std::collections::BTreeSet;

use anyhow::Result;
use halite_lab::cluster::{BOOTSTRAP, Cluster};

use self::damage::{Foreign, ObjectDamage};
use self::low::Low;
use self::objects::Objects;
use self::one_cycle::Round;
use crate::declare::declare;
use crate::test::{Counts, Test};

pub(super) use self::answer::{highstate, highstate_by};
pub(super) use self::one_cycle::quiet;
pub(super) use self::wait_ready::{
    answering, daemons, daemons_restarted, pods, running, settled, still, workload,
};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "repair: a second highstate changes and restarts nothing",
        run: second_highstate,
    },
    // Before certificates are damaged: after a successful attempt, the next one waits.
    Test {
        name: "repair: certificates that expire soon are renewed without an operator",
        run: upkeep::without_an_operator,
    },
    Test {
        name: "repair: every state is damaged, or left out for a reason",
        run: complete,
    },
    Test {
        name: "repair: other content",
        run: content,
    },
    Test {
        name: "repair: other modes and owners",
        run: modes_and_owners,
    },
    Test {
        name: "repair: lost files",
        run: lost,
    },
    Test {
        name: "repair: units, packages, parameters and images",
        run: system,
    },
    Test {
        name: "repair: directories, links and pipes instead of files, and immutable ones",
        run: places,
    },
    Test {
        name: "repair: masked, aliased and overridden units, and one that cannot start",
        run: units,
    },
    Test {
        name: "repair: a mount over a directory of Halite is refused",
        run: kinds::mounted,
    },
    Test {
        name: "repair: certificates and firewall",
        run: certificates,
    },
    Test {
        name: "repair: a renewed certificate is used by the program that holds it",
        run: renewal::taken_up,
    },
    Test {
        name: "repair: Kubernetes objects and names",
        run: objects,
    },
    Test {
        name: "repair: etcd without its data is refused, and continues with it",
        run: lost_etcd::refused,
    },
];

fn second_highstate(cluster: &Cluster) -> Result<Counts> {
    highstate(cluster, &[])?;
    quiet(cluster)?;
    Ok(Counts::ONE)
}

fn system_damages(low: &Low) -> Vec<ObjectDamage> {
    // Images first: with the runtime stopped they could not be removed.
    let mut all: Vec<ObjectDamage> = system::images(low)
        .into_iter()
        .filter(|d| d.host == BOOTSTRAP)
        .collect();
    all.extend(system::packages_and_kernel(low));
    all.extend(system::units(low));
    all
}

fn certificate_damages(low: &Low) -> Vec<ObjectDamage> {
    let mut all: Vec<ObjectDamage> = system::images(low)
        .into_iter()
        .filter(|d| d.host != BOOTSTRAP)
        .collect();
    all.extend(certificates::damages(low));
    all.extend(firewall::damages(low));
    all
}

fn complete(cluster: &Cluster) -> Result<Counts> {
    let low = Low::read(cluster)?;
    let rounds = [
        files::content,
        files::modes_and_owners,
        files::lost,
        system_damages,
        certificate_damages,
        files::lost_names,
    ];
    let mut tags: BTreeSet<_> = rounds
        .iter()
        .flat_map(|make| make(&low))
        .map(|damage| damage.tag)
        .collect();
    tags.extend(Objects::of(&low).tags());
    println!("  {} states", cover::complete(&low, &tags)?);
    Ok(Counts::ONE)
}

fn round(
    cluster: &Cluster,
    make: fn(&Low) -> Vec<ObjectDamage>,
    foreign: Vec<Foreign>,
    objects: fn(&Low) -> Option<Objects>,
) -> Result<Counts> {
    let low = Low::read(cluster)?;
    let round = Round {
        cluster,
        low: &low,
        damages: make(&low),
        objects: objects(&low),
        foreign,
    };
    round.run().map_err(|error| match round.clear() {
        Ok(()) => error,
        Err(left) => error.context(format!(
            "and the tests after this one find damage: {left:#}"
        )),
    })
}

fn none(_: &Low) -> Option<Objects> {
    None
}

fn content(cluster: &Cluster) -> Result<Counts> {
    round(cluster, files::content, foreign::files(), none)
}

fn modes_and_owners(cluster: &Cluster) -> Result<Counts> {
    round(cluster, files::modes_and_owners, Vec::new(), none)
}

fn lost(cluster: &Cluster) -> Result<Counts> {
    round(cluster, files::lost, Vec::new(), none)
}

fn system(cluster: &Cluster) -> Result<Counts> {
    round(cluster, system_damages, Vec::new(), none)
}

fn places(cluster: &Cluster) -> Result<Counts> {
    round(cluster, kinds::places, Vec::new(), none)
}

fn units(cluster: &Cluster) -> Result<Counts> {
    round(cluster, kinds::units, Vec::new(), none)
}

/// The master checks the certificates soon after its start, which an earlier round may have caused,
/// and would renew the damaged ones before the operator's highstate.
fn certificates(cluster: &Cluster) -> Result<Counts> {
    declare(cluster, "certificates", "{renew: report}")?;
    let done = round(cluster, certificate_damages, firewall::foreign(), none);
    declare(cluster, "certificates", "")?;
    done
}

fn objects(cluster: &Cluster) -> Result<Counts> {
    round(cluster, files::lost_names, Vec::new(), |low| {
        Some(Objects::of(low))
    })
}
