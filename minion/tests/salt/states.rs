//! Comparison of whole states with real Salt: SLS texts, so that the spelling of a value counts.
//!
//! Salt 3008.3 applied each case twice, in a Debian 12 of its own, with real accounts, mounts,
//! kernel parameters, and packages of a repository that holds only those of the case. Only its
//! `systemctl` was replaced: `start`, `stop`, `restart`, `status` and `is-active` answered as
//! systemd does for units of `sleep`, `true` and `false`; the rest was systemd's own, offline.
//! `host` is the start that both had, and both applied the states in `start` themselves. The umask
//! of Salt was that of its daemon, 0022, except in `umask_default_of_salt_call`.

#[path = "../laws/shell.rs"]
mod shell;

use std::collections::{BTreeMap, BTreeSet};

use halite_minion::host::MountPoint;
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;
use serde::Deserialize;
use serde_json::Value;

use super::differences::compare_with_table;
use super::{apply, compile_text, probe};

const PROBES: [&str; 7] = [
    "accounts", "commands", "mounts", "packages", "scalars", "services", "sysctl",
];

/// Kernel parameters of the cases, with the values of a new network namespace.
const PARAMETERS: [(&str, &str); 3] = [
    ("net.ipv4.ip_forward", "0"),
    ("net.ipv4.ip_local_port_range", "32768\t60999"),
    ("net.ipv4.tcp_keepalive_time", "7200"),
];

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    host: Start,
    start: Option<String>,
    states: String,
    salt: Answer,
}

/// The host before the states.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Start {
    files: BTreeMap<String, String>,
    /// Commands that make the accounts, and `touch` for files in their homes.
    accounts: Vec<Vec<String>>,
    packages: BTreeMap<String, String>,
    /// Packages of the repository.
    offered: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Answer {
    /// `None` if Salt refused the states before it ran any.
    states: Option<Vec<Outcome>>,
    /// The host afterwards, by question.
    #[serde(default)]
    facts: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    id: String,
    result: Option<bool>,
    changed: bool,
    /// The second run changes something, or fails.
    again: bool,
    /// Standard output of a command.
    #[serde(default)]
    output: String,
}

impl Outcome {
    /// Returns whether two states did the same. A failed state may have changes in Salt, and has
    /// none here.
    fn is_like(&self, other: &Self) -> bool {
        let succeeded = |outcome: &Self| outcome.result == Some(true);
        let rest = |outcome: &Self| {
            let output = outcome.output.trim_end().to_owned();
            succeeded(outcome).then_some((outcome.changed, outcome.again, output))
        };
        self.id == other.id && rest(self) == rest(other)
    }
}

fn host(start: &Start) -> FakeHost {
    let host = FakeHost::new();
    let mut state = host.state();
    state.hook = Some(shell::run);
    for directory in ["/home", "/lab", "/srv"] {
        state.disk.put(directory, Node::directory());
    }
    state.put_file("/etc/fstab", b"# UNCONFIGURED FSTAB FOR BASE SYSTEM\n");
    state.mounts.push(MountPoint {
        device: "overlay".to_owned(),
        root: "/".to_owned(),
        path: "/".to_owned(),
        fstype: "overlay".to_owned(),
        options: "rw,relatime".to_owned(),
    });
    for (parameter, value) in PARAMETERS {
        state.put_sysctl(parameter, value);
    }
    for (path, text) in &start.files {
        state.put_file(path, text.as_bytes());
    }
    let daemon = "useradd -u 1 -d /usr/sbin -s /usr/sbin/nologin daemon";
    let daemon: Vec<String> = daemon.split(' ').map(str::to_owned).collect();
    for argv in [&daemon].into_iter().chain(&start.accounts) {
        let name = argv.last().unwrap();
        if argv.first().is_some_and(|program| program == "touch") {
            state.put_file(name, b"");
            continue;
        }
        if argv.iter().any(|word| word == "-m") {
            state.disk.put(&format!("/home/{name}"), Node::directory());
        }
        state.accounts.run(argv, None, None);
    }
    for (name, version) in &start.packages {
        state.packages.insert(name.clone(), version.clone());
    }
    for (name, version) in &start.offered {
        state.offer(name, version, &[], &[]);
    }
    drop(state);
    host
}

/// The answer of the fake host to a question of the record.
fn fact(host: &FakeHost, question: &str) -> Option<String> {
    let (kind, name) = question.split_once(' ').unwrap();
    let state = host.state();
    let text = |path: &str| {
        let content = state.disk.read(path)?;
        Some(String::from_utf8_lossy(content).into_owned())
    };
    let mount = || state.mounts.iter().rev().find(|mount| mount.path == name);
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    match kind {
        "file" => text(name),
        "mode" => Some(format!("{:04o}", state.disk.stat(name)?.mode)),
        "there" => state.disk.stat(name).map(|_| yes_or_no(true)),
        "user" => {
            let user = state.accounts.user(name)?;
            let groups = user.groups.join(",");
            Some(
                [&user.gecos, &user.home, &user.shell, &groups]
                    .map(String::as_str)
                    .join("|"),
            )
        }
        "uid" => Some(state.accounts.user(name)?.uid.to_string()),
        "gid" => Some(state.accounts.user(name)?.gid.to_string()),
        "group" => {
            let group = state.accounts.group(name)?;
            let members: BTreeSet<&str> = group.members.iter().map(String::as_str).collect();
            let members: Vec<&str> = members.into_iter().collect();
            Some(format!("{}:{}", group.gid, members.join(",")))
        }
        "package" => state.packages.get(name).cloned(),
        "sysctl" => {
            let value = state.sysctls.get(name)?;
            Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        "mount" => mount().map(|mount| mount.fstype.clone()),
        "read-only" => {
            mount().map(|mount| yes_or_no(mount.options.split(',').any(|option| option == "ro")))
        }
        "fstab" => {
            let fstab = text("/etc/fstab")?;
            let lines = fstab.lines().filter(|line| !line.starts_with('#'));
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
            let found = words.filter(|words| words.get(1) == Some(&name));
            let found: Vec<String> = found.map(|words| words.join(" ")).collect();
            (!found.is_empty()).then(|| found.join("\n"))
        }
        "unit" => {
            let unit = state.units.get(name).map(|unit| unit.active.clone());
            Some(unit.unwrap_or_else(|| "inactive".to_owned()))
        }
        // As `systemctl is-enabled` has it.
        "enabled" => {
            let file = state.units.get(name).map(|unit| unit.file.as_str());
            Some(yes_or_no(matches!(file, Some("enabled" | "static"))))
        }
        other => panic!("no such question: {other}"),
    }
}

/// Returns whether Halite does what Salt did.
fn is_same(case: &str, recorded: &Case) -> bool {
    let theirs = &recorded.salt;
    let failed = |outcome: &Outcome| outcome.result != Some(true);
    let Some(compiled) = compile_text(&recorded.states) else {
        // Refused before it runs, while Salt fails during the run.
        let states = theirs.states.as_ref();
        return states.is_none_or(|states| states.iter().any(failed));
    };
    let Some(states) = &theirs.states else {
        return false;
    };
    let host = host(&recorded.host);
    if let Some(start) = &recorded.start {
        let compiled = compile_text(start).unwrap();
        assert!(apply(&host, &compiled).succeeded(), "{case}: the start");
    }
    let first = apply(&host, &compiled);
    let facts: BTreeMap<String, Option<String>> = theirs
        .facts
        .keys()
        .map(|question| (question.clone(), fact(&host, question)))
        .collect();
    let second = apply(&host, &compiled);
    let mut ours = Vec::new();
    for (state, again) in first.states.iter().zip(&second.states) {
        let output = state.changes.get("stdout").and_then(Value::as_str);
        ours.push(Outcome {
            id: state.id.clone(),
            result: state.result,
            changed: !state.changes.is_empty(),
            again: again.result != Some(true) || !again.changes.is_empty(),
            output: output.unwrap_or_default().to_owned(),
        });
    }
    let same = ours.len() == states.len()
        && ours
            .iter()
            .zip(states)
            .all(|(ours, theirs)| ours.is_like(theirs))
        && facts == theirs.facts;
    if !same {
        eprintln!(
            "{case}: {ours:?} {facts:?}\nSalt: {states:?} {:?}",
            theirs.facts
        );
    }
    same
}

#[test]
fn states_do_what_salts_do_or_are_in_the_table() {
    let mut found = BTreeSet::new();
    let mut cases = 0;
    for name in PROBES {
        for (case, recorded) in probe::<Case>(name) {
            cases += 1;
            if !is_same(&case, &recorded) {
                found.insert([name.to_owned(), case]);
            }
        }
    }
    assert!(cases >= 260, "{cases}");
    compare_with_table("differences of states", &found);
}
