//! Images by their digests: full references in pods, and the names under which containerd stores
//! them wherever a text is compared with those names.

use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate};

const CONTAINERD: &str = "/etc/containerd/config.toml";

fn image<'a>(pillar: &'a Value, component: &str) -> &'a str {
    pillar["halite"]["images"][component].as_str().unwrap()
}

#[test]
fn pods_name_images_with_tag_and_digest() {
    let (pillar, grains) = fixture("bootstrap");
    let compiled = highstate(&pillar, &grains);
    for component in [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ] {
        let image = image(&pillar, component);
        assert!(image.contains("@sha256:"), "{image}");
        chunk(&compiled, "image.present", image);
        let pod = contents(
            &compiled,
            &format!("/etc/kubernetes/manifests/{component}.yaml"),
        );
        let line = format!("image: {image}\n");
        assert!(pod.contains(&line), "{pod}");
    }
    let (pillar, grains) = fixture("master");
    let compiled = highstate(&pillar, &grains);
    let objects: Vec<String> = (compiled.low.chunks.iter())
        .filter(|chunk| chunk.function() == "kubernetes.manifest")
        .map(|chunk| chunk.args["documents"].to_string())
        .collect();
    for component in ["kube-proxy", "coredns", "flannel", "flannel-cni-plugin"] {
        let wanted = format!("\"image\":\"{}\"", image(&pillar, component));
        let there = objects.iter().any(|object| object.contains(&wanted));
        assert!(there, "no object has {wanted}");
    }
}

#[test]
fn containerd_gets_the_name_under_which_it_stores_an_image() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["etcd"]["placement"] = json!("stacked");
    pillar["halite"]["etcd"]["mode"] = json!("host-service");
    let digest = format!("sha256:{}", "1".repeat(64));
    // A bundle that was built before digests were recorded has no digest.
    for digest in [format!("@{digest}"), String::new()] {
        let stored = |name: &str| match digest.as_str() {
            "" => format!("localhost:5000/{name}:3"),
            digest => format!("localhost:5000/{name}{digest}"),
        };
        for component in ["pause", "etcd"] {
            let image = format!("localhost:5000/{component}:3{digest}");
            pillar["halite"]["images"][component] = json!(image);
        }
        let compiled = highstate(&pillar, &grains);
        let config = contents(&compiled, CONTAINERD);
        let line = format!(".\"pinned_images\".\"sandbox\" = \"{}\"\n", stored("pause"));
        assert!(config.contains(&line), "{config}");
        let program = (compiled.low.chunks.iter()).find(|chunk| chunk.id == "etcd-program");
        let script = &program.unwrap().name;
        let mount = format!(" images mount {} \"$mounted\"", stored("etcd"));
        assert!(script.contains(&mount), "{script}");
    }
}
