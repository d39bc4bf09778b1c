//! A bundle with another Halite: the change that the guide describes, there and back, with an
//! interruption in the middle.
//!
//! Its minion is another program, and shows this by its version. The other programs behave like
//! those of the first bundle, but are different files: each has some extra bytes at its end, which
//! the kernel ignores. Building them again, too, would cost minutes and show nothing more: the same
//! commands replace them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use halite_lab::cluster::{Cluster, WORKER};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::progress::Board;
use halite_lab::{build, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{ADDRESSES, FIRST, as_remembered, listed, problems, remember, second};
use crate::checks::only_served;
use crate::health;
use crate::kills::{ended, spawn};
use crate::repair::{daemons, daemons_restarted, highstate_by, quiet, still, workload};
use crate::test::Counts;

/// Version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-halite");

/// Path of its ISO on the bootstrap host.
const CARRIED: &str = "/root/other-halite.iso";

/// Halite's own programs.
const PROGRAMS: [&str; 3] = ["ctl", "halite-master", MINION];

/// The program that is built again.
const MINION: &str = "halite-minion";

/// Path of the master's program on the first host.
pub(crate) const MASTER: &str = "/usr/local/bin/halite-master";

/// Limit for `ctl bootstrap` to reach the replacement of the master's program: it inspects
/// documents, host and bundle first.
const MOMENT: Duration = Duration::from_secs(180);

/// The directory of a bundle on the site.
fn place(version: &str) -> String {
    format!("/var/lib/halite/bundles/{version}")
}

/// The SHA-256 of one of a bundle's programs.
fn digest(cluster: &Cluster, version: &str, program: &str) -> Result<String> {
    let text = fs::read(
        cluster
            .bootstrap
            .file(&place(version))
            .join("manifest.json"),
    )?;
    let manifest: Value = serde_json::from_slice(&text)?;
    let digest = manifest["files"][format!("bin/{program}")]["sha256"].as_str();
    Ok(digest
        .with_context(|| format!("the bundle {version} has no {program}"))?
        .to_owned())
}

/// Makes the bundle, and copies its ISO to the bootstrap host.
fn carry(cluster: &Cluster) -> Result<()> {
    let work = tempfile::Builder::new()
        .prefix("other-halite-")
        .tempdir_in(halite_lab::cache())?;
    let iso = second::variant(work.path(), VERSION, 2, |recipe, _| {
        other_programs(recipe, work.path())
    })?;
    fs::copy(iso, cluster.bootstrap.file(CARRIED))?;
    Ok(())
}

/// Replaces Halite's programs in the lab's recipe by others, which are made in the folder `work`.
///
/// # Errors
/// The recipe lacks a program, or one cannot be made.
pub(crate) fn other_programs(recipe: &mut Value, work: &Path) -> Result<()> {
    let inputs = recipe["sbom-inputs"]
        .as_str()
        .context("the lab's recipe names no inputs")?;
    let mut inputs: Value = serde_json::from_slice(&fs::read(inputs)?)?;
    for name in PROGRAMS {
        let before = recipe["binaries"][name].clone();
        let from = before
            .as_str()
            .with_context(|| format!("the lab's recipe names no {name}"))?;
        let to = work.join(name);
        if name == MINION {
            let other = build::other_minion(&Board::plain())?;
            fs::copy(&other, &to).with_context(|| format!("cannot copy {}", other.display()))?;
        } else {
            fs::copy(from, &to).with_context(|| format!("cannot copy {from}"))?;
            // The kernel loads the segments that the headers name, and ignores these bytes.
            fs::File::options()
                .append(true)
                .open(&to)?
                .write_all(b"another Halite\n")?;
        }
        let digest = run("sha256sum", &[&to])?;
        let digest = digest
            .split_whitespace()
            .next()
            .context("sha256sum printed nothing")?;
        inputs["programs"][name]["sha256"] = json!(digest);
        // The program is in the bundle twice: in the programs' directory, and in a package.
        let text = recipe
            .to_string()
            .replace(&before.to_string(), &json!(to).to_string());
        *recipe = serde_json::from_str(&text)?;
    }
    let file = work.join("sbom-inputs.json");
    fs::write(&file, inputs.to_string())?;
    recipe["sbom-inputs"] = json!(file);
    Ok(())
}

/// Checks that a unit's process runs the program of that bundle, and that the installed program is
/// the same.
pub(crate) fn runs(cluster: &Cluster, host: &Host, program: &str, version: &str) -> Result<()> {
    let wanted = digest(cluster, version, program)?;
    let process = format!("/proc/$(systemctl show -p MainPID --value {program})/exe");
    for file in [process, format!("/usr/local/bin/{program}")] {
        let found = host.sh(&format!("sha256sum < {file}"))?;
        ensure!(
            found.starts_with(&wanted),
            "{file} on {} is not {program} of the bundle {version} ({wanted}), but {found}",
            host.spec.name
        );
    }
    Ok(())
}

/// Checks that Halite on the first host comes from that bundle.
pub(crate) fn first_host(cluster: &Cluster, version: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    for program in ["halite-master", "halite-minion"] {
        runs(cluster, host, program, version)?;
    }
    let ctl = host.sh("sha256sum < $(command -v ctl)")?;
    ensure!(
        ctl.starts_with(&digest(cluster, version, "ctl")?),
        "ctl is not the one of {version}, but {ctl}"
    );
    Ok(())
}

/// Checks that the minions of all hosts have the version of the first bundle's minion, with this
/// end.
pub(crate) fn minions_say(cluster: &Cluster, end: &str) -> Result<()> {
    let wanted = format!("{FIRST}{end}");
    let status = health::status(cluster)?;
    let nodes = status.nodes;
    for host in cluster.hosts() {
        let node = nodes
            .iter()
            .find(|node| node.name == host.spec.name.as_str());
        let said = node.and_then(|node| node.version.as_deref());
        ensure!(
            said == Some(wanted.as_str()),
            "the minion of {} should be of version {wanted}: {said:?}",
            host.spec.name
        );
    }
    Ok(())
}

/// The command that installs a bundle's own Halite on this host, as `ctl bundle use` prints it.
fn bootstrap(version: &str) -> String {
    format!("{}/bin/ctl bootstrap", place(version))
}

/// The same command, without asking the operator.
fn unasked(version: &str) -> Vec<String> {
    bootstrap(version)
        .split(' ')
        .chain(["--yes"])
        .map(str::to_owned)
        .collect()
}

/// Changes from one bundle to the other exactly as the guide describes. `options` are those of `ctl
/// bundle use`; with `cut` the bootstrap is interrupted and run again.
fn change_bundle(cluster: &Cluster, version: &str, options: &[&str], cut: bool) -> Result<()> {
    let host = &cluster.bootstrap;
    let before = workload(cluster)?;
    let printed = host.run(&[["ctl", "bundle", "use", version].as_slice(), options].concat())?;
    ensure!(
        printed.contains(&format!("`{}`", bootstrap(version))),
        "ctl bundle use does not name the first step: {printed}"
    );
    if cut {
        cut_off(cluster, version)?;
    }
    host.run(&unasked(version))?;
    first_host(cluster, version)?;
    if !cut {
        whole_life(host)?;
    }
    let restarting = daemons(cluster)?;
    let plan = highstate_by(cluster, "ctl", &["--test"])?;
    let answer = highstate_by(cluster, "ctl", &[])?;
    for found in [&plan, &answer] {
        ensure!(
            found.updated_first.iter().eq([WORKER]),
            "not the worker's minion alone is updated first, but {:?}",
            found.updated_first
        );
    }
    let others: Vec<&String> = answer
        .changed
        .iter()
        .filter(|tag| {
            let of_bundle =
                tag.contains("halite-minion") || ADDRESSES.iter().any(|part| tag.contains(part));
            !(tag.starts_with(&format!("{WORKER}: ")) && of_bundle)
        })
        .collect();
    ensure!(
        others.is_empty(),
        "after the bootstrap the highstate had to change {others:#?}"
    );
    daemons_restarted(cluster, &restarting, &answer)?;
    first_host(cluster, version)?;
    runs(cluster, &cluster.worker, "halite-minion", version)?;
    still(cluster, &before)?;
    quiet(cluster)?;
    minions_say(cluster, if version == VERSION { build::OTHER } else { "" })?;
    listed(cluster, version, true, cluster.hosts().len())?;
    let problems = problems(cluster)?;
    ensure!(
        problems.is_empty(),
        "ctl status complains about {problems:?}"
    );
    Ok(())
}

/// Checks that the running master started its bootstrap itself, and did not resume one of a master
/// with other states.
fn whole_life(host: &Host) -> Result<()> {
    let unit = "_SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value halite-master)";
    let log = host.sh(&format!("journalctl -o cat --no-pager {unit}"))?;
    ensure!(
        log.contains("master serves"),
        "the master's journal is not found: {log}"
    );
    ensure!(
        !log.contains("interrupted"),
        "the new master resumed a run that the old one had started: {log}"
    );
    Ok(())
}

/// Kills `ctl bootstrap` and the program that it runs, as soon as the new master's program is
/// installed.
fn cut_off(cluster: &Cluster, version: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    let inode = || fs::metadata(host.file(MASTER)).map(|status| status.ino());
    let before = inode()?;
    let mut first = spawn(host, &unasked(version))?;
    // Find the processes to kill first: the moment is short.
    let programs = format!("{}/bin/", place(version));
    let mut found: Vec<Pid> = Vec::new();
    let over = wait::promptly("the new master's program", MOMENT, || {
        if inode().is_ok_and(|now| now != before) {
            return Ok(None);
        }
        if let Some(status) = first.try_wait()? {
            return Ok(Some(status));
        }
        if found.len() < 2 {
            found = at_work(host, &programs)?;
        }
        Err(anyhow!(
            "{} programs of the bundle are running",
            found.len()
        ))
    })?;
    if let Some(status) = over {
        bail!("ctl bootstrap has ended with {status} before the new master's program came");
    }
    // Kill the working process before the one that waits for it.
    let killed = found
        .iter()
        .rev()
        .filter(|pid| kill_process(**pid, Signal::KILL).is_ok())
        .count();
    let status = ended(&mut first)?;
    ensure!(
        killed == 2 && !status.success(),
        "{killed} programs were killed, and ctl bootstrap ended with {status}"
    );
    match runs(cluster, host, "halite-master", version) {
        Ok(()) => bail!("the master runs the new program already: this shows nothing"),
        Err(_) => Ok(()),
    }
}

/// The process ids, as the machine numbers them, of `ctl` and of that bundle's program that applies
/// states for it; both or none.
fn at_work(host: &Host, programs: &str) -> Result<Vec<Pid>> {
    let init = host
        .init()
        .with_context(|| format!("{} does not run", host.spec.name))?;
    let namespace = fs::read_link(format!("/proc/{init}/ns/pid"))?;
    let (mut ctl, mut minion) = (None, None);
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let Some(line) = line.strip_prefix(programs) else {
            continue;
        };
        if fs::read_link(entry.path().join("ns/pid")).is_ok_and(|ns| ns == namespace) {
            let pid = entry
                .file_name()
                .to_string_lossy()
                .parse()
                .ok()
                .and_then(Pid::from_raw);
            if line.starts_with("ctl ") {
                ctl = pid;
            } else if line.starts_with("halite-minion apply") && !line.contains("--test") {
                minion = pid;
            }
        }
    }
    Ok(ctl
        .zip(minion)
        .map_or_else(Vec::new, |(ctl, minion)| vec![ctl, minion]))
}

pub(super) fn there(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    remember(cluster)?;
    first_host(cluster, FIRST)?;
    carry(cluster)?;
    host.run(&["ctl", "bundle", "add", CARRIED])?;
    fs::remove_file(host.file(CARRIED))?;
    for program in PROGRAMS {
        ensure!(
            digest(cluster, VERSION, program)? != digest(cluster, FIRST, program)?,
            "{program} is the same"
        );
    }
    change_bundle(cluster, VERSION, &[], true)?;
    Ok(Counts::ONE)
}

pub(super) fn back(cluster: &Cluster) -> Result<Counts> {
    change_bundle(cluster, FIRST, &["--allow-downgrade"], false)?;
    cluster
        .bootstrap
        .run(&["ctl", "bundle", "remove", VERSION, "--yes"])?;
    only_served(cluster)?;
    quiet(cluster)?;
    as_remembered(cluster)?;
    Ok(Counts::ONE)
}
