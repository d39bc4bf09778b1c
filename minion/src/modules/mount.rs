//! `mount.*` and `swap.*`

use std::path::Path;

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::fstab::{Fstab, Line};
use super::paths::{absolute, follow, is_within, parents, real_path};
use super::{Failure, Plan, fail};
use crate::host::effect::{Effect, Meta};
use crate::host::{Host, MountPoint};

/// Options that the kernel reports again; others (`defaults`, `nofail`, `_netdev`, …) are for
/// mount(8) and systemd.
const SHOWN: &[&str] = &[
    "ro",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "nodiratime",
    "sync",
    "dirsync",
];

/// Options that the kernel does not report, and the opposite ones that it reports when they do not
/// hold.
const OPPOSITES: &[(&str, &str)] = &[
    ("rw", "ro"),
    ("suid", "nosuid"),
    ("dev", "nodev"),
    ("exec", "noexec"),
];

pub(super) async fn mounted(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let path = absolute(&chunk.name)?;
    let options = args
        .maybe_list("opts")?
        .unwrap_or_else(|| vec!["defaults".to_owned()])
        .join(",");
    let line = Line {
        device: args.required("device")?,
        path: path.clone(),
        fstype: args.required("fstype")?,
        options: options.clone(),
        dump: args.integer("dump")?.unwrap_or(0),
        pass: args.integer("pass_num")?.unwrap_or(0),
    };
    let mut changes = Map::new();
    let mut effects = Vec::new();
    if args.flag("mount", true)? {
        mounting(host, &args, &line, &mut changes, &mut effects).await?;
    }
    // After the mount: the host would not boot with an entry that cannot be mounted.
    if args.flag("persist", true)? {
        let fstab = Fstab::read(host).await?;
        if let Some(effect) = fstab.set(&line)? {
            let new = !fstab.lines().any(|found| found.path == path);
            changes.insert("persist".into(), json!(if new { "new" } else { "update" }));
            effects.push(effect);
        }
    }
    if changes.is_empty() {
        return Ok(Plan::nothing("Target was already mounted"));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("{path} would be mounted"),
        "Target was successfully mounted".to_owned(),
    ))
}

async fn mounting(
    host: &dyn Host,
    args: &Args<'_>,
    line: &Line,
    changes: &mut Map<String, serde_json::Value>,
    effects: &mut Vec<Effect>,
) -> Result<(), Failure> {
    let mounts = host.mounts().await?;
    let path = mount_path(host, &mounts, &line.path).await?;
    let mount = |options: String| Effect::Mount {
        device: line.device.clone(),
        path: path.clone(),
        fstype: line.fstype.clone(),
        options,
    };
    // The last mount over a path is the visible one.
    let Some(found) = mounts.iter().rev().find(|found| found.path == path) else {
        if follow(host, &path).await?.1.is_none() {
            if args.flag("mkmnt", false)? {
                effects.extend(parents(host, &path, true, &Meta::default()).await?);
                effects.push(Effect::Mkdir {
                    path: path.clone(),
                    meta: Meta::default(),
                });
            } else if !host.uncertain() {
                return fail(format!(
                    "Mount directory {} does not exist; give `mkmnt: true`",
                    line.path
                ));
            }
        }
        effects.push(mount(line.options.clone()));
        changes.insert("mount".into(), json!(true));
        return Ok(());
    };
    if !shows(host, &mounts, found, line).await? {
        effects.push(Effect::Unmount { path: path.clone() });
        effects.push(mount(line.options.clone()));
        changes.insert(
            "mount".into(),
            json!({"old": found.device, "new": line.device}),
        );
        return Ok(());
    }
    let displayed: Vec<&str> = found.options.split(',').collect();
    let missing: Vec<&str> = line
        .options
        .split(',')
        .filter(|option| {
            SHOWN.contains(option) && !displayed.contains(option)
                || OPPOSITES
                    .iter()
                    .any(|(name, opposite)| name == option && displayed.contains(opposite))
        })
        .collect();
    if !missing.is_empty() {
        effects.push(mount(format!("remount,{}", line.options)));
        changes.insert("remount".into(), json!(missing));
    }
    Ok(())
}

/// The path of a mount point in the kernel's form, without links. A listed path is not inspected: a
/// file system whose server is away answers late or never.
async fn mount_path(host: &dyn Host, mounts: &[MountPoint], path: &str) -> Result<String, Failure> {
    if mounts.iter().any(|mount| mount.path == path) {
        return Ok(path.to_owned());
    }
    real_path(host, path).await
}

/// Returns whether a mount shows the declared device, file or (for a bind mount) directory.
async fn shows(
    host: &dyn Host,
    mounts: &[MountPoint],
    found: &MountPoint,
    line: &Line,
) -> Result<bool, Failure> {
    if found.device == line.device {
        return Ok(true);
    }
    if line
        .options
        .split(',')
        .any(|option| matches!(option, "bind" | "rbind"))
    {
        let source = mount_path(host, mounts, &line.device).await?;
        let holder = mounts
            .iter()
            .filter(|mount| !std::ptr::eq(*mount, found) && is_within(&source, &mount.path))
            .max_by_key(|mount| mount.path.len());
        // The kernel reports the device of the file system, and the directory in it. For NFS, the
        // device contains both. File systems without a device, such as tmpfs, all have one name.
        return Ok(holder.is_some_and(|holder| {
            let below = source.strip_prefix(&holder.path).unwrap_or_default();
            let wanted = format!("{}/{}/{below}", holder.device, holder.root);
            Path::new(&wanted) == Path::new(&format!("{}/{}", found.device, found.root))
        }));
    }
    if let Some(number) = found.device.strip_prefix("/dev/loop") {
        let note = format!("/sys/block/loop{number}/loop/backing_file");
        let file = host.read(&note).await?.unwrap_or_default();
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        if file == real_path(host, &line.device).await?.as_bytes() {
            return Ok(true);
        }
    }
    Ok(device_of(host, &found.device).await? == device_of(host, &line.device).await?)
}

/// The device that `UUID=…`, `LABEL=…` or a link under `/dev` names.
async fn device_of(host: &dyn Host, device: &str) -> Result<String, Failure> {
    let path = match device.split_once('=') {
        Some((kind, value)) if !device.starts_with('/') => {
            format!(
                "/dev/disk/by-{}/{}",
                kind.to_ascii_lowercase(),
                value.trim_matches('"')
            )
        }
        _ if device.starts_with("/dev/") => device.to_owned(),
        _ => return Ok(device.to_owned()),
    };
    real_path(host, &path).await
}

/// Fails if a file system is mounted at one of `paths`.
pub(super) async fn refused(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let paths = Args::new(chunk).list("paths")?;
    let found: Vec<String> = host
        .mounts()
        .await?
        .into_iter()
        .filter(|mount| paths.contains(&mount.path))
        .map(|mount| format!("{} ({} of {})", mount.path, mount.fstype, mount.device))
        .collect();
    if found.is_empty() {
        return Ok(Plan::nothing(format!(
            "nothing is mounted at {}",
            paths.join(", ")
        )));
    }
    fail(format!(
        "cannot continue; nothing was changed: mounted at a directory of Halite is {}. The mount hides the directory's \
         own files, and new files would be lost with it. Unmount it (`umount PATH`; a line in /etc/fstab would mount it \
         again), then run `ctl highstate`",
        found.join(", ")
    ))
}

pub(super) async fn unmounted(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let path = absolute(&chunk.name)?;
    let only = match args.text("device")? {
        Some(device) => Some(device_of(host, &device).await?),
        None => None,
    };
    let mut changes = Map::new();
    let mut effects = Vec::new();
    let mut layers = 0;
    let mounts = host.mounts().await?;
    let real = mount_path(host, &mounts, &path).await?;
    for found in mounts.iter().filter(|found| found.path == real) {
        let matches = match &only {
            Some(device) => device_of(host, &found.device).await? == *device,
            None => true,
        };
        layers += usize::from(matches);
    }
    if layers > 0 {
        changes.insert("umount".into(), json!(true));
        effects.extend((0..layers).map(|_| Effect::Unmount { path: real.clone() }));
    }
    if args.flag("persist", false)?
        && let Some(effect) = Fstab::read(host).await?.remove(&path)?
    {
        changes.insert("persist".into(), json!("purged"));
        effects.push(effect);
    }
    if changes.is_empty() {
        return Ok(Plan::nothing("Target was already unmounted"));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("{path} would be unmounted"),
        "Target was successfully unmounted",
    ))
}

pub(super) async fn swap_absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let name = &chunk.name;
    let all = name == "all";
    let real = device_of(host, name).await?;
    let mut changes = Map::new();
    let mut effects = Vec::new();
    let fstab = Fstab::read(host).await?;
    let mut ours = Vec::new();
    for line in fstab.lines().filter(|line| line.fstype == "swap") {
        if all || line.device == *name || device_of(host, &line.device).await? == real {
            ours.push(line);
        }
    }
    if let Some(effect) = fstab.comment_out(|line| ours.contains(line))? {
        let devices: Vec<&str> = ours.iter().map(|line| line.device.as_str()).collect();
        changes.insert("fstab".into(), json!(devices));
        effects.push(effect);
    }
    let mut off = Vec::new();
    for swap in host.swaps().await? {
        if all || swap == *name || device_of(host, &swap).await? == real {
            off.push(swap);
        }
    }
    if !off.is_empty() {
        changes.insert("off".into(), json!(off));
        effects.extend(off.into_iter().map(|device| Effect::SwapOff { device }));
    }
    if changes.is_empty() {
        return Ok(Plan::nothing("There is no such swap"));
    }
    Ok(Plan::change(
        changes,
        effects,
        "Swap would be turned off",
        "Swap was turned off",
    ))
}
