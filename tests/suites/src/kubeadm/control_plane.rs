//! An additional control plane: the files that `kubeadm join --control-plane` would write on its
//! host, compared with the existing ones.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use serde_json::{Value, json};

use super::allowed::Allowed;
use super::difference::{Difference, Picture};
use super::files::File;
use super::inputs::CRI_SOCKET;
use super::reference::KUBEADM;
use super::{differ, files, judge, live, refuse};
use crate::test::Counts;

/// Runs the phases of the join that write files, with the cluster's own authorities and objects, in
/// its own mount namespace: the directories of Kubernetes' files are empty there, except for the
/// files that an operator copies to a joining host, and vanish with it. Without programs in the
/// path kubeadm cannot change systemd. The first three phases change nothing in the cluster; the
/// one of etcd would add a member, so it is a dry run, which reads `admin.conf` in its own
/// directory.
const SCRIPT: &str = r#"
set -eu
config=$1 kubeadm=$2
mount -t tmpfs tmpfs /mnt
umask 022
mkdir -p /mnt/pki/etcd /mnt/dry
cd /etc/kubernetes/pki
for name in ca front-proxy-ca etcd/ca; do
  cp -p "$name.crt" "$name.key" "/mnt/pki/$(dirname "$name")/"
done
cp -p sa.key sa.pub /mnt/pki/
cp ../admin.conf /mnt/discovery.conf
printf '%s' "$config" > /mnt/config.yaml
cd /mnt
mount -t tmpfs tmpfs /etc/kubernetes
mount -t tmpfs tmpfs /var/lib/kubelet
mv pki /etc/kubernetes/
join() {
  env -i PATH=/nonexistent HOME=/root KUBEADM_JOIN_DRYRUN_DIR=/mnt/dry \
    "$kubeadm" join phase "$@" --config /mnt/config.yaml > /mnt/output 2>&1 || { cat /mnt/output >&2; exit 1; }
}
join control-plane-prepare certs
join control-plane-prepare kubeconfig
join control-plane-prepare control-plane
cp /etc/kubernetes/admin.conf /mnt/dry/
join etcd-join --dry-run
mv dry/etcd.yaml /etc/kubernetes/manifests/
"#;

/// Prints the files to compare. Those of the kubelet are compared for a worker.
const COMPARED: &str = "cd /etc/kubernetes && dump '' pki manifests *.conf\n";

/// The kubeconfig of the kubelet, which creates it itself in a join.
const OF_KUBELET: &str = "kubelet.conf";

/// The only existing file that kubeadm makes only on the first control plane. Halite's is on each,
/// because any of them may be the last one.
const SUPER_ADMIN: &str = "super-admin.conf";

/// Flag of etcd with the members that a member knows at its first start.
const INITIAL_CLUSTER: &str = "--initial-cluster=";

/// Compares each control plane that joined; each place of the pictures counts.
pub(crate) fn compare(cluster: &Cluster) -> Result<Counts> {
    let planes = cluster.control_planes();
    let (_, joined) = planes.split_first().context("no control plane")?;
    ensure!(!joined.is_empty(), "no further control plane");
    let (mut passed, mut found) = (0, Vec::new());
    for host in joined {
        let (places, differences) = compared(host, &planes)?;
        passed += places;
        found.push((host.spec.name.as_str(), differences));
    }
    refuse(&judge(found, &mut Allowed::load()?))?;
    Ok(Counts { passed, failed: 0 })
}

/// Compares a control plane that joined; returns the number of places in kubeadm's picture, and the
/// differences.
fn compared(host: &Host, planes: &[&Host]) -> Result<(usize, Vec<Difference>)> {
    let mut theirs = printed(host, &kubeadm(host))?;
    let mut ours = printed(host, &["sh", "-c", &format!("{}{COMPARED}", files::DUMP)])?;
    ensure!(
        ours.iter().any(|file| file.path == SUPER_ADMIN)
            && !theirs.iter().any(|file| file.path == SUPER_ADMIN),
        "{SUPER_ADMIN} no longer differs as expected"
    );
    theirs.retain(|file| file.path != OF_KUBELET);
    ours.retain(|file| ![OF_KUBELET, SUPER_ADMIN].contains(&file.path.as_str()));
    let mut pictures = (picture(&theirs)?, picture(&ours)?);
    let alone = members(&mut pictures.0)?;
    let known = members(&mut pictures.1)?;
    // A dry run does not ask a member for the others.
    let all: BTreeSet<String> = planes.iter().map(|host| member(host)).collect();
    ensure!(
        alone == BTreeSet::from([member(host)]) && known.is_superset(&alone),
        "{} starts with the members {known:?}, kubeadm's with {alone:?}",
        host.spec.name
    );
    ensure!(
        known.len() > 1 && known.is_subset(&all),
        "{} joined {known:?}, the members are {all:?}",
        host.spec.name
    );
    live::cut_digests(&mut pictures.1);
    let differences = differ::compare(&pictures.0, &pictures.1);
    Ok((pictures.0.len(), differences))
}

/// The command that prints the files that kubeadm would write on a host.
fn kubeadm(host: &Host) -> [String; 10] {
    let configuration = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": "/mnt/discovery.conf"}},
        "nodeRegistration": {"name": host.spec.name, "criSocket": CRI_SOCKET},
        "controlPlane": {"localAPIEndpoint": {
            "advertiseAddress": host.control_plane_address(),
            "bindPort": 6443,
        }},
    });
    let script = format!("{}{SCRIPT}{COMPARED}", files::DUMP);
    [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &script,
        "sh",
        &configuration.to_string(),
        KUBEADM,
    ]
    .map(str::to_owned)
}

fn printed<S: AsRef<str>>(host: &Host, command: &[S]) -> Result<Vec<File>> {
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let files = files::parse(&host.run(&command)?)?;
    ensure!(files.len() > 20, "only {} files: {files:?}", files.len());
    Ok(files)
}

fn picture(files: &[File]) -> Result<Picture> {
    let picture = files::picture(files, &files::authorities(files));
    let unreadable = picture
        .keys()
        .find(|place| place.starts_with("unreadable/"));
    ensure!(unreadable.is_none(), "a file is {unreadable:?}");
    Ok(picture)
}

/// The peer of a host, as in [`INITIAL_CLUSTER`].
fn member(host: &Host) -> String {
    let address = host.control_plane_address();
    format!("{}=https://{address}:2380", host.spec.name)
}

/// Removes the members from the flags of etcd.
fn members(picture: &mut Picture) -> Result<BTreeSet<String>> {
    let pod = picture.get_mut("static-pod/etcd").context("no etcd")?;
    let command = pod.pointer_mut("/spec/containers/0/command");
    let command = command
        .and_then(Value::as_array_mut)
        .context("etcd without a command")?;
    let is_list = |word: &Value| {
        word.as_str()
            .is_some_and(|word| word.starts_with(INITIAL_CLUSTER))
    };
    let at = command.iter().position(is_list);
    let list = command.remove(at.context("etcd without a list of members")?);
    let list = list
        .as_str()
        .and_then(|list| list.strip_prefix(INITIAL_CLUSTER));
    let members = list.unwrap_or_default().split(',');
    Ok(members.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_are_removed_from_the_flags() {
        let pod = |words: Value| json!({"spec": {"containers": [{"command": words}]}});
        let flags = json!([
            "etcd",
            "--initial-cluster-state=existing",
            "--initial-cluster=a=x,b=y"
        ]);
        let mut picture = Picture::from([("static-pod/etcd".to_owned(), pod(flags))]);
        let expected = ["a=x", "b=y"].map(str::to_owned);
        assert_eq!(members(&mut picture).unwrap(), BTreeSet::from(expected));
        assert_eq!(
            picture["static-pod/etcd"],
            pod(json!(["etcd", "--initial-cluster-state=existing"]))
        );
        assert!(members(&mut picture).is_err());
    }
}
