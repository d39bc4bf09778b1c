//! Distribution, kernel, hardware.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::text;
use crate::host::effect::Command;
use crate::host::linux::command::run;

const TOOL: Duration = Duration::from_secs(10);

pub(super) async fn add(grains: &mut Map<String, Value>, name: &str) {
    let mut put = |key: &str, value: Value| {
        grains.insert(key.to_owned(), value);
    };
    let uname = rustix::system::uname();
    let show = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
    put("kernel", json!(show(uname.sysname())));
    put("kernelrelease", json!(show(uname.release())));
    put("kernelversion", json!(show(uname.version())));
    put("cpuarch", json!(show(uname.machine())));
    put("nodename", json!(name));

    let fqdn = fqdn(&text("/etc/hosts"), name);
    let (host, domain) = fqdn.split_once('.').unwrap_or((fqdn.as_str(), ""));
    put("host", json!(host));
    put("domain", json!(domain));
    put("fqdn", json!(fqdn));
    put("localhost", json!(name));

    let mut release = text("/etc/os-release");
    if release.is_empty() {
        release = text("/usr/lib/os-release");
    }
    for (key, value) in distribution(&os_release(&release)) {
        put(&key, value);
    }
    put("osarch", json!(osarch(&show(uname.machine()))));

    let cpus = text("/proc/cpuinfo");
    put(
        "num_cpus",
        json!(
            cpus.lines()
                .filter(|l| l.starts_with("processor"))
                .count()
                .max(1)
        ),
    );
    let model = cpus
        .lines()
        .find(|l| l.starts_with("model name"))
        .and_then(|l| l.split_once(':'));
    put("cpu_model", json!(model.map_or("", |(_, v)| v.trim())));
    let memory = text("/proc/meminfo");
    put("mem_total", json!(megabytes(&memory, "MemTotal:")));
    put("swap_total", json!(megabytes(&memory, "SwapTotal:")));
    put("machine_id", json!(text("/etc/machine-id").trim()));

    let (virt, subtype) = virtualisation();
    put("virtual", json!(virt));
    if let Some(subtype) = subtype {
        put("virtual_subtype", json!(subtype));
    }
    let init = text("/proc/1/comm");
    put(
        "init",
        json!(if init.trim() == "systemd" {
            "systemd"
        } else {
            "unknown"
        }),
    );
    if let Some(version) = systemd_version().await {
        put("systemd", json!({"version": version}));
    }
    let enforce = text("/sys/fs/selinux/enforce");
    let mode = match enforce.trim() {
        "1" => "Enforcing",
        "0" => "Permissive",
        _ => "Disabled",
    };
    put(
        "selinux",
        json!({"enabled": !enforce.is_empty(), "enforced": mode}),
    );
    let version = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        2
    } else {
        1
    };
    put("cgroup_version", json!(version));
    put("disks", json!(disks()));
    put("disk_free", disk_free());
}

/// The host's full name from `/etc/hosts`, or its plain name.
fn fqdn(hosts: &str, name: &str) -> String {
    if name.contains('.') {
        return name.to_owned();
    }
    let found = hosts.lines().find_map(|line| {
        let words: Vec<&str> = line.split('#').next()?.split_whitespace().skip(1).collect();
        let listed = words.contains(&name);
        words
            .into_iter()
            .find(|w| listed && w.split_once('.').is_some_and(|(host, _)| host == name))
    });
    found.unwrap_or(name).to_owned()
}

fn os_release(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        Some((
            key.trim().to_owned(),
            value.trim().trim_matches(['"', '\'']).to_owned(),
        ))
    });
    pairs.collect()
}

/// Salt's `os*` grains from os-release(5).
fn distribution(release: &BTreeMap<String, String>) -> Vec<(String, Value)> {
    let get = |key: &str| release.get(key).map_or("", String::as_str);
    let id = get("ID");
    let (os, family) = match id {
        "debian" => ("Debian", "Debian"),
        "ubuntu" => ("Ubuntu", "Debian"),
        "rhel" => ("RedHat", "RedHat"),
        "centos" => ("CentOS Stream", "RedHat"),
        "rocky" => ("Rocky", "RedHat"),
        "almalinux" => ("AlmaLinux", "RedHat"),
        "ol" => ("OEL", "RedHat"),
        "fedora" => ("Fedora", "RedHat"),
        "amzn" => ("Amazon", "RedHat"),
        "sles" | "sled" => ("SUSE", "Suse"),
        "opensuse-leap" | "opensuse-tumbleweed" => ("openSUSE", "Suse"),
        _ => (get("NAME"), ""),
    };
    let like = get("ID_LIKE");
    let family = match family {
        "" if like.contains("debian") => "Debian",
        "" if like.contains("rhel") || like.contains("fedora") => "RedHat",
        "" if like.contains("suse") => "Suse",
        "" => os,
        known => known,
    };
    let version = get("VERSION_ID");
    let major = version.split('.').next().unwrap_or_default();
    // Salt: the whole version if it makes up the release (Ubuntu), the major number otherwise.
    let finger = if os == "Ubuntu" { version } else { major };
    let codename = get("VERSION_CODENAME");
    let info: Vec<Value> = version
        .split('.')
        .filter_map(|p| p.parse::<u64>().ok())
        .map(Value::from)
        .collect();
    let pairs = [
        ("os", json!(os)),
        ("os_family", json!(family)),
        ("osfullname", json!(get("NAME"))),
        ("osrelease", json!(version)),
        ("osrelease_info", json!(info)),
        (
            "osmajorrelease",
            major
                .parse::<u64>()
                .map_or_else(|_| json!(major), |n| json!(n)),
        ),
        ("oscodename", json!(codename)),
        ("osfinger", json!(format!("{os}-{finger}"))),
    ];
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// The distribution's word for the architecture if it differs (dpkg), the kernel's otherwise.
fn osarch(machine: &str) -> &str {
    if !Path::new("/usr/bin/dpkg").exists() {
        return machine;
    }
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A value of `/proc/meminfo` in MiB.
fn megabytes(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or_default()
        / 1024
}

fn virtualisation() -> (String, Option<String>) {
    let container = text("/run/systemd/container");
    if !container.trim().is_empty() {
        return ("container".to_owned(), Some(container.trim().to_owned()));
    }
    let product = text("/sys/class/dmi/id/product_name");
    let vendor = text("/sys/class/dmi/id/sys_vendor");
    let kind = match (vendor.trim(), product.trim()) {
        (_, p) if p.contains("VirtualBox") => "VirtualBox",
        (_, p) if p.contains("VMware") => "VMware",
        ("QEMU", _) => "kvm",
        (_, p) if p.contains("KVM") || p.contains("OpenStack") || p.contains("RHEV") => "kvm",
        (v, p) if v.starts_with("Microsoft") && p.contains("Virtual Machine") => "HyperV",
        ("Xen", _) => "xen",
        ("Google", _) | ("Amazon EC2", _) => "kvm",
        _ if text("/proc/cpuinfo")
            .lines()
            .any(|l| l.starts_with("flags") && l.contains(" hypervisor")) =>
        {
            "kvm"
        }
        _ => "physical",
    };
    (kind.to_owned(), None)
}

async fn systemd_version() -> Option<String> {
    let argv = ["systemctl", "--version"].map(str::to_owned).to_vec();
    let output = run(
        &Command {
            argv,
            ..Command::default()
        },
        Some(TOOL),
    )
    .await
    .ok()?;
    Some(
        output
            .stdout
            .lines()
            .next()?
            .split_whitespace()
            .nth(1)?
            .to_owned(),
    )
}

fn disks() -> Vec<String> {
    let mut names =
        crate::host::linux::files::utf8_names("/sys/block".as_ref()).unwrap_or_default();
    names.retain(|n| {
        !["loop", "ram", "zram", "dm-", "md", "sr"]
            .iter()
            .any(|p| n.starts_with(p))
    });
    names
}

/// Free bytes for root's use on the file systems of `/` and `/var`.
fn disk_free() -> Value {
    let mut free = Map::new();
    for path in ["/", "/var"] {
        if let Ok(found) = rustix::fs::statvfs(path) {
            free.insert(
                path.to_owned(),
                json!(found.f_bfree.saturating_mul(found.f_frsize)),
            );
        }
    }
    Value::Object(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(pairs: &[(String, Value)], key: &str) -> Value {
        pairs.iter().find(|(k, _)| k == key).unwrap().1.clone()
    }

    #[test]
    fn debian_and_a_relative_of_red_hat() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        let found = distribution(&os_release(debian));
        assert_eq!(get(&found, "os"), "Debian");
        assert_eq!(get(&found, "osmajorrelease"), 12);
        assert_eq!(get(&found, "osfinger"), "Debian-12");
        assert_eq!(get(&found, "oscodename"), "bookworm");
        let rocky = "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n";
        let found = distribution(&os_release(rocky));
        assert_eq!(
            (get(&found, "os_family"), get(&found, "osfinger")),
            (json!("RedHat"), json!("Rocky-9"))
        );
        let other = "NAME=Special\nID=special\nID_LIKE=debian\nVERSION_ID=1\n";
        assert_eq!(
            get(&distribution(&os_release(other)), "os_family"),
            "Debian"
        );
    }

    #[test]
    fn full_names_come_from_the_hosts_file() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 web.example.org web\n";
        assert_eq!(fqdn(hosts, "web"), "web.example.org");
        assert_eq!(fqdn(hosts, "db"), "db");
        assert_eq!(fqdn(hosts, "a.b"), "a.b");
    }

    #[test]
    fn memory_is_in_megabytes() {
        assert_eq!(
            megabytes(
                "MemTotal:       16384000 kB\nSwapTotal: 0 kB\n",
                "MemTotal:"
            ),
            16000
        );
    }
}
