//! The other way: what an administrator would write around kubeadm on a host without internet.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use halite_lab::cluster::BUNDLE;
use halite_lab::command;
use halite_lab::host::Host;
use serde_json::json;

use super::inputs::Inputs;

/// Prints the nanoseconds since the epoch after each phase, with its name.
const SCRIPT: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive KUBECONFIG=/etc/kubernetes/admin.conf
cd /root/peer
done_with() { echo "phase $1 $(date +%s%N)"; }
done_with start

install -D -m 0644 "$BUNDLE/apt/halite.gpg" /etc/apt/keyrings/bundle.gpg
echo "deb [signed-by=/etc/apt/keyrings/bundle.gpg] file:$BUNDLE/apt stable main" > /etc/apt/sources.list.d/bundle.list
apt-get -q update
apt-get -q -y --no-install-recommends install $PACKAGES
done_with packages

sysctl -q -w net.ipv4.ip_forward=1
echo "$ADDRESS $ENDPOINT" >> /etc/hosts
firewall-cmd -q --permanent --add-port=6443/tcp --add-port=10250/tcp --add-port=8472/udp
firewall-cmd -q --permanent --zone=trusted --add-source=10.233.0.0/16
firewall-cmd -q --reload
install -D -m 0644 containerd.toml /etc/containerd/config.toml
systemctl enable -q --now containerd
ctr -n k8s.io images import images.tar
done_with images

systemctl enable -q kubelet
kubeadm init --config kubeadm.yaml --ignore-preflight-errors=all --skip-token-print
done_with kubeadm

kubectl apply -f flannel.json
kubectl wait --for=condition=Ready "node/$(hostname)" --timeout=300s
done_with ready
"#;

/// Prepares the files (not timed) and runs the script; the phases and how long each took.
pub(super) fn run(host: &Host, inputs: &Inputs) -> Result<Vec<(String, Duration)>> {
    let dir = host.root().join("root/peer");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("containerd.toml"), &inputs.containerd)?;
    fs::write(dir.join("kubeadm.yaml"), &inputs.kubeadm)?;
    fs::write(dir.join("flannel.json"), &inputs.flannel)?;
    archive(inputs, &dir)?;
    let environment = [
        format!("BUNDLE={BUNDLE}"),
        format!("PACKAGES={}", inputs.packages.join(" ")),
        format!("ADDRESS={}", host.control_plane_address()),
        format!("ENDPOINT={}", inputs.endpoint),
    ];
    let mut all = vec!["env"];
    all.extend(environment.iter().map(String::as_str));
    all.extend(["bash", "-c", SCRIPT]);
    let output = host.output(&all)?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "the script failed: {}\n{}",
            said.lines().rev().take(20).collect::<Vec<_>>().join("\n"),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    phases(&said)
}

/// One archive of all images, each under the name that containerd is to know it by.
fn archive(inputs: &Inputs, dir: &Path) -> Result<()> {
    let mut manifests = Vec::new();
    let mut args = vec![
        "-cf".to_owned(),
        dir.join("images.tar").to_string_lossy().into_owned(),
    ];
    for image in &inputs.images {
        let index = fs::read(image.layout.join("index.json"))?;
        let index: serde_json::Value = serde_json::from_slice(&index)?;
        let mut manifest = index["manifests"][0].clone();
        manifest["annotations"] = json!({"io.containerd.image.name": image.reference});
        manifests.push(manifest);
        args.extend([
            "-C".to_owned(),
            image.layout.to_string_lossy().into_owned(),
            "blobs".to_owned(),
        ]);
    }
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(dir.join("index.json"), index.to_string())?;
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    args.extend(["-C".to_owned(), dir.to_string_lossy().into_owned()]);
    args.extend(["oci-layout".to_owned(), "index.json".to_owned()]);
    command::run("tar", &args).map(drop)
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
