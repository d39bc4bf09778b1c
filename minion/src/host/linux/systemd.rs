//! Units through systemd's manager object (org.freedesktop.systemd1(5)). Each change is a systemd
//! job, and the minion waits for its end.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use zbus::{MatchRule, MessageStream, OwnedObjectPath, OwnedVariant};

use super::bus::{Bus, Object, unreadable};
use crate::host::effect::UnitAction;
use crate::host::{HostError, HostResult, UnitState};

const SERVICE: &str = "org.freedesktop.systemd1";
const MANAGER: Object<'static> = Object {
    service: SERVICE,
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
/// Longest wait for a job; units have their own, shorter limits (`TimeoutStartSec`).
const DEADLINE: Duration = Duration::from_secs(600);

/// A unit's state. A name without a unit is `not-found`.
///
/// # Errors
/// systemd cannot be asked.
pub async fn state(bus: &Bus, name: &str) -> HostResult<UnitState> {
    let failed = unreadable(name);
    let path: OwnedObjectPath = match bus.try_call(MANAGER, "LoadUnit", &(name,)).await? {
        Ok(reply) => reply.body().deserialize().map_err(&failed)?,
        Err((_, text)) => return Err(HostError::refused(format!("{name}: {text}"))),
    };
    let object = Object {
        service: SERVICE,
        path: path.as_str(),
        interface: "org.freedesktop.DBus.Properties",
    };
    let reply = bus
        .call(object, "GetAll", &("org.freedesktop.systemd1.Unit",))
        .await?;
    let body = reply.body();
    let properties: HashMap<String, OwnedVariant> = body.deserialize().map_err(&failed)?;
    let text = |key: &str| {
        properties
            .get(key)
            .and_then(|v| <&str>::try_from(v).ok())
            .unwrap_or_default()
            .to_owned()
    };
    let drop_ins: Vec<String> = properties
        .get("DropInPaths")
        .and_then(|v| v.try_clone().ok())
        .and_then(|v| v.try_into().ok())
        .unwrap_or_default();
    let needs_reload = properties
        .get("NeedDaemonReload")
        .and_then(|v| bool::try_from(v).ok())
        .unwrap_or(false)
        || has_unread_drop_ins(Path::new("/"), name, &drop_ins)
        || is_former_alias(Path::new("/"), name, &text("Id"));
    Ok(UnitState {
        load: text("LoadState"),
        active: text("ActiveState"),
        file: text("UnitFileState"),
        needs_reload,
    })
}

/// Directories of units and drop-ins (systemd.unit(5)).
const UNIT_PATHS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Returns whether systemd knows the name as an alias of another unit although no link exists any
/// more. `NeedDaemonReload` is about the other unit's files only.
fn is_former_alias(root: &Path, name: &str, id: &str) -> bool {
    if id.is_empty() || id == name {
        return false;
    }
    // The file in the directory of the highest rank counts.
    let found = UNIT_PATHS
        .iter()
        .find_map(|directory| root.join(directory).join(name).symlink_metadata().ok());
    !found.is_some_and(|entry| entry.is_symlink())
}

/// Returns whether the unit has a drop-in that systemd has not read, or lacks one that it has read.
/// systemd 252 does not notice the first drop-in in a new directory: it checks only directories
/// that existed when it last loaded all units.
fn has_unread_drop_ins(root: &Path, name: &str, read: &[String]) -> bool {
    let read: Vec<&Path> = read.iter().map(Path::new).collect();
    let is_removed = read
        .iter()
        .any(|path| !root.join(path.strip_prefix("/").unwrap_or(path)).exists());
    let is_added = UNIT_PATHS
        .iter()
        .filter_map(|directory| {
            std::fs::read_dir(root.join(directory).join(format!("{name}.d"))).ok()
        })
        .flat_map(|entries| entries.flatten().map(|entry| entry.file_name()))
        .filter(|file| Path::new(file).extension().is_some_and(|e| e == "conf"))
        // A drop-in of the same name in a directory of higher rank replaces it.
        .any(|file| {
            !read
                .iter()
                .any(|path| path.file_name() == Some(file.as_os_str()))
        });
    is_removed || is_added
}

/// `systemctl daemon-reload`.
///
/// # Errors
/// systemd refuses.
pub async fn reload(bus: &Bus) -> HostResult<()> {
    bus.call(MANAGER, "Reload", &()).await.map(drop)
}

/// Brings a unit into a state and waits for that state.
///
/// # Errors
/// systemd refuses, the job fails, or it takes too long.
pub async fn change(bus: &Bus, name: &str, action: UnitAction) -> HostResult<()> {
    match action {
        UnitAction::Start => {
            forget_failures(bus, name).await?;
            job(bus, name, "StartUnit").await
        }
        UnitAction::Stop => job(bus, name, "StopUnit").await,
        UnitAction::Restart => {
            forget_failures(bus, name).await?;
            job(bus, name, "RestartUnit").await
        }
        UnitAction::Reload => job(bus, name, "ReloadUnit").await,
        UnitAction::Verify => verify(bus, name).await,
        // runtime: false, force: true (replaces a link that points elsewhere, as `systemctl enable
        // --force`).
        UnitAction::Enable => files(bus, "EnableUnitFiles", &(vec![name], false, true)).await,
        UnitAction::Disable => files(bus, "DisableUnitFiles", &(vec![name], false)).await,
        UnitAction::Mask => files(bus, "MaskUnitFiles", &(vec![name], false, true)).await,
        // A unit may be masked persistently, until the next boot, or both.
        UnitAction::Unmask => {
            bus.call(MANAGER, "UnmaskUnitFiles", &(vec![name], true))
                .await?;
            files(bus, "UnmaskUnitFiles", &(vec![name], false)).await
        }
    }
}

/// The time for which a program must run to count as started.
const SETTLED: Duration = Duration::from_millis(300);
/// The longest wait for a unit that is being started again, as in Salt's `service.status`.
const STARTING: Duration = Duration::from_secs(3);
/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until it is known whether a unit that was just started runs. Services that report when
/// they are ready (`Type=notify`, `dbus`, …) do so at once.
async fn verify(bus: &Bus, name: &str) -> HostResult<()> {
    let settled = if reports_readiness(bus, name).await? {
        Duration::ZERO
    } else {
        SETTLED
    };
    let begin = tokio::time::Instant::now();
    let mut active_since = None;
    loop {
        let unit = state(bus, name).await?;
        match unit.active.as_str() {
            "active" | "reloading" | "refreshing" => {
                let since = *active_since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() >= settled {
                    return Ok(());
                }
            }
            "activating" | "deactivating" if begin.elapsed() < STARTING => active_since = None,
            other => {
                return Err(HostError::refused(format!(
                    "{name}: systemd started it, and now it is `{other}`; see `systemctl status {name}` and \
                     `journalctl -u {name}`"
                )));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether systemd knows of a unit that its start has succeeded. Of a simple service, it
/// knows only that the process exists.
async fn reports_readiness(bus: &Bus, name: &str) -> HostResult<bool> {
    if !name.ends_with(".service") {
        return Ok(true);
    }
    let failed = unreadable(name);
    let path: OwnedObjectPath = match bus.try_call(MANAGER, "LoadUnit", &(name,)).await? {
        Ok(reply) => reply.body().deserialize().map_err(&failed)?,
        Err((_, text)) => return Err(HostError::refused(format!("{name}: {text}"))),
    };
    let object = Object {
        service: SERVICE,
        path: path.as_str(),
        interface: "org.freedesktop.DBus.Properties",
    };
    let question = ("org.freedesktop.systemd1.Service", "Type");
    let reply = bus.call(object, "Get", &question).await?;
    let body = reply.body();
    let kind: OwnedVariant = body.deserialize().map_err(&failed)?;
    let kind = <&str>::try_from(&kind).unwrap_or_default();
    Ok(!matches!(kind, "simple" | "exec" | "idle"))
}

/// `systemctl reset-failed`: a unit that failed too often with the configuration that was just
/// repaired would not be started (`start-limit-hit`). Units that are not loaded have no failures.
async fn forget_failures(bus: &Bus, name: &str) -> HostResult<()> {
    bus.try_call(MANAGER, "ResetFailedUnit", &(name,))
        .await
        .map(drop)
}

async fn files<B: serde::Serialize + zbus::DynamicType>(
    bus: &Bus,
    method: &str,
    body: &B,
) -> HostResult<()> {
    bus.call(MANAGER, method, body).await?;
    // systemctl does the same: the manager sees changed links only after a reload.
    reload(bus).await
}

fn signals_of_jobs() -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(SERVICE)
        .interface(MANAGER.interface)
        .member("JobRemoved")
        .build()
}

async fn job(bus: &Bus, name: &str, method: &str) -> HostResult<()> {
    let connection = bus.connection().await?;
    let failed = |e: zbus::Error| HostError::failed(name, e);
    let rule = signals_of_jobs().map_err(failed)?;
    // The signal may come before the call's answer: listen first. systemd only sends it to
    // subscribers.
    let mut signals = MessageStream::for_match_rule(rule, &connection, None)
        .await
        .map_err(failed)?;
    if let Err((error, text)) = bus.try_call(MANAGER, "Subscribe", &()).await?
        && !error.ends_with("AlreadySubscribed")
    {
        return Err(HostError::refused(format!("{name}: {text}")));
    }
    let reply = match bus.try_call(MANAGER, method, &(name, "replace")).await? {
        Ok(reply) => reply,
        Err((_, text)) => return Err(HostError::refused(format!("{name}: {text}"))),
    };
    let job: OwnedObjectPath = reply.body().deserialize().map_err(unreadable(name))?;
    let wait = async {
        while let Some(signal) = signals.next().await {
            let Ok(signal) = signal else { continue };
            let body = signal.body();
            let removed: Result<(u32, OwnedObjectPath, String, String), _> = body.deserialize();
            if let Ok((_, path, _, result)) = removed
                && path == job
            {
                return Some(result);
            }
        }
        None
    };
    let verb = method.trim_end_matches("Unit").to_ascii_lowercase();
    match tokio::time::timeout(DEADLINE, wait).await {
        Ok(Some(result)) if result == "done" => Ok(()),
        Ok(Some(result)) => Err(HostError::refused(format!(
            "{name}: systemd's job to {verb} it ended with `{result}`; see `systemctl status {name}` and `journalctl -u {name}`"
        ))),
        Ok(None) => Err(HostError::refused(format!(
            "{name}: the bus was lost while systemd was about to {verb} it"
        ))),
        Err(_) => Err(HostError::refused(format!(
            "{name}: systemd did not {verb} it within {} s",
            DEADLINE.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_whose_link_is_gone_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (own, vendor) = (
            root.path().join("etc/systemd/system"),
            root.path().join("usr/lib/systemd/system"),
        );
        for directory in [&own, &vendor] {
            std::fs::create_dir_all(directory).unwrap();
        }
        assert!(!is_former_alias(root.path(), "x.service", "x.service"));
        assert!(is_former_alias(root.path(), "x.service", "y.service"));
        std::fs::write(vendor.join("x.service"), "").unwrap();
        assert!(is_former_alias(root.path(), "x.service", "y.service"));
        std::os::unix::fs::symlink("y.service", own.join("x.service")).unwrap();
        assert!(!is_former_alias(root.path(), "x.service", "y.service"));
    }

    #[test]
    fn a_drop_in_that_systemd_has_not_read_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("etc/systemd/system/x.service.d");
        let read = ["/etc/systemd/system/x.service.d/a.conf".to_owned()];
        assert!(!has_unread_drop_ins(root.path(), "x.service", &[]));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("README"), "").unwrap();
        assert!(!has_unread_drop_ins(root.path(), "x.service", &[]));
        std::fs::write(directory.join("a.conf"), "").unwrap();
        assert!(has_unread_drop_ins(root.path(), "x.service", &[]));
        assert!(!has_unread_drop_ins(root.path(), "x.service", &read));
        std::fs::remove_file(directory.join("a.conf")).unwrap();
        assert!(has_unread_drop_ins(root.path(), "x.service", &read));
    }
}
