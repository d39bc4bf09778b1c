//! `cargo lab demo`: from nothing to a Ready cluster, on real hosts.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use halite_lab::cluster::{BOOTSTRAP, CLUSTER, Cluster};
use halite_lab::{Lab, base, build, cluster, prerequisites};

use crate::versions::{NEWEST, Release};

/// Name of the demonstration's lab.
pub const DEMO: &str = "demo";

/// Builds whatever is missing, up to the bundle, and returns its path.
pub fn bundle(progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    bundle_of(&NEWEST, progress)
}

/// The same for any release of Kubernetes.
pub fn bundle_of(release: &Release, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    prerequisites::ensure(progress)?;
    let cache = halite_lab::cache();
    base::ensure(&cache, progress)?;
    progress(build::WHAT);
    // Each leaves one of two processors idle for minutes, at other times.
    let (made, programs) = thread::scope(|scope| {
        let programs = scope.spawn(build::release);
        let made = crate::ensure(&cache, release, progress);
        anyhow::Ok((
            made?,
            programs.join().map_err(|_| anyhow!("a build panicked"))??,
        ))
    })?;
    let tree = build::source_root().join("states/tree");
    crate::bundle(&cache, &made, &programs, &tree, progress)
}

/// Builds whatever is missing, up to what an operator carries to a site, and returns its directory:
/// `halite.iso`, signed with the lab's own key; `builder.pub`, that key; and a `ctl`.
pub fn medium(progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    medium_of(&NEWEST, progress)
}

/// The same for any release of Kubernetes.
pub fn medium_of(release: &Release, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let bundle = bundle_of(release, progress)?;
    crate::medium(&halite_lab::cache(), &bundle, progress)
}

/// Boots the lab `name` with two bare hosts and makes a cluster of them.
pub fn cluster(name: &str, progress: &mut dyn FnMut(&str)) -> Result<Cluster> {
    let medium = medium(progress)?;
    let lab = Lab::new(name, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    progress("booting two bare hosts");
    let cluster = cluster::boot_hosts(lab, &medium)?;
    progress("bootstrapping the first from the signed ISO");
    let seconds = cluster.bootstrap(CLUSTER)?.as_secs();
    progress(&format!("bootstrapped in {seconds} s; adding the second"));
    let seconds = cluster.add_worker()?.as_secs();
    progress(&format!("added in {seconds} s"));
    cluster.wait_for_pods(Duration::from_secs(180))?;
    Ok(cluster)
}

/// The whole demonstration.
pub fn demo(lab: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let cluster = cluster(lab, progress)?;
    println!("{}", cluster.kubectl(&["get", "nodes", "-o", "wide"])?);
    println!("{}", cluster.kubectl(&["get", "pods", "-A", "-o", "wide"])?);
    cluster.nothing_tried_to_leave()?;
    println!("Nothing tried to leave. The hosts go on running:");
    println!(
        "  cargo lab sh {BOOTSTRAP} -- ctl status      cargo lab sh {BOOTSTRAP} -- kubectl get pods -A"
    );
    println!("  cargo lab down");
    Ok(())
}
