//! Boots at which another program writes `/etc/hosts`, as cloud-init does with `manage_etc_hosts`.

use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use crate::checks::nothing_to_do;
use crate::health;
use crate::test::Counts;

/// Limit for the hosts to serve after a power cut.
const BACK: Duration = Duration::from_secs(420);

/// The unit, in the order of cloud-init's.
const UNIT: &str = "/etc/systemd/system/fake-cloud-init.service";
const TEXT: &str = r#"[Unit]
Description=Writes /etc/hosts as cloud-init does with manage_etc_hosts
DefaultDependencies=no
After=local-fs.target
Before=network-pre.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'printf "127.0.1.1 %H.example.net %H\n127.0.0.1 localhost\n" > /etc/hosts; echo written > /run/fake-cloud-init'

[Install]
WantedBy=sysinit.target
"#;

pub(super) fn names_are_back(cluster: &Cluster) -> Result<Counts> {
    let hosts = [&cluster.bootstrap, &cluster.worker];
    for host in hosts {
        std::fs::write(host.file(UNIT), TEXT)?;
        host.run(&["systemctl", "enable", "fake-cloud-init"])?;
    }
    let names = hosts.map(|host| host.spec.name.clone());
    cluster.lab.power_off(&names, false)?;
    cluster.lab.power_on(&names)?;
    let outcome = are_back(cluster, hosts);
    for host in hosts {
        host.sh(&format!(
            "systemctl disable fake-cloud-init; rm {UNIT}; systemctl daemon-reload"
        ))?;
    }
    outcome?;
    Ok(Counts::ONE)
}

fn are_back(cluster: &Cluster, hosts: [&Host; 2]) -> Result<()> {
    for host in hosts {
        host.sh("test -e /run/fake-cloud-init && grep -q example.net /etc/hosts")?;
        for name in ["api.demo.internal", "bootstrap-1", "worker-1"] {
            let found = host.run(&["getent", "ahostsv4", name])?;
            ensure!(!found.starts_with("127.0.1.1"), "{name}: {found}");
        }
    }
    // By itself: no highstate runs. kube-proxy has its own copy of the file since the start of its
    // container.
    wait::until("kube-proxy to know the API's name", BACK, || {
        for host in hosts {
            host.sh("grep -qw api.demo.internal /proc/$(pgrep -ox kube-proxy)/root/etc/hosts")?;
        }
        Ok(())
    })?;
    health::is_well(cluster)?;
    nothing_to_do(&cluster.bootstrap)
}
