//! Reads the data that systemd and the kernel have about a unit in the place of a static pod.

use super::machine::Facts;
use super::observe::{probe, processes_in};
use crate::host::effect::Command;
use crate::host::pod::StaticPod;
use crate::host::{Host, HostResult};

/// Number of log lines in an error.
const LINES: &str = "10";

/// Observes a unit. Its process belongs to the file on disk if the arguments match, including the
/// path of the program.
pub(super) async fn observe(host: &dyn Host, pod: &StaticPod, unit: &str) -> HostResult<Facts> {
    let file = host.read(&pod.manifest).await?.unwrap_or_default();
    let wanted = command(&String::from_utf8_lossy(&file));
    let mut facts = Facts {
        // systemd itself starts it.
        kubelet: "active".to_owned(),
        certain: true,
        ..Facts::default()
    };
    let cgroup = format!("/{unit}");
    let owner = |line: &str| {
        let mut paths = line.lines();
        paths
            .any(|path| path.ends_with(&cgroup))
            .then(|| unit.to_owned())
    };
    for (process, arguments) in processes_in(host, &pod.name, &owner).await? {
        if arguments == wanted && pod.ended.as_ref() != Some(&process) {
            facts.process = Some(process);
        } else {
            facts.another = true;
        }
    }
    if facts.process.is_some() {
        facts.probe = probe(host, pod).await?;
    } else {
        let line = ["systemctl", "show", "--property=NRestarts", "--value", unit];
        let number = ask(host, &line).await?.trim().parse().ok();
        facts.restarts = number.map(|number| (unit.to_owned(), number));
    }
    Ok(facts)
}

/// The last lines that the unit's program has written.
pub(super) async fn log(host: &dyn Host, unit: &str) -> HostResult<String> {
    let line = [
        "journalctl",
        "--unit",
        unit,
        "--lines",
        LINES,
        "--output=cat",
        "--no-pager",
        "--quiet",
    ];
    Ok(ask(host, &line).await?.trim_end().to_owned())
}

/// The output of a program that changes nothing.
async fn ask(host: &dyn Host, line: &[&str]) -> HostResult<String> {
    let command = Command {
        argv: line.iter().map(|word| (*word).to_owned()).collect(),
        ..Command::default()
    };
    Ok(host.query(&command).await?.stdout)
}

/// The command in a unit's file, one argument on each line: plain, or in double quotes with
/// systemd's escapes (systemd.service(5), "Command lines").
fn command(file: &str) -> Vec<String> {
    let mut lines = file.lines().map(str::trim);
    let Some(first) = lines.find_map(|line| line.strip_prefix("ExecStart=")) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    let mut line = Some(first);
    while let Some(text) = line {
        let (word, continues) = match text.strip_suffix('\\') {
            Some(word) => (word.trim_end(), true),
            None => (text, false),
        };
        words.push(argument(word));
        line = if continues { lines.next() } else { None };
    }
    words
}

fn argument(word: &str) -> String {
    // JSON's escapes are among systemd's.
    let plain = serde_json::from_str(word).unwrap_or_else(|_| word.to_owned());
    plain.replace("%%", "%").replace("$$", "$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_unit_is_read_as_systemd_does() {
        let file = "# Written by Halite.\n[Service]\nType=simple\nExecStart=/usr/local/bin/etcd \\\n  \"--a=b c\" \\\n  \
                    \"--d=\\\"e\\\" 5%% $$HOME\"\nRestart=always\n";
        assert_eq!(
            command(file),
            ["/usr/local/bin/etcd", "--a=b c", "--d=\"e\" 5% $HOME"]
        );
        assert_eq!(command("ExecStart=/bin/etcd\nRestart=no\n"), ["/bin/etcd"]);
        assert!(command("[Unit]\n").is_empty());
    }
}
