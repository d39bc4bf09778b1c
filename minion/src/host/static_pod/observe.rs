//! Reads the data that the kubelet and the kernel have about a static pod.

use halite_errors::cut;

use super::ReadyManifest;
use super::machine::{Facts, Probe};
use crate::host::effect::Trust;
use crate::host::pod::{Process, StaticPod};
use crate::host::{Host, HostResult};

/// The kubelet's directory with a log directory for each pod, `NAMESPACE_NAME_UID`.
const LOGS: &str = "/var/log/pods";
/// The namespace of the static pods.
const NAMESPACE: &str = "kube-system";
/// Number of log lines in an error.
const LINES: usize = 10;
/// Maximum characters of one of them.
const LONGEST_LINE: usize = 2000;

/// Observes a static pod. A probe is sent only if its container runs.
///
/// # Errors
/// The host cannot be read.
pub(super) async fn observe_pod(host: &dyn Host, pod: &StaticPod) -> HostResult<Facts> {
    let manifest = read(host, &pod.manifest).await?;
    let record = record(host, pod).await?;
    let pods = uids(host, &pod.name).await?;
    let uids = Uids::of(host, record).await?;
    let log = newest_log(host, pod, &uids.of_manifest(&pods, &manifest)).await?;
    let mut facts = Facts {
        kubelet: host.unit("kubelet.service").await?.active,
        restarts: log.and_then(|log| Some((log.uid, *log.numbers.first()?))),
        ..Facts::default()
    };
    for (process, arguments) in processes(host, &pod.name, &pods).await? {
        let certain = uids.is_certain(&process, &manifest);
        let ended = pod.ended.as_ref() == Some(&process);
        // Of two possible processes, the certain one.
        let better = facts.process.is_none() || certain && !facts.certain;
        if has_arguments(&manifest, &arguments) && !ended && better {
            facts.another |= facts.process.is_some();
            facts.process = Some(process);
            facts.certain = certain;
        } else {
            facts.another = true;
        }
    }
    if facts.process.is_some() {
        facts.probe = probe(host, pod).await?;
    }
    Ok(facts)
}

/// A uid and its log directory.
type Pod = (String, String);

/// The relation between the uids of pods and their manifests.
enum Uids {
    /// No pod is recorded, so any pod may belong to the manifest on disk.
    NoneRecorded,
    /// The manifest on disk has the recorded uid if it is the recorded manifest, and another one
    /// otherwise.
    Comparable(ReadyManifest),
    /// The kubelet of another minor version than the recorded pod's runs since this clock tick. It
    /// hashes other fields, so it replaces each pod by one with another uid.
    Replaced(ReadyManifest, u64),
}

impl Uids {
    async fn of(host: &dyn Host, record: Option<ReadyManifest>) -> HostResult<Self> {
        let Some(record) = record else {
            return Ok(Self::NoneRecorded);
        };
        if record.kubelet.is_empty() || record.kubelet == installed_minor(host).await? {
            return Ok(Self::Comparable(record));
        }
        Ok(match running_kubelet(host).await? {
            Kubelet::Outdated => Self::Comparable(record),
            Kubelet::Installed { started } => Self::Replaced(record, started),
            Kubelet::Stopped => Self::Replaced(record, u64::MAX),
        })
    }

    /// Returns whether a process is in a pod of the manifest on disk for sure.
    fn is_certain(&self, process: &Process, manifest: &str) -> bool {
        match self {
            Self::Replaced(record, since) => {
                process.started > *since && same_manifest(&record.manifest, manifest)
            }
            Self::NoneRecorded | Self::Comparable(_) => self.may_be(&process.uid, manifest),
        }
    }

    /// Returns whether the pod with this uid may belong to the manifest on disk.
    fn may_be(&self, uid: &str, manifest: &str) -> bool {
        match self {
            Self::Comparable(record) => {
                (record.uid == uid) == same_manifest(&record.manifest, manifest)
            }
            Self::NoneRecorded | Self::Replaced(..) => true,
        }
    }

    fn of_manifest(&self, pods: &[Pod], manifest: &str) -> Vec<Pod> {
        let of_it = |pod: &&Pod| self.may_be(&pod.0, manifest);
        pods.iter().filter(of_it).cloned().collect()
    }
}

/// The running kubelet.
enum Kubelet {
    Stopped,
    /// It runs the installed program since this clock tick.
    Installed {
        started: u64,
    },
    /// Its program has been replaced since it started.
    Outdated,
}

async fn running_kubelet(host: &dyn Host) -> HostResult<Kubelet> {
    let owner = |cgroup: &str| cgroup.contains("/kubelet.service").then(String::new);
    let kubelets = processes_in(host, "kubelet", &owner).await?;
    let newest = kubelets.iter().map(|(process, _)| process);
    let Some(newest) = newest.max_by_key(|process| process.started) else {
        return Ok(Kubelet::Stopped);
    };
    let program = host.stat(&format!("/proc/{}/exe", newest.pid)).await?;
    let target = program.and_then(|link| link.target).unwrap_or_default();
    // proc_pid_exe(5)
    Ok(if target.ends_with(" (deleted)") {
        Kubelet::Outdated
    } else {
        Kubelet::Installed {
            started: newest.started,
        }
    })
}

/// The minor version of the kubelet that computes the uids of pods now, for example `1.36`; empty
/// if it is unknown.
///
/// # Errors
/// The package database or a process cannot be read.
pub(super) async fn kubelet_minor(host: &dyn Host) -> HostResult<String> {
    Ok(match running_kubelet(host).await? {
        Kubelet::Outdated => String::new(),
        Kubelet::Installed { .. } | Kubelet::Stopped => installed_minor(host).await?,
    })
}

async fn installed_minor(host: &dyn Host) -> HostResult<String> {
    let packages = host.packages().await?;
    let version = packages
        .get("kubelet")
        .map(String::as_str)
        .unwrap_or_default();
    let bare = version.split_once(':').map_or(version, |(_, bare)| bare);
    Ok(bare.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// The last manifest whose pod was ready. A damaged record counts as missing.
///
/// # Errors
/// The record cannot be read.
pub async fn record(host: &dyn Host, pod: &StaticPod) -> HostResult<Option<ReadyManifest>> {
    let text = host.read(&pod.record).await?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Returns whether two manifests are the same for the kubelet. Comments and empty lines do not
/// count.
#[must_use]
pub fn same_manifest(one: &str, other: &str) -> bool {
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'))
    }
    lines(one).eq(lines(other))
}

/// Returns whether a program's arguments are the flags in the manifest.
fn has_arguments(manifest: &str, arguments: &[String]) -> bool {
    let mut declared: Vec<String> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .map(|item| serde_json::from_str(item).unwrap_or_else(|_| item.to_owned()))
        .filter(|item| item.starts_with("--"))
        .collect();
    let mut given: Vec<String> = arguments.iter().skip(1).cloned().collect();
    declared.sort_unstable();
    given.sort_unstable();
    declared == given
}

/// The uids of the static pod's log directories. A static pod's uid is a hash without dashes; its
/// name ends with the node's.
async fn uids(host: &dyn Host, name: &str) -> HostResult<Vec<Pod>> {
    let begin = format!("{NAMESPACE}_{name}-");
    let names = host.list(LOGS).await?;
    let uid = |directory: String| {
        let (_, uid) = directory.strip_prefix(&begin)?.rsplit_once('_')?;
        let is_hash = uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then(|| (uid.to_owned(), format!("{LOGS}/{directory}")))
    };
    Ok(names.into_iter().filter_map(uid).collect())
}

/// The processes of the program in the pods with these uids, with their arguments.
async fn processes(
    host: &dyn Host,
    name: &str,
    uids: &[Pod],
) -> HostResult<Vec<(Process, Vec<String>)>> {
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let owner = |cgroup: &str| {
        let mut uids = uids.iter().map(|(uid, _)| uid);
        uids.find(|uid| cgroup.contains(&format!("pod{uid}")))
            .cloned()
    };
    processes_in(host, name, &owner).await
}

/// The processes of a program in cgroups that have an owner, with their arguments.
pub(super) async fn processes_in(
    host: &dyn Host,
    name: &str,
    owner: &(dyn Fn(&str) -> Option<String> + Sync),
) -> HostResult<Vec<(Process, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in host.list("/proc").await? {
        let Ok(pid) = entry.parse::<u32>() else {
            continue;
        };
        let cgroup = of_process(host, pid, "cgroup").await;
        let Some(uid) = owner(&cgroup) else {
            continue;
        };
        let line = of_process(host, pid, "cmdline").await;
        let arguments: Vec<String> = line
            .trim_end_matches('\0')
            .split('\0')
            .map(str::to_owned)
            .collect();
        let program = arguments.first().and_then(|path| path.rsplit('/').next());
        let started = started(&of_process(host, pid, "stat").await);
        if let (Some(program), Some(started)) = (program, started)
            && program == name
        {
            found.push((Process { pid, started, uid }, arguments));
        }
    }
    Ok(found)
}

/// A file of the kernel about a process; empty if the process has ended.
async fn of_process(host: &dyn Host, pid: u32, name: &str) -> String {
    let content = host.read(&format!("/proc/{pid}/{name}")).await;
    let content = content.ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&content).into_owned()
}

/// The start of a process, from `/proc/PID/stat`: field 22. The second field is a name that may
/// contain anything.
fn started(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Sends the probes.
pub(super) async fn probe(host: &dyn Host, pod: &StaticPod) -> HostResult<Probe> {
    let answer = host.http_get(&pod.ready, &Trust::Unverified).await?;
    let text = match answer {
        Some((status, _)) if is_success(status) => return Ok(Probe::Ready),
        Some((status, body)) => {
            // The failed checks; etcd and the API server mark their lines this way.
            let failed = body.lines().find(|line| line.starts_with("[-]"));
            let line = failed.or_else(|| body.lines().next()).unwrap_or_default();
            let line = cut::beginning(line, 200);
            format!("{} answers {status}: {line}", pod.ready)
        }
        None => format!("{} does not answer", pod.ready),
    };
    let Some(live) = &pod.live else {
        return Ok(Probe::Fails(text));
    };
    let answer = host.http_get(live, &Trust::Unverified).await?;
    Ok(match answer {
        Some((status, _)) if is_success(status) => Probe::Live(text),
        _ => Probe::Fails(text),
    })
}

/// The kubelet's rule for its probes: `pkg/probe/http/http.go`.
pub(super) fn is_success(status: u16) -> bool {
    (200..400).contains(&status)
}

/// The logs of a container.
struct Log {
    /// Its pod's uid.
    uid: String,
    /// Their directory.
    directory: String,
    /// Their numbers, the newest first: each restart starts the next one.
    numbers: Vec<u32>,
}

impl Log {
    /// Its entries, at least this many if they exist. The log of a container that has just started
    /// is empty: the previous container's entries come first.
    async fn entries(&self, host: &dyn Host, count: usize) -> HostResult<Vec<String>> {
        let mut entries = Vec::new();
        for number in self.numbers.iter().take(2) {
            if entries.len() < count {
                let text = read(host, &format!("{}/{number}.log", self.directory)).await?;
                entries.splice(0..0, text.lines().map(str::to_owned));
            }
        }
        Ok(entries)
    }
}

/// The logs of the container in the pod that has written last.
async fn newest_log(host: &dyn Host, pod: &StaticPod, pods: &[Pod]) -> HostResult<Option<Log>> {
    let mut newest: Option<(String, Log)> = None;
    for (uid, directory) in pods {
        let directory = format!("{directory}/{}", pod.name);
        let names = host.list(&directory).await?;
        let number = |name: &String| name.strip_suffix(".log")?.parse::<u32>().ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        if numbers.is_empty() {
            continue;
        }
        let log = Log {
            uid: uid.clone(),
            directory,
            numbers,
        };
        // Each line starts with its time. Logs are large, so they are read only to compare them.
        let end = if pods.len() > 1 {
            let last = log.entries(host, 1).await?.pop().unwrap_or_default();
            last.split(' ').next().unwrap_or_default().to_owned()
        } else {
            String::new()
        };
        if newest.as_ref().is_none_or(|(known, _)| *known <= end) {
            newest = Some((end, log));
        }
    }
    Ok(newest.map(|(_, log)| log))
}

async fn read(host: &dyn Host, path: &str) -> HostResult<String> {
    let content = host.read(path).await?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The last lines that the container of the manifest has written, without times and streams.
///
/// # Errors
/// A log cannot be read.
pub(super) async fn log(host: &dyn Host, pod: &StaticPod) -> HostResult<String> {
    let manifest = read(host, &pod.manifest).await?;
    let record = record(host, pod).await?;
    let uids_on_record = Uids::of(host, record).await?;
    let pods = uids_on_record.of_manifest(&uids(host, &pod.name).await?, &manifest);
    let Some(log) = newest_log(host, pod, &pods).await? else {
        return Ok(String::new());
    };
    Ok(last_lines(&log.entries(host, LINES).await?))
}

/// The last lines in the format of the CRI: time, stream, `F` or `P`, text. A `P` is a part of a
/// line, which continues in the next entry; its parts are joined, so that redaction sees the whole.
fn last_lines(log: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for entry in log.iter().rev() {
        let mut fields = entry.splitn(4, ' ').skip(2);
        let (tag, text) = (fields.next(), fields.next().unwrap_or(entry));
        let is_full = lines.len() == LINES;
        match lines.last_mut() {
            Some(line) if tag == Some("P") => line.insert_str(0, text),
            _ if is_full => break,
            _ => lines.push(text.to_owned()),
        }
    }
    let lines = lines.iter().rev();
    let lines: Vec<String> = lines
        .map(|line| cut::beginning(line, LONGEST_LINE))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_found_behind_its_name() {
        let stat = "41 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 7777 20 21";
        assert_eq!(started(stat), Some(7777));
        assert_eq!(started("41 (etcd"), None);
    }

    #[test]
    fn a_line_of_a_log_that_was_written_in_parts_is_one_line() {
        let mut log =
            "t stderr F before\nt stderr P one \nt stderr P two \nt stderr F three\n".to_owned();
        log += &"t stderr F more\n".repeat(LINES - 1);
        let more = "\nmore".repeat(LINES - 1);
        let last_lines =
            |log: &str| last_lines(&log.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(last_lines(&log), format!("one two three{more}"));
        assert_eq!(last_lines("no CRI"), "no CRI");
        assert_eq!(last_lines("t stdout P open"), "open");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn comments_and_empty_lines_are_not_a_difference() {
        let manifest = "spec:\n  a: b\n";
        assert!(same_manifest(
            manifest,
            "# new\nspec:\n\n  # more\n  a: b  \n"
        ));
        assert!(!same_manifest(manifest, "spec:\n  a: c\n"));
        assert!(!same_manifest(manifest, "spec:\n"));
    }

    #[test]
    fn arguments_are_those_of_the_manifest_in_any_quotes() {
        let manifest =
            "  - command:\n    - etcd\n    - \"--a=b\"\n    - --c=d\n    - mountPath: /x\n";
        let given = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        assert!(has_arguments(manifest, &given(&["etcd", "--c=d", "--a=b"])));
        for other in [
            &["etcd", "--a=b"][..],
            &["etcd", "--a=b", "--c=x"],
            &["etcd", "--a=b", "--c=d", "--e"],
        ] {
            assert!(!has_arguments(manifest, &given(other)), "{other:?}");
        }
    }
}
