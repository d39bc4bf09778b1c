//! Everything up to a cluster of the lab: programs, bundle, ISO, hosts.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use halite_lab::cluster::{CLUSTER, Cluster};
use halite_lab::progress::Board;
use halite_lab::{Lab, base, build, cluster, prerequisites};

use crate::versions::{NEWEST, Release};

/// Builds what is missing, up to the bundle, and returns its path.
pub fn bundle(board: &Board) -> Result<PathBuf> {
    bundle_of(&NEWEST, board)
}

/// The same for any release of Kubernetes.
pub fn bundle_of(release: &Release, board: &Board) -> Result<PathBuf> {
    let mut line = board.line("prerequisites");
    prerequisites::ensure(&mut |text| line.say(text))?;
    drop(line);
    let cache = halite_lab::cache();
    let mut line = board.line("base root");
    base::ensure(&cache, &mut |text| line.say(text))?;
    drop(line);
    // Each leaves one of two processors idle for minutes, at other times.
    let (made, programs) = thread::scope(|scope| {
        let programs = scope.spawn(|| build::release(board));
        let mut line = board.line("upstream");
        let made = crate::ensure(&cache, release, &mut |text| line.say(text));
        drop(line);
        anyhow::Ok((
            made?,
            programs.join().map_err(|_| anyhow!("a build panicked"))??,
        ))
    })?;
    let tree = build::source_root().join("states/tree");
    let mut line = board.line("bundle");
    crate::bundle(&cache, &made, &programs, &tree, &mut |text| line.say(text))
}

/// Builds what is missing, up to what an operator carries to a site, and returns its directory:
/// `halite.iso`, signed with the lab's own key; `builder.pub`, that key; and a `ctl`.
pub fn iso_directory(board: &Board) -> Result<PathBuf> {
    iso_directory_of(&NEWEST, board)
}

/// The same for any release of Kubernetes.
pub fn iso_directory_of(release: &Release, board: &Board) -> Result<PathBuf> {
    let bundle = bundle_of(release, board)?;
    let mut line = board.line("ISO");
    crate::iso_directory(&halite_lab::cache(), &bundle, &mut |text| line.say(text))
}

/// Boots the lab `name` with two bare hosts and makes a cluster of them.
pub fn cluster(name: &str, board: &Board) -> Result<Cluster> {
    let iso_directory = iso_directory(board)?;
    let lab = Lab::new(name, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    board.say("boot", "two bare hosts");
    let cluster = cluster::boot_hosts(lab, &iso_directory)?;
    board.say("bootstrap", "the first host, from the signed ISO");
    let seconds = cluster.bootstrap(CLUSTER)?.as_secs();
    board.say("bootstrap", &format!("{seconds} s"));
    board.say("node add", "the second host");
    let seconds = cluster.add_worker()?.as_secs();
    board.say("node add", &format!("{seconds} s"));
    cluster.wait_for_pods(Duration::from_secs(180))?;
    Ok(cluster)
}
