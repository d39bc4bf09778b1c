//! Directories on a separate disk or share that is not mounted: a backup would be written to the
//! disk below the mount point, and be lost with it.

use std::path::{Path, PathBuf};

/// The mount point that a directory is on by `/etc/fstab` and not in fact; `None` if all is well.
/// The arguments are the texts of `/etc/fstab` and `/proc/self/mounts` (fstab(5)).
#[must_use]
pub fn unmounted(directory: &Path, fstab: &str, mounts: &str) -> Option<PathBuf> {
    let declared = fstab.lines().filter_map(mount_point);
    let innermost = declared
        .filter(|point| directory.starts_with(point))
        .max_by_key(|point| point.components().count())?;
    let is_mounted = mounts
        .lines()
        .filter_map(mount_point)
        .any(|point| point == innermost);
    (!is_mounted).then_some(innermost)
}

/// The second field of a line; `None` for comments, swap and the root.
fn mount_point(line: &str) -> Option<PathBuf> {
    let line = line.trim();
    let field = line.split_whitespace().nth(1)?;
    let is_point = !line.starts_with('#') && field.starts_with('/') && field != "/";
    is_point.then(|| PathBuf::from(unescaped(field)))
}

/// Replaces octal escapes of field separators: `\040` is a space.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3);
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSTAB: &str = "# disks\n/dev/sda1 / ext4 defaults 0 1\nnas:/b /srv/backup nfs defaults 0 0\n\
        /dev/sdb1 /srv/my\\040disk ext4 noauto 0 2\n/dev/sda2 none swap sw 0 0\n";

    #[test]
    fn a_declared_mount_that_is_missing_is_found() {
        let only_root = "/dev/sda1 / ext4 rw 0 0\n";
        let unmounted =
            |directory: &str, mounts: &str| super::unmounted(Path::new(directory), FSTAB, mounts);
        let nas = Some(PathBuf::from("/srv/backup"));
        assert_eq!(unmounted("/srv/backup", only_root), nas);
        assert_eq!(unmounted("/srv/backup/halite", only_root), nas);
        assert_eq!(unmounted("/srv/backups", only_root), None);
        assert_eq!(unmounted("/var/lib/halite/backup", only_root), None);
        let mounted = "/dev/sda1 / ext4 rw 0 0\nnas:/b /srv/backup nfs4 rw 0 0\n";
        assert_eq!(unmounted("/srv/backup/halite", mounted), None);
        let disk = Some(PathBuf::from("/srv/my disk"));
        assert_eq!(unmounted("/srv/my disk/x", only_root), disk);
        assert_eq!(
            unmounted("/srv/my disk/x", "d /srv/my\\040disk ext4 rw 0 0\n"),
            None
        );
    }
}
