//! The comparison: a script as an administrator would write it around kubeadm on a host without
//! internet.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use halite_lab::cluster::BUNDLE;
use halite_lab::host::Host;
use halite_suites::kubeadm::archive::archive;
use serde_json::{Value, json};

use super::inputs::Inputs;

/// Prints the nanoseconds since the epoch after each phase, with its name.
const BEGIN: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive KUBECONFIG=/etc/kubernetes/admin.conf
cd /root/peer
done_with() { echo "phase $1 $(date +%s%N)"; }
done_with start
"#;

/// Packages and images, on each host.
const PREPARE: &str = r#"
install -D -m 0644 "$BUNDLE/apt/halite.gpg" /etc/apt/keyrings/bundle.gpg
echo "deb [signed-by=/etc/apt/keyrings/bundle.gpg] file:$BUNDLE/apt stable main" > /etc/apt/sources.list.d/bundle.list
apt-get -q update
apt-get -q -y --no-install-recommends install $PACKAGES
done_with packages

sysctl -q -w net.ipv4.ip_forward=1
echo "$ADDRESS $ENDPOINT" >> /etc/hosts
firewall-cmd -q --permanent --add-port=6443/tcp --add-port=10250/tcp --add-port=2379-2380/tcp --add-port=8472/udp
firewall-cmd -q --permanent --zone=trusted --add-source=10.233.0.0/16
firewall-cmd -q --reload
install -D -m 0644 containerd.toml /etc/containerd/config.toml
systemctl enable -q --now containerd
ctr -n k8s.io images import images.tar
done_with images
"#;

/// The first control plane.
const INIT: &str = r#"
systemctl enable -q kubelet
kubeadm init --config kubeadm.yaml --ignore-preflight-errors=all --skip-token-print $INIT_OPTIONS
done_with kubeadm

kubectl apply -f flannel.json
kubectl wait --for=condition=Ready "node/$(hostname)" --timeout=300s
done_with ready
"#;

/// An additional control plane.
const JOIN: &str = r#"
systemctl enable -q kubelet
kubeadm join --config join.yaml --ignore-preflight-errors=all
done_with kubeadm
kubectl wait --for=condition=Ready "node/$(hostname)" --timeout=300s
done_with ready
"#;

/// The token of hosts that join, and the key of the certificates that they fetch.
const TOKEN: &str = "abcdef.0123456789abcdef";
const CERTIFICATE_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Prepares the files (not timed) and runs the script; returns the phases and their times.
pub(super) fn run(host: &Host, inputs: &Inputs) -> Result<Vec<(String, Duration)>> {
    write(host, inputs)?;
    let script = [BEGIN, PREPARE, INIT].concat();
    let address = host.control_plane_address();
    execute(
        host,
        inputs,
        &[("ADDRESS", &address), ("INIT_OPTIONS", "")],
        &script,
    )
}

/// The same for several control planes: packages and images in parallel, then one host after the
/// other, as kubeadm requires. The time until all nodes are Ready.
pub(super) fn several(hosts: &[&Host], inputs: &Inputs) -> Result<Vec<(String, Duration)>> {
    let first = *hosts.first().context("no host")?;
    let address = first.control_plane_address();
    for host in hosts {
        write(host, inputs)?;
        fs::write(
            host.root().join("root/peer/join.yaml"),
            join(host).to_string(),
        )?;
    }
    let variables = [
        ("ADDRESS", address.as_str()),
        ("INIT_OPTIONS", "--upload-certs"),
    ];
    let run = |host: &Host, script: &str| -> Result<Duration> {
        let phases = execute(host, inputs, &variables, &[BEGIN, script].concat())?;
        Ok(phases.into_iter().map(|(_, time)| time).sum())
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let prepared: Vec<_> = (hosts.iter())
            .map(|host| scope.spawn(|| run(host, PREPARE)))
            .collect();
        for thread in prepared {
            thread.join().map_err(|_| anyhow!("a script panicked"))??;
        }
        Ok::<(), Error>(())
    })?;
    let mut phases = vec![("packages and images".to_owned(), start.elapsed())];
    for host in hosts {
        let script = if host.spec.name == first.spec.name {
            INIT
        } else {
            JOIN
        };
        phases.push((host.spec.name.clone(), run(host, script)?));
    }
    Ok(phases)
}

/// kubeadm's configuration of an additional control plane. JSON is valid YAML.
fn join(host: &Host) -> Value {
    let address = host.control_plane_address();
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "token": TOKEN,
            "apiServerEndpoint": "api.demo.internal:6443",
            "unsafeSkipCAVerification": true,
        }},
        "nodeRegistration": {"name": host.spec.name},
        "controlPlane": {
            "localAPIEndpoint": {"advertiseAddress": address, "bindPort": 6443},
            "certificateKey": CERTIFICATE_KEY,
        },
    })
}

/// Writes the files of the script.
fn write(host: &Host, inputs: &Inputs) -> Result<()> {
    let dir = host.root().join("root/peer");
    fs::create_dir_all(&dir)?;
    let kubeadm = inputs.kubeadm_on(&host.spec.name, TOKEN, CERTIFICATE_KEY)?;
    fs::write(dir.join("containerd.toml"), &inputs.containerd)?;
    fs::write(dir.join("kubeadm.yaml"), kubeadm)?;
    fs::write(dir.join("flannel.json"), &inputs.flannel)?;
    archive(&inputs.images, &dir)
}

/// Runs a script on a host, with further variables.
fn execute(
    host: &Host,
    inputs: &Inputs,
    variables: &[(&str, &str)],
    script: &str,
) -> Result<Vec<(String, Duration)>> {
    let mut environment = vec![
        format!("BUNDLE={BUNDLE}"),
        format!("PACKAGES={}", inputs.packages.join(" ")),
        format!("ENDPOINT={}", inputs.endpoint),
    ];
    let further = variables.iter();
    environment.extend(further.map(|(name, value)| format!("{name}={value}")));
    let mut all = vec!["env"];
    all.extend(environment.iter().map(String::as_str));
    all.extend(["bash", "-c", script]);
    let output = host.output(&all)?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "the script failed on {}: {}\n{}",
            host.spec.name,
            said.lines().rev().take(20).collect::<Vec<_>>().join("\n"),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    phases(&said)
}

fn phases(said: &str) -> Result<Vec<(String, Duration)>> {
    let mut phases = Vec::new();
    let mut before: Option<u64> = None;
    for line in said.lines().filter_map(|line| line.strip_prefix("phase ")) {
        let (name, at) = line.split_once(' ').context("a phase without a time")?;
        let at: u64 = at
            .trim()
            .parse()
            .with_context(|| format!("the time of phase {name}"))?;
        if let Some(before) = before {
            phases.push((
                name.to_owned(),
                Duration::from_nanos(at.saturating_sub(before)),
            ));
        }
        before = Some(at);
    }
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_distinguished() {
        let said =
            "phase start 1000000000\nother\nphase packages 3500000000\nphase images 4000000000\n";
        let phases = phases(said).unwrap();
        assert_eq!(
            phases[0],
            ("packages".to_owned(), Duration::from_millis(2500))
        );
        assert_eq!(phases[1], ("images".to_owned(), Duration::from_millis(500)));
    }
}
