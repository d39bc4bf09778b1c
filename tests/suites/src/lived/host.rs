//! A host as sites have them, which must work without help.

use anyhow::{Context as _, Result, ensure};
use halite_lab::host::Host;

/// The second address of a host in the workload plane: its number is larger by this.
const SECOND: u8 = 50;

/// The file with the addresses of the host, which is read at boot.
const ADDRESSES: &str = "/etc/default/site-network";

/// Packages that the operator has put on hold. Halite needs them, in any version.
pub(super) const HELD: [&str; 2] = ["ca-certificates", "curl"];

/// The sources that Halite must leave alone: a DVD, a mirror and a repository that refuse
/// connections, and one that is gone, but whose index names a newer version of a package that
/// Halite installs.
pub(super) const SOURCES: &str = "/etc/apt/sources.list /etc/apt/sources.list.d/debian.sources \
                                  /etc/apt/sources.list.d/agent.list /etc/apt/sources.list.d/gone.list";

/// The package, and its version in the repository that is gone.
pub(super) const NEWER_ELSEWHERE: (&str, &str) = ("ethtool", "99:1-1");

/// The network of the site, as its configuration makes it at boot: the two cards are ports of
/// bridges, whose addresses are leases; there is a second address and a card of another network; no
/// default route, but routes for the private networks to the router.
const NETWORK: &str = r#"#!/bin/sh -e
. /etc/default/site-network
bridge() {
  ip link add "$1" type bridge
  ip addr flush dev "$2"
  ip link set "$2" master "$1" up
  ip link set "$1" up
  ip addr add "$3/24" dev "$1" valid_lft 86400 preferred_lft 86400
}
bridge br-mgmt eth0 "$CONTROL"
bridge br-data eth1 "$WORKLOAD"
ip addr add "$SECOND/24" dev br-data
ip link add a0 type bridge
ip addr add 192.0.2.10/24 dev a0
ip link set a0 up
for network in 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16; do
  ip route add "$network" via "$ROUTER"
done
"#;

const NETWORK_UNIT: &str = "[Unit]
Description=The network of the site
DefaultDependencies=no
After=lab-hardware.service local-fs.target
Before=network-pre.target network.target sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/site-network

[Install]
WantedBy=sysinit.target
";

/// cloud-init with `manage_etc_hosts`, in its place of the boot.
const CLOUD_UNIT: &str = r#"[Unit]
Description=Writes /etc/hosts as cloud-init does with manage_etc_hosts
DefaultDependencies=no
After=local-fs.target
Before=network-pre.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'printf "127.0.1.1 %H.corp.example %H\n127.0.0.1 localhost\n" > /etc/hosts; echo written > /run/fake-cloud-init'

[Install]
WantedBy=sysinit.target
"#;

/// A swap device that systemd would start at boot. Nothing starts it before: swap belongs to the
/// machine.
const SWAP_UNIT: &str = "[Swap]\nWhat=/dev/zram0\n\n[Install]\nWantedBy=swap.target\n";

/// The files, with their texts.
const FILES: &[(&str, &str)] = &[
    ("/usr/local/sbin/site-network", NETWORK),
    ("/etc/systemd/system/site-network.service", NETWORK_UNIT),
    ("/etc/systemd/system/fake-cloud-init.service", CLOUD_UNIT),
    (
        "/etc/cloud/cloud.cfg.d/10-site.cfg",
        "manage_etc_hosts: true\n",
    ),
    ("/etc/systemd/system/dev-zram0.swap", SWAP_UNIT),
    (
        "/etc/systemd/zram-generator.conf",
        "[zram0]\nzram-size = ram / 2\n",
    ),
    (
        "/etc/apt/sources.list",
        "deb cdrom:[Debian GNU/Linux 12.9.0 _Bookworm_ - Official amd64 DVD]/ bookworm main\n",
    ),
    (
        "/etc/apt/sources.list.d/debian.sources",
        "Types: deb\nURIs: http://ROUTER:9/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
    ),
    (
        "/etc/apt/sources.list.d/agent.list",
        "deb http://ROUTER:9/agent bookworm main\n",
    ),
    (
        "/etc/apt/sources.list.d/gone.list",
        "deb [trusted=yes] copy:/srv/gone ./\n",
    ),
    (
        "/srv/gone/Packages",
        "Package: PACKAGE\nVersion: VERSION\nArchitecture: amd64\nMaintainer: x <x@corp.example>\nFilename: ./x.deb\nSize: 7\n\
         SHA256: 0000000000000000000000000000000000000000000000000000000000000000\nDescription: x\n",
    ),
    (
        "/etc/hosts",
        "127.0.0.1\tlocalhost\n127.0.1.1\tNAME.corp.example NAME\n::1\tlocalhost ip6-localhost\n",
    ),
];

/// The other differences, as commands: index files of the repository that is then gone, holds, a
/// sysctl file that sorts late, and small file systems from which no program runs.
const COMMANDS: &str = "chmod 755 /usr/local/sbin/site-network
chmod -R a+rX /srv/gone
apt-get -q -o Dir::Etc::SourceList=/etc/apt/sources.list.d/gone.list -o Dir::Etc::SourceParts=- update
rm -r /srv/gone
for package in HELD; do echo \"$package hold\"; done | dpkg --set-selections
echo 'net.ipv4.ip_forward = 0' >> /etc/sysctl.conf
ln -sfn ../sysctl.conf /etc/sysctl.d/99-sysctl.conf
for place in /tmp /var/tmp; do
  echo \"tmpfs $place tmpfs size=64m,mode=1777,noexec,nosuid,nodev 0 0\" >> /etc/fstab
  mount $place
done
systemctl daemon-reload
systemctl enable site-network fake-cloud-init dev-zram0.swap
systemctl start site-network";

/// Turns a bare host into one that was delivered by a site.
pub(super) fn deliver(host: &Host) -> Result<()> {
    let name = host.spec.name.as_str();
    let control = host.control_plane_address();
    let (network, _) = control.rsplit_once('.').context("no address")?;
    let router = format!("{network}.1");
    let workload = host.workload_address();
    let (plane, _) = workload.rsplit_once('.').context("no address")?;
    let second = format!("{plane}.{}", host.spec.number + SECOND);
    for (path, text) in FILES {
        let text = text
            .replace("ROUTER:9", &format!("{router}:9"))
            .replace("NAME", name)
            .replace("PACKAGE", NEWER_ELSEWHERE.0)
            .replace("VERSION", NEWER_ELSEWHERE.1);
        write(host, path, &text)?;
    }
    let addresses =
        format!("CONTROL={control}\nWORKLOAD={workload}\nSECOND={second}\nROUTER={router}\n");
    write(host, ADDRESSES, &addresses)?;
    let commands = COMMANDS.replace("HELD", &HELD.join(" "));
    host.sh(&format!("set -e\n{commands}"))?;
    is_delivered(host)
}

fn write(host: &Host, path: &str, text: &str) -> Result<()> {
    let file = host.file(path);
    let directory = file.parent().context("a file without a directory")?;
    std::fs::create_dir_all(directory)?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Fails if the host is cleaner than it should be, now or after a boot.
pub(super) fn is_delivered(host: &Host) -> Result<()> {
    let name = &host.spec.name;
    let checks = [
        "test -z \"$(ip route show default)\"",
        "ip route show 10.0.0.0/8 | grep -q via",
        "ip -4 addr show dev br-mgmt | grep -q dynamic",
        "test $(ip -4 -o addr show dev br-data | wc -l) -ge 2",
        "grep -q '^net.ipv4.ip_forward = 0' /etc/sysctl.d/99-sysctl.conf",
        // The container manager has mounted /tmp before systemd reads the file at boot.
        "findmnt -no OPTIONS /var/tmp | grep -q noexec",
        "grep -q zram /etc/systemd/zram-generator.conf",
    ];
    for check in checks {
        host.sh(check)
            .with_context(|| format!("{name} is not as delivered: {check}"))?;
    }
    let held = host.run(&["apt-mark", "showhold"])?;
    ensure!(
        held.lines().eq(HELD),
        "on hold on {name} are {held}, not {HELD:?}"
    );
    let swap = host.output(&["systemctl", "is-active", "dev-zram0.swap"])?;
    ensure!(!swap.status.success(), "{name} has swap");
    Ok(())
}
