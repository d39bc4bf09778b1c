//! A host that no cluster can use, for several reasons at once.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CLUSTER, boot_bootstrap, install};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::progress::Board;
use halite_lab::{Lab, wait};
use halite_upstream::prepare;
use halite_upstream::versions::FULL;

use super::host::deliver;
use crate::cluster::PODS;
use crate::test::Counts;

/// The name of its own lab.
const LAB: &str = "refused";

/// A name of 53 characters: a valid name of a host, and one too long for a kubelet's certificate.
const NAME: &str = "kubernetes-worker-0001.rack-07.datacentre-nordwest.eu";

/// The address that the document declares as VIP.
const VIP: &str = "10.10.0.100";

/// A stranger with the VIP that answers nothing but ARP.
const STRANGER: &str = "table inet stranger { chain input { type filter hook input priority 0; ip daddr 10.10.0.100 drop; }; }";

/// The packages that are made, with fields of their control files.
const PACKAGES: &[(&str, &str)] = &[
    ("kubelet", "Version: 0.9-1"),
    (
        "containerd.io",
        "Version: 1.7.27-1\nProvides: containerd, runc\nConflicts: containerd, runc\nReplaces: containerd, runc",
    ),
    (
        "docker-ce",
        "Version: 5:28.0.4-1\nDepends: containerd.io (>= 1.7.27)",
    ),
];

/// The service of packages for iptables.
const IPTABLES: &str = "[Unit]\nDescription=IPv4 firewall with iptables\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                        ExecStart=/bin/true\n\n[Install]\nWantedBy=basic.target\n";

/// The checks that refuse the host, each with a part of its message.
const REFUSALS: &[(&str, &str)] = &[
    ("documents", "the name has 53 characters"),
    (
        "host-name",
        "cannot name a node with 53 characters: a name has at most 52",
    ),
    (
        "name-server",
        "/etc/resolv.conf names 127.0.0.1, which is another address in each pod",
    ),
    (
        "held-packages",
        "packages are on hold: kubelet (0.9-1, to become ",
    ),
    ("container-engine", "the packages docker-ce"),
    ("container-engine", "would remove containerd.io docker-ce"),
    ("other-firewall", "another firewall is enabled: iptables"),
    (
        "container-storage",
        "/var/lib/containerd is on overlay, which cannot hold containers",
    ),
    ("vip", "another host has the VIP 10.10.0.100"),
];

/// Remedies that the report names.
const REMEDIES: &[&str] = &[
    "apt-mark unhold kubelet",
    "dns: {forwarders: [ADDRESS]}",
    "systemctl disable --now",
    "Nothing was changed.",
];

/// Programs of the host write below these directories at any time, and kernel and lab have others.
const SKIPPED: [&str; 9] = [
    "/dev",
    "/media",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/var/lib/systemd",
    "/var/log",
    "/var/tmp",
];

pub(super) fn in_one_report((): &()) -> Result<Counts> {
    let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let iso_directory = prepare::iso_directory_of(&FULL, &Board::plain())?;
    let host = boot_bootstrap(&lab, &iso_directory)?;
    deliver(&host)?;
    spoil(&lab, &host)?;
    refuses(&host)?;
    // Its disks and logs remain after a failure.
    lab.down()?;
    Ok(Counts::ONE)
}

/// Gives the host all that is refused.
fn spoil(lab: &Lab, host: &Host) -> Result<()> {
    for (package, fields) in PACKAGES {
        let control = format!(
            "Package: {package}\n{fields}\nArchitecture: all\nMaintainer: x <x@corp.example>\nDescription: x\n"
        );
        let directory = host.file(&format!("/root/made/{package}/DEBIAN"));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("control"), control)?;
        host.sh(&format!(
            "cd /root/made && chmod -R u=rwX,go=rX {package} && dpkg-deb --build --root-owner-group {package} {package}.deb && \
             dpkg --install {package}.deb"
        ))?;
    }
    let unit = "/usr/lib/systemd/system/iptables.service";
    std::fs::write(host.file(unit), IPTABLES)?;
    host.sh(
        "set -e
        echo 'kubelet hold' | dpkg --set-selections
        systemctl daemon-reload
        systemctl enable --now iptables
        systemctl stop apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer 2>/dev/null || true
        echo 'nameserver 127.0.0.1' > /etc/resolv.conf
        umount /var/lib/containerd
        findmnt -no FSTYPE --target /var/lib/containerd | grep -qx overlay",
    )?;
    let router = lab.router.namespace.as_str();
    let address = format!("{VIP}/24");
    run("ip", &["-n", router, "addr", "add", &address, "dev", "cp0"])?;
    run("ip", &["netns", "exec", router, "nft", STRANGER])?;
    // The stranger is reached, and does not answer.
    host.sh(&format!(
        "! ping -c 1 -W 1 {VIP} >/dev/null && ip neigh show {VIP} | grep -q lladdr"
    ))
    .map(drop)
}

fn refuses(host: &Host) -> Result<()> {
    std::fs::write(host.file("/root/cluster.yaml"), CLUSTER)?;
    let before = state(host)?;
    let command = [install(), vec!["--name".to_owned(), NAME.to_owned()]].concat();
    let output = host.output(&command)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    ensure!(
        output.status.code() == Some(1),
        "it ended with {}: {said}",
        output.status
    );
    for (check, message) in REFUSALS {
        let found = said.split("✗ ").any(|part| {
            // The lines of a message are indented.
            let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
            text.starts_with(&format!("{check}: ")) && text.contains(message)
        });
        ensure!(
            found,
            "the check {check} does not say {message:?} in: {said}"
        );
    }
    for remedy in REMEDIES {
        ensure!(said.contains(remedy), "{remedy:?} is not in: {said}");
    }
    // No process that the command has started is left.
    wait::until("the programs of the command to end", PODS, || {
        host.sh("! pgrep -f '[h]alite'").map(drop)
    })?;
    let after = state(host)?;
    let differ: Vec<&str> = after
        .lines()
        .filter(|line| !before.lines().any(|old| old == *line))
        .chain(
            before
                .lines()
                .filter(|line| !after.lines().any(|new| new == *line)),
        )
        .collect();
    ensure!(differ.is_empty(), "the host has changed: {differ:#?}");
    Ok(())
}

/// Each file with its content, owner and mode, and the state of the kernel, the packages and the
/// units.
fn state(host: &Host) -> Result<String> {
    let skipped = SKIPPED
        .map(|path| format!("-path {path} -prune"))
        .join(" -o ");
    let find = |action: &str| format!("find / {skipped} -o {action}");
    let files = find("-type f -print0");
    let entries = find("-printf '%p %y %m %U:%G %s %l\\n'");
    host.sh(&format!(
        "set -e
        {files} | sort -z | xargs -0 sha256sum
        # The number of entries is the size of a directory.
        {entries} | sed 's/\\( d [0-7]* [0-9:]*\\) [0-9]*/\\1/' | sort
        dpkg-query -W -f '${{Package}} ${{Version}} ${{Status}}\\n'
        systemctl list-unit-files --no-legend
        cat /proc/self/mounts /proc/swaps
        ip -o link | sed 's/^/link /'
        ip -o addr | sed 's/valid_lft.*//'
        ip route
        cat /proc/sys/net/ipv4/ip_forward"
    ))
    .context("cannot read the state of the host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_just_too_long() {
        assert_eq!(NAME.len(), 53);
        assert!(CLUSTER.contains(&format!("vip: {VIP}")));
    }
}
