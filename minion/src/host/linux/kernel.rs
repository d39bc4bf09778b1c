//! Kernel parameters, modules, mounts and swap, from `/proc` and `/sys`.

use std::path::{Path, PathBuf};

use crate::host::{HostError, HostResult, MountPoint};

/// The file of a parameter. As in sysctl.d(5), the first kind of separator separates, and the other
/// one belongs to names: `net/ipv4/conf/eth0.1/…` is `net.ipv4.conf.eth0/1.…`.
///
/// # Errors
/// The name leads elsewhere, or is invalid.
pub fn parameter(key: &str) -> HostResult<PathBuf> {
    let first = key.find(['.', '/']).and_then(|at| key.get(at..=at));
    let path: String = if first == Some(".") {
        key.chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            })
            .collect()
    } else {
        key.to_owned()
    };
    if path
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Err(HostError::refused(format!(
            "`{key}` is not the name of a kernel parameter"
        )));
    }
    Ok(Path::new("/proc/sys").join(path))
}

/// A parameter's value, without the newline; `None` if this kernel has no such parameter.
///
/// # Errors
/// It cannot be read.
pub fn sysctl(key: &str) -> HostResult<Option<String>> {
    match std::fs::read_to_string(parameter(key)?) {
        Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(HostError::failed(
            format!("cannot read the kernel parameter {key}"),
            e,
        )),
    }
}

/// Sets a parameter now.
///
/// # Errors
/// The kernel has no such parameter, or refuses the value.
pub fn set_sysctl(key: &str, value: &str) -> HostResult<()> {
    std::fs::write(parameter(key)?, format!("{value}\n")).map_err(|e| {
        HostError::failed(
            format!("cannot set the kernel parameter {key} to `{value}`"),
            e,
        )
    })
}

/// Files that exist when a feature is built into the kernel, for kernels without
/// `modules.builtin`.
const SIGNS: &[(&str, &str)] = &[
    (
        "br_netfilter",
        "/proc/sys/net/bridge/bridge-nf-call-iptables",
    ),
    ("nf_conntrack", "/proc/sys/net/netfilter/nf_conntrack_max"),
    ("ip_tables", "/proc/net/ip_tables_names"),
    ("ip6_tables", "/proc/net/ip6_tables_names"),
    ("nf_tables", "/proc/net/netfilter/nf_log"),
    ("tun", "/dev/net/tun"),
    ("fuse", "/dev/fuse"),
];

/// Returns whether a module is loaded or built in.
///
/// # Errors
/// `/proc/modules` cannot be read.
pub fn has_module(name: &str, release: &str) -> HostResult<bool> {
    let module = name.replace('-', "_");
    let loaded = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    if loaded
        .lines()
        .any(|l| l.split(' ').next() == Some(module.as_str()))
    {
        return Ok(true);
    }
    if Path::new("/sys/module").join(&module).exists() {
        return Ok(true);
    }
    let builtin = std::fs::read_to_string(format!("/lib/modules/{release}/modules.builtin"))
        .unwrap_or_default();
    if is_builtin(&builtin, &module) {
        return Ok(true);
    }
    if SIGNS
        .iter()
        .any(|(feature, sign)| *feature == module && Path::new(sign).exists())
    {
        return Ok(true);
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    Ok(filesystems
        .lines()
        .any(|l| l.rsplit('\t').next() == Some(module.as_str())))
}

fn is_builtin(list: &str, module: &str) -> bool {
    list.lines().any(|line| {
        let file = line.rsplit('/').next().unwrap_or(line);
        file.split('.')
            .next()
            .is_some_and(|stem| stem.replace('-', "_") == module)
    })
}

/// Mounted file systems, from this process's `mountinfo` (proc_pid_mountinfo(5)).
///
/// # Errors
/// It cannot be read.
pub fn mounts() -> HostResult<Vec<MountPoint>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| HostError::io("read", "/proc/self/mountinfo", e))?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

fn parse_mount(line: &str) -> Option<MountPoint> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(3);
    let (root, path, options) = (fields.next()?, fields.next()?, fields.next()?);
    let mut fields = right.split(' ');
    let (fstype, device) = (fields.next()?, fields.next()?);
    let mut all: Vec<&str> = options.split(',').collect();
    for option in fields.next().unwrap_or_default().split(',') {
        if !option.is_empty() && !all.contains(&option) && !matches!(option, "rw" | "ro") {
            all.push(option);
        }
    }
    Some(MountPoint {
        device: unescape(device),
        root: unescape(root),
        path: unescape(path),
        fstype: fstype.to_owned(),
        options: all.join(","),
    })
}

/// Active swap devices and files.
///
/// # Errors
/// They cannot be read.
pub fn swaps() -> HostResult<Vec<String>> {
    let text = match std::fs::read_to_string("/proc/swaps") {
        Ok(text) => text,
        // A kernel without swap.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(HostError::io("read", "/proc/swaps", e)),
    };
    Ok(text
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().next())
        .map(unescape)
        .collect())
}

/// Undoes the kernel's octal escapes (`\040` is a blank).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|d| std::str::from_utf8(d).ok());
        match code.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_dots_or_slashes() {
        assert_eq!(
            parameter("net.ipv4.ip_forward").unwrap(),
            Path::new("/proc/sys/net/ipv4/ip_forward")
        );
        assert_eq!(
            parameter("net/ipv4/conf/a.1/x").unwrap(),
            Path::new("/proc/sys/net/ipv4/conf/a.1/x")
        );
        assert_eq!(
            parameter("net.ipv4.conf.a/1.x").unwrap(),
            Path::new("/proc/sys/net/ipv4/conf/a.1/x")
        );
        assert!(parameter("a/../b").is_err());
        assert!(parameter("a.//.b").is_err());
        assert!(parameter("").is_err());
        assert!(sysctl("kernel.ostype").unwrap().is_some());
        assert_eq!(sysctl("no.such.parameter").unwrap(), None);
    }

    #[test]
    fn mount_lines() {
        let line =
            r"36 35 98:0 /mnt1 /mnt\040a rw,noatime master:1 - ext4 /dev/root rw,errors=continue";
        let mount = parse_mount(line).unwrap();
        assert_eq!(
            (mount.path.as_str(), mount.root.as_str()),
            ("/mnt a", "/mnt1")
        );
        assert_eq!(
            (mount.device.as_str(), mount.fstype.as_str()),
            ("/dev/root", "ext4")
        );
        assert_eq!(mount.options, "rw,noatime,errors=continue");
        assert!(mounts().unwrap().iter().any(|m| m.path == "/"));
    }

    #[test]
    fn builtin_modules_are_known_by_file_name() {
        let list = "kernel/net/bridge/br_netfilter.ko\nkernel/fs/nls/nls_iso8859-1.ko.xz\n";
        assert!(is_builtin(list, "br_netfilter"));
        assert!(is_builtin(list, "nls_iso8859_1"));
        assert!(!is_builtin(list, "bridge"));
    }
}
