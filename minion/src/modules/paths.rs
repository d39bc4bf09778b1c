//! Paths: queries that several modules need.

use serde_json::{Map, Value, json};

use super::{Failure, fail};
use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host, MountPoint, Stat};

/// Parent of the directories in which modules keep records.
pub(super) const NOTES: &str = "/var/lib/halite/minion";

/// Refuses a path that is not absolute; drops trailing slashes.
pub(super) fn absolute(path: &str) -> Result<String, Failure> {
    if !path.starts_with('/') {
        return fail(format!("Specified file {path} is not an absolute path"));
    }
    let path = path.trim_end_matches('/');
    Ok(if path.is_empty() { "/" } else { path }.to_owned())
}

/// The directory that holds `path`.
pub(super) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => path.get(..at).unwrap_or("/"),
    }
}

/// The path that `path` resolves to after links at its end are followed, and the entry there.
pub(crate) async fn follow(host: &dyn Host, path: &str) -> Result<(String, Option<Stat>), Failure> {
    let mut at = path.to_owned();
    for _ in 0..16 {
        let stat = host.stat(&at).await?;
        match stat {
            Some(Stat {
                kind: FileKind::Symlink,
                target: Some(target),
                ..
            }) => {
                at = if target.starts_with('/') {
                    target
                } else {
                    format!("{}/{target}", parent(&at))
                };
            }
            stat => return Ok((at, stat)),
        }
    }
    fail(format!("{path} is part of a loop of symbolic links"))
}

/// The path without links, `.` and `..`, like realpath(1); a missing component stays.
pub(super) async fn real_path(host: &dyn Host, path: &str) -> Result<String, Failure> {
    let parts = |path: &str| -> Vec<String> { path.split('/').rev().map(str::to_owned).collect() };
    let mut at = "/".to_owned();
    let mut left = parts(path);
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at = parent(&at).to_owned();
                continue;
            }
            _ => {}
        }
        let next = join(&at, &part);
        match host.stat(&next).await?.and_then(|stat| stat.target) {
            Some(_) if links == 40 => {
                return fail(format!("{path} is part of a loop of symbolic links"));
            }
            Some(target) => {
                links += 1;
                if target.starts_with('/') {
                    at = "/".to_owned();
                }
                left.append(&mut parts(&target));
            }
            None => at = next,
        }
    }
    Ok(at)
}

/// Effects that make the missing parents of `path`; an error when `makedirs` is false and one is
/// missing.
pub(super) async fn parents(
    host: &dyn Host,
    path: &str,
    makedirs: bool,
    meta: &Meta,
) -> Result<Vec<Effect>, Failure> {
    let mut missing = Vec::new();
    let mut at = parent(path);
    while at != "/" {
        match follow(host, at).await?.1 {
            Some(stat) if stat.kind == FileKind::Directory => break,
            Some(_) => return fail(format!("{path}: {at} is not a directory")),
            None => missing.push(at.to_owned()),
        }
        at = parent(at);
    }
    // A package or program of the same plan may still create it.
    if !makedirs && !missing.is_empty() && !host.uncertain() {
        return fail(format!("Parent directory not present: {}", parent(path)));
    }
    if !makedirs {
        return Ok(Vec::new());
    }
    missing.reverse();
    Ok(missing
        .into_iter()
        .map(|path| Effect::Mkdir {
            path,
            meta: meta.clone(),
        })
        .collect())
}

/// Compares owner, group and mode of an entry with the required ones: the changes, and the values
/// to set.
pub(super) async fn meta_difference(
    host: &dyn Host,
    stat: &Stat,
    wanted: &Meta,
) -> Result<(Map<String, Value>, Meta), Failure> {
    let mut changes = Map::new();
    let mut set = Meta::default();
    if let Some(user) = &wanted.user
        && !same_user(host, &stat.user, user).await?
    {
        changes.insert("user".into(), json!({"old": stat.user, "new": user}));
        set.user = Some(user.clone());
    }
    if let Some(group) = &wanted.group
        && !same_group(host, &stat.group, group).await?
    {
        changes.insert("group".into(), json!({"old": stat.group, "new": group}));
        set.group = Some(group.clone());
    }
    if let Some(mode) = wanted.mode.filter(|mode| *mode != stat.mode) {
        changes.insert(
            "mode".into(),
            json!({"old": octal(stat.mode), "new": octal(mode)}),
        );
        set.mode = Some(mode);
    }
    // A change of owner clears the set-id bits of a file, so the mode is set after it.
    if set.user.is_some() || set.group.is_some() {
        set.mode = wanted.mode;
    }
    Ok((changes, set))
}

fn number(name: &str) -> Option<u32> {
    name.parse().ok()
}

async fn same_user(host: &dyn Host, found: &str, wanted: &str) -> Result<bool, Failure> {
    if found == wanted {
        return Ok(true);
    }
    match (number(found), number(wanted)) {
        (None, Some(uid)) => Ok(host.user(found).await?.is_some_and(|user| user.uid == uid)),
        (Some(uid), None) => Ok(host.user(wanted).await?.is_some_and(|user| user.uid == uid)),
        _ => Ok(false),
    }
}

async fn same_group(host: &dyn Host, found: &str, wanted: &str) -> Result<bool, Failure> {
    if found == wanted {
        return Ok(true);
    }
    match (number(found), number(wanted)) {
        (None, Some(gid)) => Ok(host
            .group(found)
            .await?
            .is_some_and(|group| group.gid == gid)),
        (Some(gid), None) => Ok(host
            .group(wanted)
            .await?
            .is_some_and(|group| group.gid == gid)),
        _ => Ok(false),
    }
}

/// Refuses an owner or group that this host does not know, unless an earlier effect of the plan may
/// create it.
pub(super) async fn known_owner(host: &dyn Host, meta: &Meta) -> Result<(), Failure> {
    if let Some(user) = meta
        .user
        .as_deref()
        .filter(|user| number(user).is_none() && *user != "root")
        && host.user(user).await?.is_none()
        && !host.uncertain()
    {
        return fail(format!("User {user} is not available"));
    }
    if let Some(group) = meta
        .group
        .as_deref()
        .filter(|group| number(group).is_none() && *group != "root")
        && host.group(group).await?.is_none()
        && !host.uncertain()
    {
        return fail(format!("Group {group} is not available"));
    }
    Ok(())
}

/// A mode in octal digits.
pub(super) fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

/// An entry of a directory tree, with its path below the root of the walk.
pub(super) type WalkedEntry = (String, Stat);

/// Everything below `root`, parents before children; links are not followed.
pub(super) async fn walk(host: &dyn Host, root: &str) -> Result<Vec<WalkedEntry>, Failure> {
    let mut found = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(directory) = todo.pop() {
        for name in host.list(&join(root, &directory)).await? {
            let relative = if directory.is_empty() {
                name
            } else {
                format!("{directory}/{name}")
            };
            let Some(stat) = host.stat(&join(root, &relative)).await? else {
                continue;
            };
            if stat.kind == FileKind::Directory {
                todo.push(relative.clone());
            }
            found.push((relative, stat));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// `root/relative`.
pub(super) fn join(root: &str, relative: &str) -> String {
    match (root, relative) {
        (root, "") => root.to_owned(),
        ("/", relative) => format!("/{relative}"),
        (root, relative) => format!("{root}/{relative}"),
    }
}

/// Returns whether `path` is `top` or below it.
pub(super) fn is_within(path: &str, top: &str) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || top.ends_with('/'))
}

/// Refuses to remove a path at or below which a file system is mounted: the removal would delete
/// its files before the kernel refuses to remove the mount point itself.
pub(super) async fn removable(host: &dyn Host, path: &str) -> Result<(), Failure> {
    not_mounted(host.mounts().await?, path)
}

fn not_mounted(mut mounts: Vec<MountPoint>, path: &str) -> Result<(), Failure> {
    mounts.retain(|mount| is_within(&mount.path, path));
    let Some(last) = mounts.last() else {
        return Ok(());
    };
    let named: Vec<String> = mounts
        .iter()
        .map(|mount| format!("{} ({} of {})", mount.path, mount.fstype, mount.device))
        .collect();
    fail(format!(
        "cannot remove {path}; nothing was removed: mounted there is {}. Unmount that first (`umount {}`; a line in \
         /etc/fstab would mount it again)",
        named.join(", "),
        last.path
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_mount_in_it_is_not_removed() {
        let mounts = vec![MountPoint {
            device: "/dev/sr0".to_owned(),
            root: "/".to_owned(),
            path: "/srv/b/c".to_owned(),
            fstype: "iso9660".to_owned(),
            options: "ro".to_owned(),
        }];
        not_mounted(mounts.clone(), "/srv/b/cc").unwrap();
        let refused = not_mounted(mounts, "/srv/b").unwrap_err().to_string();
        assert!(
            refused.contains("/srv/b/c (iso9660 of /dev/sr0)")
                && refused.contains("`umount /srv/b/c`"),
            "{refused}"
        );
    }
}
