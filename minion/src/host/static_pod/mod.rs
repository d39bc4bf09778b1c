//! A static pod: the wait until the kubelet runs the pod of the manifest that is now on disk.
//!
//! The kernel and the kubelet's own directories provide this, without a container runtime's
//! interface: a pod's log directory has the pod's uid in its name, and a container's processes have
//! it in their cgroup. The kubelet computes the uid of a static pod from the decoded manifest
//! (`pkg/kubelet/config/common.go`, `applyDefaults`), so another uid means another manifest; see
//! decision 0025. For a systemd unit, its file takes the place of the manifest, its name the place
//! of the uid, and its processes have its own cgroup; see decision 0038.

mod machine;
mod observe;
mod unit;

use std::collections::BTreeMap;

use halite_durable::digest::sha256;
use halite_errors::chain;
use serde::{Deserialize, Serialize};

use self::machine::{Fault, Machine, Step, Words};
use super::effect::{Effect, Meta, Output, Trust, UnitAction};
use super::pod::StaticPod;
use super::{Host, HostError, HostResult};

pub use self::machine::{Facts, Probe};
pub use self::observe::{record, same_manifest};

/// The mode of records and of manifests, which may contain secrets.
const PRIVATE: u32 = 0o600;
/// The mode of the units' files.
const PUBLIC: u32 = 0o644;
/// Seconds between two observations.
const AGAIN: f64 = 0.25;
/// The interval in seconds at which a long wait is logged.
const LONG: i64 = 10;

/// The last manifest whose pod was ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyManifest {
    /// The uid that the kubelet gave the pod.
    pub uid: String,
    /// The manifest's text.
    pub manifest: String,
    /// SHA-256 of the files that the program reads only when it starts.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The minor version of the kubelet that computed the uid; empty if it is unknown, and for a
    /// unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubelet: String,
}

/// Waits until the pod of the manifest on disk is ready, and records that manifest as good.
///
/// # Errors
/// The deadline has passed, or the container ends repeatedly. The recorded manifest is then on disk
/// again, if the one on disk differed from it and caused the failure.
pub async fn wait(host: &dyn Host, pod: &StaticPod) -> HostResult<Output> {
    let mut machine = Machine::new(pod, host.now());
    let mut said = 0;
    // Hashed before the awaited program starts, or is ended because of these files.
    let files = files(host, pod).await?;
    loop {
        let facts = observe(host, pod).await?;
        let waited = machine.waited(host.now());
        match machine.step(&facts, host.now()) {
            Step::Wait(reason) => {
                if waited >= said + LONG {
                    said = waited;
                    tracing::info!(
                        pod = pod.name,
                        seconds = waited,
                        limit = pod.seconds,
                        reason,
                        "waiting for a program"
                    );
                }
                if let Some(reason) = host.stop_reason() {
                    // No manifest is restored: the next run waits for the same program.
                    return Err(HostError::refused(format!(
                        "the wait for {} was ended: {reason}",
                        pod.title()
                    )));
                }
                host.sleep(AGAIN).await;
            }
            Step::Ready(process) => {
                write_record(host, pod, process.uid, files).await?;
                return Ok(comment(format!("{} is ready", capital(&pod.title()))));
            }
            Step::WithoutPeers(process, reason) => {
                write_record(host, pod, process.uid, files).await?;
                return Ok(comment(format!(
                    "{} runs, and waits for its peers: {reason}",
                    capital(&pod.title())
                )));
            }
            Step::Failed(fault) => return Err(failure(host, pod, &fault).await?),
        }
    }
}

/// Observes a static pod, or the unit in its place. A probe is sent only if its program runs.
///
/// # Errors
/// The host cannot be read.
pub async fn observe(host: &dyn Host, pod: &StaticPod) -> HostResult<Facts> {
    match &pod.unit {
        Some(unit) => unit::observe(host, pod, unit).await,
        None => observe::observe_pod(host, pod).await,
    }
}

/// SHA-256 of the files that the program reads only when it starts.
///
/// # Errors
/// A file cannot be read.
pub async fn files(host: &dyn Host, pod: &StaticPod) -> HostResult<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for path in &pod.reads {
        let content = host.read(path).await?.unwrap_or_default();
        files.insert(path.clone(), sha256(&content));
    }
    Ok(files)
}

/// A text with a capital letter at its start.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn comment(text: String) -> Output {
    Output {
        stdout: text,
        ..Output::default()
    }
}

async fn write(host: &dyn Host, path: &str, content: Vec<u8>, mode: u32) -> HostResult<()> {
    let root = Some("root".to_owned());
    let effect = Effect::Write {
        path: path.to_owned(),
        content,
        meta: Meta {
            user: root.clone(),
            group: root,
            mode: Some(mode),
        },
    };
    host.perform(&effect).await.map(drop)
}

/// Restarts a unit from its present file.
async fn restart(host: &dyn Host, unit: &str) -> HostResult<()> {
    host.perform(&Effect::DaemonReload).await?;
    let effect = Effect::Unit {
        name: unit.to_owned(),
        action: UnitAction::Restart,
    };
    host.perform(&effect).await.map(drop)
}

async fn write_record(
    host: &dyn Host,
    pod: &StaticPod,
    uid: String,
    files: BTreeMap<String, String>,
) -> HostResult<()> {
    let Some(manifest) = host.read(&pod.manifest).await? else {
        return Err(HostError::refused(format!(
            "{} was removed while waiting for its program; run `ctl highstate`",
            pod.manifest
        )));
    };
    let record = ReadyManifest {
        uid,
        manifest: String::from_utf8_lossy(&manifest).into_owned(),
        files,
        kubelet: match pod.unit {
            Some(_) => String::new(),
            None => observe::kubelet_minor(host).await?,
        },
    };
    let text = serde_json::to_vec_pretty(&record)
        .map_err(|e| HostError::failed(format!("cannot write {}", pod.record), e))?;
    write(host, &pod.record, text, PRIVATE).await
}

/// The error of a pod that does not become ready. The previous manifest is restored first.
async fn failure(host: &dyn Host, pod: &StaticPod, fault: &Fault) -> HostResult<HostError> {
    let StaticPod { name, manifest, .. } = pod;
    let reason = fault.text(&Words::about(pod));
    let mut text = format!("cannot bring {} up: {reason}", pod.title());
    if matches!(fault, Fault::Kubelet(_)) {
        return Ok(HostError::refused(format!(
            "{text}; start it (`systemctl status kubelet`, `journalctl -u kubelet`), then run `ctl highstate`"
        )));
    }
    let lines = match &pod.unit {
        Some(unit) => unit::log(host, unit).await?,
        None => observe::log(host, pod).await?,
    };
    let (file, thing) = match pod.unit {
        Some(_) => ("unit", "program"),
        None => ("manifest", "pod"),
    };
    if lines.is_empty() {
        text += "; it has written no log";
    } else {
        text += &format!("; the last lines of its log:\n{lines}\n");
    }
    let other = record(host, pod).await?;
    let found = host.read(manifest).await?.unwrap_or_default();
    let changed = other.filter(|r| !same_manifest(&r.manifest, &String::from_utf8_lossy(&found)));
    let remedy = match changed {
        None => format!(
            "the {file} {manifest} has not changed since its {thing} was ready last, or it never was; correct the cause, then \
             run `ctl highstate`"
        ),
        Some(_) if !is_behind_up(host, pod).await? => format!(
            "{} does not answer, and no {file} of {name} can become ready without it, so {manifest} stays; repair that first, \
             then run `ctl highstate`",
            pod.behind.as_deref().unwrap_or_default()
        ),
        Some(good) => {
            // In the states' modes.
            let mode = pod.unit.as_ref().map_or(PRIVATE, |_| PUBLIC);
            write(host, manifest, good.manifest.into_bytes(), mode).await?;
            let started = match &pod.unit {
                Some(unit) => restart(host, unit).await,
                None => Ok(()),
            };
            let but = match started {
                Ok(()) => String::new(),
                Err(error) => format!(", but it cannot be started: {}", chain(&error)),
            };
            format!(
                "the previous {file} is in {manifest} again{but}; correct the declaration (for example \
                 `extraArgs`), then run `ctl highstate`"
            )
        }
    };
    Ok(HostError::refused(format!("{text}; {remedy}")))
}

async fn is_behind_up(host: &dyn Host, pod: &StaticPod) -> HostResult<bool> {
    let Some(url) = &pod.behind else {
        return Ok(true);
    };
    let answer = host.http_get(url, &Trust::Unverified).await?;
    Ok(answer.is_some_and(|(status, _)| observe::is_success(status)))
}
