//! Patches of kubeadm's output: its other way to set flags and settings, and its counterpart of the
//! `patches` of the cluster document.

use std::mem;

use anyhow::{Context as _, Result};
use halite_pillar::cluster::Cluster;
use halite_pillar::component::Patch;
use halite_pillar::declaration::Declaration;
use halite_pillar::flags::Flags;
use serde_json::{Value, json};

use super::difference::Picture;
use super::inputs;

/// Directory of the patches for kubeadm, written by [`super::reference`].
pub(super) const DIRECTORY: &str = "/mnt/patches";

/// Places in the API in which kubeadm records its configuration: patches are not part of it.
const RECORDS: [&str; 2] = [
    "object/ConfigMap/kube-system/kubeadm-config",
    "object/ConfigMap/kube-system/kubelet-config",
];

/// The name of kubeadm's target for a patch, the name of the container, and the patches of a
/// component.
type Patched<'a> = (&'static str, &'static str, &'a mut Vec<Patch>);

/// Each component with patches in the cluster document.
fn components(cluster: &mut Cluster) -> [Patched<'_>; 5] {
    let manager = &mut cluster.controller_manager;
    [
        ("etcd", "etcd", &mut cluster.etcd.patches),
        (
            "kube-apiserver",
            "kube-apiserver",
            &mut cluster.api_server.patches,
        ),
        (
            "kube-controller-manager",
            "kube-controller-manager",
            &mut manager.patches,
        ),
        (
            "kube-scheduler",
            "kube-scheduler",
            &mut cluster.scheduler.patches,
        ),
        ("corednsdeployment", "coredns", &mut cluster.dns.patches),
    ]
}

/// Declares a strategic merge patch for each component: it changes a field, and adds others.
pub(super) fn declare(declaration: &mut Declaration) -> Result<()> {
    for (target, container, patches) in components(&mut declaration.cluster.value) {
        let pod = json!({"containers": [{
            "name": container,
            "env": [{"name": "PATCHED", "value": "yes"}],
            "resources": {"requests": {"cpu": "321m"}},
        }]});
        let spec = match target {
            "corednsdeployment" => json!({"template": {"spec": pod}}),
            _ => pod,
        };
        let annotations = json!({"example.com/patched": "yes"});
        let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
        patches.push(serde_json::from_value(patch)?);
    }
    Ok(())
}

/// The configuration for kubeadm without flags and kubelet settings, and patches that set these,
/// with those of the document: names of files and their texts.
pub(super) fn patched(
    declaration: &Declaration,
    version: &str,
) -> Result<(String, Vec<(String, String)>)> {
    let mut plain = declaration.clone();
    let cluster = &mut plain.cluster.value;
    let mut patches = Vec::new();
    for (target, _, declared) in components(cluster) {
        for (number, patch) in mem::take(declared).into_iter().enumerate() {
            let text = Value::Object(patch).to_string();
            patches.push((format!("{target}{number}+strategic.json"), text));
        }
    }
    for (target, extra) in [
        ("etcd", &mut cluster.etcd.extra_args),
        ("kube-apiserver", &mut cluster.api_server.extra_args),
        (
            "kube-controller-manager",
            &mut cluster.controller_manager.extra_args,
        ),
        ("kube-scheduler", &mut cluster.scheduler.extra_args),
    ] {
        patches.push((
            format!("{target}+json.json"),
            added(&mem::take(extra)).to_string(),
        ));
    }
    let settings = Value::Object(mem::take(&mut cluster.kubelet.config));
    patches.push((
        "kubeletconfiguration+merge.json".to_owned(),
        settings.to_string(),
    ));
    let mut documents = inputs::configuration(&plain, version)?;
    documents.first_mut().context("no InitConfiguration")?["patches"] =
        json!({"directory": DIRECTORY});
    Ok((inputs::text(&documents), patches))
}

/// A JSON patch that adds flags to the command of a static pod.
fn added(flags: &Flags) -> Value {
    let flags = flags.iter().flat_map(|(name, value)| {
        let values = value.all().iter();
        values.map(move |value| format!("--{name}={value}"))
    });
    flags
        .map(|flag| json!({"op": "add", "path": "/spec/containers/0/command/-", "value": flag}))
        .collect()
}

/// Removes the places in which kubeadm records its configuration.
pub(super) fn without_records(picture: &mut Picture) {
    picture.retain(|place, _| !RECORDS.contains(&place.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeadm::documents::OTHER_VERSION;

    #[test]
    fn settings_in_patches_are_not_in_the_configuration() {
        let mut declaration = inputs::declaration(OTHER_VERSION).unwrap();
        declare(&mut declaration).unwrap();
        let (text, patches) = patched(&declaration, "v1.35.4").unwrap();
        assert!(
            text.contains(r#""patches":{"directory":"/mnt/patches"}"#),
            "{text}"
        );
        assert!(
            !text.contains("KubeletConfiguration") && !text.contains("heartbeat-interval"),
            "{text}"
        );
        assert_eq!(patches.len(), 10);
        let patch = |name: &str| -> Value {
            let (_, text) = patches.iter().find(|(file, _)| file == name).unwrap();
            serde_json::from_str(text).unwrap()
        };
        assert_eq!(
            patch("etcd+json.json")[1],
            json!({"op": "add", "path": "/spec/containers/0/command/-", "value": "--heartbeat-interval=250"})
        );
        assert_eq!(patch("kubeletconfiguration+merge.json")["maxPods"], 64);
        for place in [
            ("kube-scheduler0", "/spec/containers/0/env/0/name"),
            (
                "corednsdeployment0",
                "/spec/template/spec/containers/0/env/0/name",
            ),
        ] {
            let patch = patch(&format!("{}+strategic.json", place.0));
            assert_eq!(patch.pointer(place.1), Some(&json!("PATCHED")));
        }
    }

    #[test]
    fn the_records_are_left_out() {
        let mut picture: Picture = RECORDS
            .iter()
            .chain(&["static-pod/etcd"])
            .map(|place| ((*place).to_owned(), json!(1)))
            .collect();
        without_records(&mut picture);
        assert_eq!(picture.into_keys().collect::<Vec<_>>(), ["static-pod/etcd"]);
    }
}
