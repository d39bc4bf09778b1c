//! The lab itself: a detector that cannot detect would make every other test worthless.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{Counts, Test};
use crate::{
    build,
    lab::{self, Lab, base, command, host::Spec, prerequisites, wait},
};

pub(super) const TESTS: &[Test<()>] = &[
    Test { name: "lab: both detectors detect", run: detectors },
    Test { name: "lab: the shipped programs are static", run: static_programs },
];

fn quiet(_: &str) {}

fn detectors((): &()) -> Result<Counts> {
    prerequisites::ensure(&mut quiet)?;
    let base = base::ensure(&lab::cache(), &mut quiet)?;
    let lab = Lab::new("detect", &base)?;
    lab.down()?;
    let spec =
        Spec { name: "bootstrap-1".to_owned(), number: 11, second_network: false, read_only: Vec::new() };
    let host = lab.boot(spec)?;
    ensure!(lab.router.unexpected_names()?.is_empty(), "a name was asked for before anybody asked");
    let before = lab.router.escaped()?;
    // Documentation address (RFC 5737): it is nobody's, and the router rejects the packet.
    host.output(&["ping", "-c", "1", "-W", "1", "192.0.2.1"])?;
    ensure!(lab.router.escaped()? > before, "the egress counter missed a packet to 192.0.2.1");
    host.output(&["getent", "hosts", "registry.example"])?;
    wait::until("the resolver to have noted the question", Duration::from_secs(5), || {
        let names = lab.router.unexpected_names().map_err(|e| e.to_string())?;
        if names.iter().any(|n| n == "registry.example") { Ok(()) } else { Err(format!("only {names:?}")) }
    })?;
    lab.down()?;
    Ok(Counts::ONE)
}

/// Runs each shipped program in a root that holds nothing but the program.
fn static_programs((): &()) -> Result<Counts> {
    let programs = build::release(&mut quiet)?;
    let root = tempfile::tempdir()?;
    for name in ["ctl", "halite-master", "halite-minion"] {
        let target: PathBuf = root.path().join(name);
        fs::copy(programs.join(name), &target).with_context(|| format!("no {name} was built"))?;
        let inside = format!("/{name}");
        command::run("chroot", &[root.path().as_os_str(), inside.as_ref(), "--version".as_ref()])
            .with_context(|| format!("{name} needs something besides itself"))?;
    }
    Ok(Counts::ONE)
}
