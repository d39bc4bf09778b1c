//! The units of Halite's programs: their sandbox, as systemd itself judges it, and the resources
//! that they may use.

use std::fs;
use std::process::Command;

use crate::servers::site_registry;
use crate::support::{contents, highstate, of};

/// The exposure that `systemd-analyze security` computes, from 0 to 10; `None` if the machine lacks
/// it or has one that cannot judge a file.
fn exposure(name: &str, unit: &str) -> Option<f64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, unit).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(&path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.split_once("Overall exposure level for "))?;
    let (_, level) = line.1.split_once(": ")?;
    Some(level.split(' ').next()?.parse().unwrap())
}

#[test]
fn units_are_exposed_no_more_than_their_work_needs() {
    let (pillar, grains) = site_registry("bootstrap", "bootstrap-1");
    let here = highstate(&pillar, &grains);
    for (unit, most) in [
        ("halite-master.service", 3.0),
        ("halite-registry-backup.service", 3.0),
        ("halite-registry-verify.service", 3.0),
        ("halite-failed@.service", 3.0),
        ("halite-backup.service", 3.0),
        ("halite-backup-verify.service", 3.0),
        ("halite-registry.service", 3.0),
        // Root on the host, with all of root's power: its work needs that.
        ("halite-minion.service", 9.5),
    ] {
        let text = contents(&here, &format!("/etc/systemd/system/{unit}"));
        if let Some(found) = exposure(&unit.replace('@', "@x"), text) {
            assert!(found <= most, "{unit}: {found} is more than {most}");
        }
    }
}

/// `ctl backup create` exits with 3 if the backup was made but a later step failed.
#[test]
fn a_backup_that_was_made_is_not_made_again() {
    let unit = contents(
        &of("bootstrap"),
        "/etc/systemd/system/halite-backup.service",
    )
    .to_owned();
    let lines: Vec<&str> = unit.lines().collect();
    for line in ["Restart=on-failure", "RestartPreventExitStatus=3"] {
        assert!(lines.contains(&line), "{line}: {unit}");
    }
}

/// Without it a master keeps 5 MiB more after a run of a thousand states (docs/performance.md).
const TUNABLES: &str =
    "Environment=GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0";

#[test]
fn the_kernel_kills_the_master_before_etcd_and_no_core_has_keys() {
    let bootstrap = of("bootstrap");
    let lines = |unit: &str| -> Vec<String> {
        let text = contents(&bootstrap, &format!("/etc/systemd/system/{unit}"));
        text.lines().map(str::to_owned).collect()
    };
    let master = lines("halite-master.service");
    for line in [
        TUNABLES,
        "LimitCORE=0",
        "WatchdogSec=120",
        "LimitNOFILE=65536",
        "MemoryHigh=2G",
        "MemoryMax=4G",
        // etcd, a critical static pod, has -997.
        "OOMScoreAdjust=200",
        "ReadWritePaths=/etc/halite /var/lib/halite",
    ] {
        assert!(master.iter().any(|there| there == line), "{line}");
    }
    let minion = lines("halite-minion.service");
    for line in [TUNABLES, "LimitCORE=0"] {
        assert!(minion.iter().any(|there| there == line), "{line}");
    }
    // With its own mount namespace, the mounts of states would be hidden from the host.
    for line in minion {
        assert!(
            !line.starts_with("Protect") && !line.starts_with("Private"),
            "{line}"
        );
    }
}
