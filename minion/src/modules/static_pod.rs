//! `static_pod.*`, and `unit.*`: a systemd unit in the place of a static pod.

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::paths::{absolute, parents};
use super::{Failure, Plan, fail};
use crate::host::Host;
use crate::host::effect::{Command, Effect, Meta};
use crate::host::pod::{Process, StaticPod};
use crate::host::static_pod::{Facts, Probe, capital, files, observe, record, same_manifest};

/// The directory of the last good manifests. It is on the host itself: a restored disk has both.
const RECORDS: &str = "/var/lib/halite/manifests";
/// The directory of the units' files.
const UNITS: &str = "/etc/systemd/system";
/// Seconds until a wait fails: longer than the kubelet waits between two restarts of a container.
const LIMIT: u64 = 330;

/// One observation now; waiting is an effect, so that a check never waits.
pub(super) async fn running(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    compare(host, described(chunk)?).await
}

/// Salt's `mod_watch`: waits for the pod after every change of its inputs, even if it was ready a
/// moment ago.
pub(super) async fn watched(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    wait_again(host, described(chunk)?).await
}

/// The same for a unit.
pub(super) async fn unit_ready(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    compare(host, described_unit(chunk)?).await
}

/// The same for a unit.
pub(super) async fn unit_watched(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    wait_again(host, described_unit(chunk)?).await
}

async fn compare(host: &dyn Host, pod: StaticPod) -> Result<Plan, Failure> {
    let facts = observed(host, &pod).await?;
    let name = capital(&pod.title());
    let process = facts.process.as_ref().filter(|_| facts.certain);
    let known = match process {
        Some(process) => known(host, &pod, process).await?,
        None => Known::Not,
    };
    if let (Known::Outdated(file), Some(process)) = (&known, process) {
        let found = format!("started before {file} was changed");
        return plan(host, &pod, &found, Some(process.clone())).await;
    }
    let found = match (process, &facts.probe) {
        (Some(_), Probe::Ready) if known == Known::Good => {
            return Ok(Plan::nothing(format!("{name} is ready")));
        }
        (Some(_), Probe::Live(reason)) if known == Known::Good && pod.quorum => {
            return Ok(Plan::nothing(format!(
                "{name} runs, and waits for its peers: {reason}"
            )));
        }
        (Some(_), Probe::Ready) => "ready, not recorded",
        (Some(_), Probe::Live(reason) | Probe::Fails(reason)) => reason,
        (None, _) if facts.process.is_some() || facts.another => match pod.unit {
            Some(_) => "the program of another unit file",
            None => "the container of another manifest",
        },
        (None, _) if pod.unit.is_some() => "no program",
        (None, _) => "no container",
    };
    plan(host, &pod, found, None).await
}

async fn wait_again(host: &dyn Host, pod: StaticPod) -> Result<Plan, Failure> {
    observed(host, &pod).await?;
    plan(host, &pod, "ready before a change", None).await
}

async fn observed(host: &dyn Host, pod: &StaticPod) -> Result<Facts, Failure> {
    if host.read(&pod.manifest).await?.is_none() && !host.uncertain() {
        return fail(format!(
            "cannot wait for {}: its {} {} does not exist; require the state that writes it",
            pod.title(),
            if pod.unit.is_some() {
                "file"
            } else {
                "manifest"
            },
            pod.manifest
        ));
    }
    Ok(observe(host, pod).await?)
}

/// The wait that the arguments describe.
pub(super) fn described(chunk: &Chunk) -> Result<StaticPod, Failure> {
    let args = Args::new(chunk);
    let manifest = absolute(&args.required("manifest")?)?;
    let file = manifest.rsplit('/').next().unwrap_or_default();
    let name = match args.text("pod")? {
        Some(name) => name,
        None => file.strip_suffix(".yaml").unwrap_or(file).to_owned(),
    };
    if name.is_empty() || name.contains(['/', '_']) {
        return fail(format!("`{name}` is not a valid pod name"));
    }
    Ok(StaticPod {
        record: format!("{RECORDS}/{name}.json"),
        manifest,
        ready: args.required("ready")?,
        live: args.text("live")?,
        behind: args.text("behind")?,
        quorum: args.flag("quorum", false)?,
        reads: args.list("reads")?,
        seconds: args.number("timeout")?.unwrap_or(LIMIT),
        name,
        ..StaticPod::default()
    })
}

/// The wait for a unit that the arguments describe. Its name is its program's.
fn described_unit(chunk: &Chunk) -> Result<StaticPod, Failure> {
    let args = Args::new(chunk);
    let name = chunk.name.as_str();
    let name = name.strip_suffix(".service").unwrap_or(name).to_owned();
    if name.is_empty() || name.contains('/') {
        return fail(format!("`{name}` is not a valid unit name"));
    }
    let unit = format!("{name}.service");
    Ok(StaticPod {
        manifest: format!("{UNITS}/{unit}"),
        record: format!("{RECORDS}/{unit}.json"),
        unit: Some(unit),
        ready: args.required("ready")?,
        live: args.text("live")?,
        quorum: args.flag("quorum", false)?,
        reads: args.list("reads")?,
        seconds: args.number("timeout")?.unwrap_or(LIMIT),
        name,
        ..StaticPod::default()
    })
}

/// The record's information about a process of the manifest on disk.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// No record of this pod with this manifest exists, or it lacks a file.
    Not,
    /// The record matches this pod and the present files.
    Good,
    /// This file has changed since the pod was recorded.
    Outdated(String),
}

async fn known(host: &dyn Host, pod: &StaticPod, process: &Process) -> Result<Known, Failure> {
    let manifest = host.read(&pod.manifest).await?.unwrap_or_default();
    let manifest = String::from_utf8_lossy(&manifest);
    let Some(record) = record(host, pod).await? else {
        return Ok(Known::Not);
    };
    let files = files(host, pod).await?;
    let outdated = |(path, digest): &(&String, &String)| {
        record
            .files
            .get(*path)
            .is_some_and(|known| known != *digest)
    };
    if let Some((path, _)) = files.iter().find(outdated) {
        return Ok(Known::Outdated(path.clone()));
    }
    let same = record.uid == process.uid && same_manifest(&record.manifest, &manifest);
    Ok(if same && record.files == files {
        Known::Good
    } else {
        Known::Not
    })
}

/// Restarts a program, given the id of its process and its start in clock ticks
/// (docs/decisions/0116). It is killed no later than by the kubelet, which waits for 30 seconds.
/// Without etcd, API servers take a minute to answer, and a new kubelet would wait that long. So
/// for etcd it is better to sit out the delays of the running kubelet.
const RESTART: &str = r#"pid=$0 started=$1
is_alive() { test "$(cut -d ' ' -f 22 "/proc/$pid/stat" 2>/dev/null)" = "$started"; }
is_alive || exit 0
name=$(cat "/proc/$pid/comm")
kill -TERM "$pid" || ! is_alive || exit
for _ in $(seq 52); do is_alive && ss -Hltnp | grep -q "pid=$pid," || break; sleep 0.5; done
for _ in $(seq 4); do is_alive || break; sleep 0.5; done
if is_alive; then kill -KILL "$pid" || ! is_alive || exit; fi
for _ in $(seq 20); do is_alive || break; sleep 0.1; done
delays=10; test "$name" != etcd || delays=90
for _ in $(seq $delays); do ! pgrep -x "$name" >/dev/null || exit 0; sleep 0.5; done
! systemctl --quiet is-active kubelet.service || systemctl restart kubelet.service
"#;

/// The plan to wait, after the end of a process that has not read a changed file.
async fn plan(
    host: &dyn Host,
    pod: &StaticPod,
    found: &str,
    ended: Option<Process>,
) -> Result<Plan, Failure> {
    let (name, title) = (&pod.name, capital(&pod.title()));
    let mut effects = Vec::new();
    let (new, comment) = match &ended {
        Some(process) => {
            let (pid, started) = (process.pid.to_string(), process.started.to_string());
            let argv = ["/bin/sh", "-c", RESTART, &pid, &started].map(str::to_owned);
            effects.push(Effect::Run(Command {
                argv: argv.to_vec(),
                ..Command::default()
            }));
            ("restarted", format!("{title} would be restarted"))
        }
        None => ("ready", format!("would wait for {title}")),
    };
    effects.extend(wait(host, pod, ended).await?);
    Ok(Plan::change(
        Map::from_iter([(name.clone(), json!({"old": found, "new": new}))]),
        effects,
        comment,
        format!("{title} is ready"),
    ))
}

/// The effects of a wait.
pub(super) async fn wait(
    host: &dyn Host,
    pod: &StaticPod,
    ended: Option<Process>,
) -> Result<Vec<Effect>, Failure> {
    let private = Meta {
        mode: Some(0o700),
        ..Meta::default()
    };
    let mut effects = parents(host, &pod.record, true, &private).await?;
    effects.push(Effect::StaticPod(StaticPod {
        ended,
        ..pod.clone()
    }));
    Ok(effects)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the tests run the script on processes"
)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::{fs, thread};

    use tempfile::TempDir;

    use super::RESTART;

    /// A process that ignores SIGTERM, and its start.
    fn stubborn() -> (Child, u64) {
        stubborn_program("/bin/sh".as_ref())
    }

    /// The same as a copy of the shell.
    fn stubborn_program(shell: &Path) -> (Child, u64) {
        let line = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
        let mut child = Command::new(shell)
            .args(["-c", line])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        let started = start(child.id());
        (child, started)
    }

    fn start(pid: u32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.split(' ').nth(21).unwrap().parse().unwrap()
    }

    /// Restarts a process on a host on which `pgrep` finds its successor if that `comes`. Returns
    /// the calls of systemctl.
    fn restart(pid: u32, started: u64, comes: bool) -> String {
        restart_and_count(pid, started, comes).0
    }

    /// The same, with the number of looks for a successor.
    fn restart_and_count(pid: u32, started: u64, comes: bool) -> (String, usize) {
        let programs = TempDir::new().unwrap();
        let calls = programs.path().join("calls");
        let looks = programs.path().join("looks");
        let code = if comes { 0 } else { 1 };
        for (name, text) in [
            (
                "pgrep",
                format!("echo >> '{}'; exit {code}", looks.display()),
            ),
            ("sleep", "exec /bin/sleep 0.01".to_owned()),
            ("systemctl", format!("echo \"$*\" >> '{}'", calls.display())),
        ] {
            let path = programs.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:/usr/sbin:/usr/bin:/bin", programs.path().display());
        let status = Command::new("/bin/sh")
            .args(["-c", RESTART, &pid.to_string(), &started.to_string()])
            .env("PATH", path)
            .status()
            .unwrap();
        assert!(status.success());
        let looks = fs::read_to_string(looks).unwrap_or_default();
        (
            fs::read_to_string(calls).unwrap_or_default(),
            looks.lines().count(),
        )
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let (mut child, started) = stubborn();
        let pid = child.id();
        // An ended process keeps its entry in /proc until its parent has waited for it.
        let reaper = thread::spawn(move || child.wait().unwrap());
        assert_eq!(restart(pid, started, true), "");
        assert_eq!(reaper.join().unwrap().signal(), Some(9));
    }

    #[test]
    fn another_process_with_the_same_id_is_left_alone() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        restart(child.id(), start(child.id()) + 1, true);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_kubelet_is_restarted_if_it_delays_the_start() {
        let (mut child, started) = stubborn();
        let pid = child.id();
        let reaper = thread::spawn(move || child.wait().unwrap());
        assert_eq!(
            restart(pid, started, false),
            "--quiet is-active kubelet.service\nrestart kubelet.service\n"
        );
        reaper.join().unwrap();
    }

    #[test]
    fn the_kubelet_may_delay_the_start_of_etcd_for_longer() {
        let directory = TempDir::new().unwrap();
        let looks = ["etcd", "other"].map(|name| {
            let program = directory.path().join(name);
            fs::copy("/bin/sh", &program).unwrap();
            let (mut child, started) = stubborn_program(&program);
            let pid = child.id();
            let reaper = thread::spawn(move || child.wait().unwrap());
            let (calls, looks) = restart_and_count(pid, started, false);
            assert!(calls.ends_with("restart kubelet.service\n"), "{name}");
            reaper.join().unwrap();
            looks
        });
        assert_eq!(looks, [90, 10]);
    }
}
