//! The directory for files of an ISO that the checks and the plan need. The minion program is
//! started from it, and hardened hosts often have a small `/tmp` from which no program runs.

use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The directories that are tried after the system's temporary one. The preflight requires that
/// programs can run from the last.
const FURTHER: [&str; 2] = ["/var/tmp", "/var/lib"];

/// The directory in which programs can run and that has this many free bytes; the system's
/// temporary one if there is none, whose error then names the reason.
pub(super) fn place(needed: u64) -> PathBuf {
    let temporary = std::env::temp_dir();
    let further = FURTHER.map(PathBuf::from);
    let mut places = [temporary.clone()].into_iter().chain(further);
    places
        .find(|place| serves(place, needed))
        .unwrap_or(temporary)
}

fn serves(place: &Path, needed: u64) -> bool {
    statvfs(place).is_ok_and(|stat| {
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        free >= needed && is_usable(stat.f_flag)
    })
}

/// Returns whether files can be written on a file system, and programs started from it.
fn is_usable(flags: StatVfsMountFlags) -> bool {
    !flags.intersects(StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_room_does_not_serve() {
        assert!(serves(Path::new("/var/lib"), 1));
        assert!(!serves(Path::new("/var/lib"), u64::MAX));
        assert!(!serves(Path::new("/no/such/directory"), 0));
    }

    #[test]
    fn a_directory_from_which_no_program_runs_does_not_serve() {
        assert!(is_usable(StatVfsMountFlags::NOSUID));
        assert!(!is_usable(
            StatVfsMountFlags::NOSUID | StatVfsMountFlags::NOEXEC
        ));
        assert!(!is_usable(StatVfsMountFlags::RDONLY));
    }
}
