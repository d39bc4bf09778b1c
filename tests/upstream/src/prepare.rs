//! Everything up to a cluster of the lab: programs, bundle, ISO, hosts.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use halite_lab::cluster::{Cluster, ISO_DIRECTORY, NEWER};
use halite_lab::layout::Layout;
use halite_lab::progress::Board;
use halite_lab::{Lab, base, cluster, prerequisites};

use crate::versions::{NEWEST, Release};

/// The longest time until all pods of a new cluster run: the kubelet waits up to five minutes
/// before it restarts a program that lost its lease.
const PODS: Duration = Duration::from_secs(420);

/// Builds missing parts, up to the bundle of [`NEWEST`], and returns its path.
pub fn bundle(board: &Board) -> Result<PathBuf> {
    bundle_of(&NEWEST, board)
}

/// The same for any release.
pub fn bundle_of(release: &Release, board: &Board) -> Result<PathBuf> {
    let mut line = board.line("prerequisites");
    prerequisites::ensure(&mut |text| line.say(text))?;
    drop(line);
    let cache = halite_lab::cache();
    let mut line = board.line("base root");
    base::ensure(&cache, &mut |text| line.say(text))?;
    for debian in release.debian {
        base::ensure_of(*debian, &cache, &mut |text| line.say(text))?;
    }
    drop(line);
    // Each leaves one of two processors idle for minutes, at different times.
    let (made, programs) = thread::scope(|scope| {
        let programs = scope.spawn(|| release.programs.build(board));
        let mut line = board.line("upstream");
        let made = crate::ensure(&cache, release, &mut |text| line.say(text));
        drop(line);
        anyhow::Ok((
            made?,
            programs.join().map_err(|_| anyhow!("a build panicked"))??,
        ))
    })?;
    let tree = release.programs.source().join("states/tree");
    let mut line = board.line("bundle");
    crate::bundle(&cache, &made, &programs, &tree, &mut |text| line.say(text))
}

/// Builds missing parts, up to the directory that an operator carries to a site, and returns it:
/// `halite.iso`, signed with the lab's own key; `builder.pub`, that key; and a `ctl`.
pub fn iso_directory(board: &Board) -> Result<PathBuf> {
    iso_directory_of(&NEWEST, board)
}

/// The same for any release.
pub fn iso_directory_of(release: &Release, board: &Board) -> Result<PathBuf> {
    let bundle = bundle_of(release, board)?;
    let mut line = board.line("ISO");
    crate::iso_directory(&halite_lab::cache(), &bundle, &mut |text| line.say(text))
}

/// Boots the lab `name` with the bare hosts of a layout, replacing its existing hosts, and makes a
/// cluster of them, from the bundle of a release.
pub fn cluster(name: &str, layout: &Layout, release: &Release, board: &Board) -> Result<Cluster> {
    cluster_beside(name, layout, release, None, board)
}

/// The same. The control planes also have the directory of a newer release, at [`NEWER`].
pub fn cluster_beside(
    name: &str,
    layout: &Layout,
    release: &Release,
    newer: Option<&Release>,
    board: &Board,
) -> Result<Cluster> {
    cluster_declared(name, layout, (release, newer), &release.document(), board)
}

/// The same with this cluster document.
pub fn cluster_declared(
    name: &str,
    layout: &Layout,
    (release, newer): (&Release, Option<&Release>),
    document: &str,
    board: &Board,
) -> Result<Cluster> {
    let lab = Lab::new(name, &halite_lab::cache().join("base-root"))?;
    // Building takes long; a host for which there is no room is refused before it.
    lab.room_for(layout)?;
    let newer = newer.map(|newer| iso_directory_of(newer, board));
    let newer = newer.transpose()?;
    let iso_directory = iso_directory_of(release, board)?;
    let mut carried = vec![(iso_directory.as_path(), ISO_DIRECTORY)];
    carried.extend(newer.as_deref().map(|newer| (newer, NEWER)));
    lab.down()?;
    board.say("boot", &format!("bare hosts {}", layout.names().join(", ")));
    let cluster = cluster::boot_hosts(lab, layout, &carried)?;
    let first = &cluster.bootstrap.spec.name;
    board.say("bootstrap", &format!("{first}, from the signed ISO"));
    let seconds = cluster.bootstrap(document)?.as_secs();
    board.say("bootstrap", &format!("{seconds} s"));
    for group in layout.joins {
        board.say("node add", &group.join(", "));
        let seconds = cluster.join(group)?.as_secs();
        board.say("node add", &format!("{seconds} s"));
    }
    cluster.wait_for_pods(PODS)?;
    Ok(cluster)
}
