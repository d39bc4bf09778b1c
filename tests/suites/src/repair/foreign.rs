//! Foreign files and settings next to Halite's: they must stay.

use halite_lab::cluster::{BOOTSTRAP, WORKER};

use super::damage::{Foreign, quote};

/// Files in directories that Halite uses, lines in shared files, and a unit.
pub fn files() -> Vec<Foreign> {
    let mut all = Vec::new();
    for host in [BOOTSTRAP, WORKER] {
        for path in [
            "/etc/kubernetes/pki/operator.crt",
            "/etc/containerd/certs.d/registry.example/hosts.toml",
            "/etc/apt/sources.list.d/operator.list",
            "/etc/sysctl.d/90-operator.conf",
            "/var/lib/halite/minion/operator.note",
        ] {
            let quoted = quote(path);
            all.push(Foreign {
                host: host.to_owned(),
                what: path,
                add: format!("mkdir -p \"$(dirname {quoted})\" && echo '# of the operator' > {quoted} && chmod 0640 {quoted}"),
                probe: format!("stat -c '%a %U' {quoted} && cat {quoted}"),
                remove: format!("rm {quoted}"),
            });
        }
        all.push(Foreign {
            host: host.to_owned(),
            what: "a name in /etc/hosts",
            add: "echo '192.0.2.7 operator.example # of the operator' >> /etc/hosts".to_owned(),
            probe: "grep operator.example /etc/hosts".to_owned(),
            remove: "grep -v operator.example /etc/hosts > /root/halite-test-edit; cat /root/halite-test-edit > /etc/hosts".to_owned(),
        });
        all.push(Foreign {
            host: host.to_owned(),
            what: "a line in our file of kernel parameters",
            add: "echo 'net.ipv4.ip_default_ttl = 63' >> /etc/sysctl.d/zz-halite.conf".to_owned(),
            probe: "grep ip_default_ttl /etc/sysctl.d/zz-halite.conf".to_owned(),
            remove: "sed -i /ip_default_ttl/d /etc/sysctl.d/zz-halite.conf".to_owned(),
        });
        all.push(Foreign {
            host: host.to_owned(),
            what: "a running unit",
            add: "printf '[Service]\\nExecStart=/usr/bin/sleep infinity\\n' > /etc/systemd/system/operator.service && systemctl daemon-reload && systemctl start operator".to_owned(),
            probe: "systemctl show -p InvocationID operator && systemctl is-active operator".to_owned(),
            remove: "systemctl stop operator && rm /etc/systemd/system/operator.service && systemctl daemon-reload".to_owned(),
        });
    }
    all
}
