//! `clean`: the entries of a directory that no state wants.

use halite_errors::chain;
use halite_states::args::Args;
use halite_states::pattern::PathPattern;

use super::paths::{WalkedEntry, is_within, join};
use super::{Failure, failure};
use crate::host::MountPoint;

/// Entries that `clean` keeps in addition to the state's own, each with everything below it.
#[derive(Debug, Default)]
pub(super) struct Keep {
    /// Relative paths that required states manage; an empty one is the directory itself.
    paths: Vec<String>,
    /// `exclude_pat`.
    patterns: Vec<PathPattern>,
}

impl Keep {
    /// Reads `exclude_pat`, and the paths that the compiler found below the directory `name`.
    pub fn read(args: &Args<'_>, name: &str) -> Result<Self, Failure> {
        let paths = args.list("keep")?;
        let below = |path: &String| {
            let rest = path.strip_prefix(name.trim_end_matches('/'))?;
            Some(rest.trim_matches('/').to_owned())
        };
        let patterns = args.list("exclude_pat")?;
        let read = |pattern: &String| {
            PathPattern::new(pattern).map_err(|error| {
                failure(format!(
                    "`exclude_pat` is not understood: {}",
                    chain(&error)
                ))
            })
        };
        Ok(Self {
            paths: paths.iter().filter_map(below).collect(),
            patterns: patterns.iter().map(read).collect::<Result<_, _>>()?,
        })
    }

    fn holds(&self, path: &str) -> bool {
        let mut at = path;
        loop {
            if self.paths.iter().any(|kept| kept == at || kept.is_empty())
                || self.patterns.iter().any(|pattern| pattern.is_match(at))
            {
                return true;
            }
            match at.rfind('/') {
                Some(cut) => at = at.get(..cut).unwrap_or_default(),
                None => return false,
            }
        }
    }
}

/// The entries of `found` to remove so that only kept ones are left: the topmost paths, each with
/// everything below it. A directory with a kept entry in it stays.
fn surplus(found: &[WalkedEntry], own: impl Fn(&str) -> bool, keep: &Keep) -> Vec<String> {
    let kept: Vec<&str> = found
        .iter()
        .map(|(path, _)| path.as_str())
        .filter(|path| own(path) || keep.holds(path))
        .collect();
    let holds = |directory: &str| {
        kept.iter().any(|path| {
            *path == directory
                || path
                    .strip_prefix(directory)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let mut removed: Vec<String> = Vec::new();
    for (path, _) in found {
        let below_gone = removed.iter().any(|top| {
            path.strip_prefix(top.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        });
        if !below_gone && !holds(path) {
            removed.push(path.clone());
        }
    }
    removed
}

/// Like [`surplus`], below `root`, as full paths; with a remark that names the mounted file systems
/// that stay (empty without any). `own` are the state's own paths, `mounts` all mounts of the host.
pub(super) fn surplus_below(
    mounts: &[MountPoint],
    root: &str,
    found: &[WalkedEntry],
    own: impl Fn(&str) -> bool,
    keep: &Keep,
) -> (Vec<String>, String) {
    let full =
        |paths: Vec<String>| -> Vec<String> { paths.iter().map(|path| join(root, path)).collect() };
    let removed = full(surplus(found, &own, keep));
    let below = mounts.iter().map(|mount| mount.path.as_str());
    let below = below.filter(|mount| *mount != root && is_within(mount, root));
    let concerned = |mount: &&str| {
        removed
            .iter()
            .any(|top| is_within(mount, top) || is_within(top, mount))
    };
    let left: Vec<&str> = below.filter(concerned).collect();
    if left.is_empty() {
        return (removed, String::new());
    }
    let is_left = |path: &str| left.iter().any(|mount| is_within(&join(root, path), mount));
    let removed = full(surplus(found, |path| own(path) || is_left(path), keep));
    (
        removed,
        format!(
            "; left alone, because a file system is mounted there: {}",
            left.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::{FileKind, Stat};

    fn entry(kind: FileKind) -> Stat {
        Stat {
            kind,
            mode: 0,
            user: String::new(),
            group: String::new(),
            size: 0,
            target: None,
        }
    }

    fn keeping(patterns: &[&str]) -> Keep {
        let read = |pattern: &&str| PathPattern::new(pattern).unwrap();
        Keep {
            paths: Vec::new(),
            patterns: patterns.iter().map(read).collect(),
        }
    }

    #[test]
    fn required_paths_and_patterns_are_kept_with_all_below() {
        let chunk = serde_json::from_value(json!({
            "state": "file", "fun": "directory", "id": "x", "name": "/srv/", "sls": "s",
            "source": {"file": "s.sls", "line": 1, "column": 1},
            "args": {"keep": ["/srv/own", "/srv/d/e"], "exclude_pat": ["E@[.]bak$", "[xy]"]},
        }))
        .unwrap();
        let keep = Keep::read(&Args::new(&chunk), "/srv/").unwrap();
        for (path, wanted) in [
            ("own", true),
            ("own/deep/x", true),
            ("ownx", false),
            ("d", false),
            ("d/e/x", true),
            ("a.bak", true),
            ("x/y/z", true),
            ("z", false),
        ] {
            assert_eq!(keep.holds(path), wanted, "{path}");
        }
    }

    #[test]
    fn only_the_topmost_surplus_paths_are_removed() {
        let found: Vec<WalkedEntry> = ["a", "a/x", "a/y", "b", "b/keep", "b/z", "c"]
            .iter()
            .map(|path| ((*path).to_owned(), entry(FileKind::Other)))
            .collect();
        assert_eq!(
            surplus(&found, |path| path == "c", &keeping(&["b/keep"])),
            ["a", "b/z"]
        );
        assert_eq!(surplus(&found, |_| false, &keeping(&["a", "b"])), ["c"]);
    }

    #[test]
    fn another_file_system_is_not_surplus() {
        let mount = |path: &str| MountPoint {
            device: "/dev/sr0".to_owned(),
            root: "/".to_owned(),
            path: path.to_owned(),
            fstype: "iso9660".to_owned(),
            options: "ro".to_owned(),
        };
        let surplus_of = |mounts: &[MountPoint], root: &str, paths: &[&str]| {
            let found: Vec<WalkedEntry> = paths
                .iter()
                .map(|path| ((*path).to_owned(), entry(FileKind::Other)))
                .collect();
            surplus_below(mounts, root, &found, |_| false, &Keep::default())
        };
        let tree = ["a", "b", "b/c", "b/c/x", "b/cc", "b/y"];
        // A mount point at the root of the walk protects nothing below it.
        let mut mounts = vec![mount("/srv")];
        assert_eq!(
            surplus_of(&mounts, "/srv", &tree),
            (
                vec!["/srv/a".to_owned(), "/srv/b".to_owned()],
                String::new()
            )
        );
        mounts.push(mount("/srv/b/c"));
        let (paths, remark) = surplus_of(&mounts, "/srv", &tree);
        assert_eq!(paths, ["/srv/a", "/srv/b/cc", "/srv/b/y"]);
        assert!(
            remark.contains("left alone") && remark.ends_with(": /srv/b/c"),
            "{remark}"
        );
        assert_eq!(surplus_of(&mounts, "/srv/b/c", &["x"]).0, ["/srv/b/c/x"]);
    }
}
