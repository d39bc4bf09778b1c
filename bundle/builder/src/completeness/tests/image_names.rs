//! Images that states and files name.

use super::*;

#[test]
fn an_image_is_found_wherever_only_one_place_names_it() {
    let pod = |field: Value| object("Pod", json!({"spec": field}));
    for (args, at) in [
        (
            pod(json!({"containers": [{"image": PAUSE}]})),
            "spec.containers[0].image",
        ),
        (
            pod(json!({"initContainers": [{}, {"image": PAUSE}]})),
            "spec.initContainers[1].image",
        ),
        (
            pod(json!({"ephemeralContainers": [{"image": PAUSE}]})),
            "spec.ephemeralContainers[0].image",
        ),
        (
            pod(json!({"volumes": [{"image": {"reference": PAUSE, "pullPolicy": "Always"}}]})),
            "spec.volumes[0].image.reference",
        ),
        (
            pod(json!({"containers": [{"args": [format!("--image={PAUSE}")]}]})),
            "spec.containers[0].args[0]",
        ),
        (
            pod(json!({"containers": [{"args": ["--helper-image", PAUSE]}]})),
            "spec.containers[0].args[1]",
        ),
        (
            pod(json!({"containers": [{"env": [{"name": "RELATED_IMAGE", "value": PAUSE}]}]})),
            "spec.containers[0].env[0].value",
        ),
        (
            object(
                "ConfigMap",
                json!({"data": {"k": format!("use {PAUSE} here")}}),
            ),
            "data.k",
        ),
        (
            object(
                "CustomResourceDefinition",
                json!({"spec": {"image": {"type": "string", "default": PAUSE}}}),
            ),
            "spec.image.default",
        ),
        (
            object(
                "HelmValues",
                json!({"image": {"registry": "registry.k8s.io", "repository": "pause", "tag": "3.10.2"}}),
            ),
            "image",
        ),
    ] {
        let kind = args["documents"][0]["kind"].as_str().unwrap();
        let what = format!("kubernetes.manifest n, {kind} ns/o, {at}");
        assert_eq!(
            images("kubernetes.manifest", args.clone()),
            [(PAUSE.to_owned(), what)],
            "{args}"
        );
    }
}

#[test]
fn an_image_is_found_in_files_and_in_documents_within_documents() {
    let toml = format!(
        "# Written by Halite.\n\"plugins\".\"x.v1\".\"pinned_images\".\"sandbox\" = \"{PAUSE}\"\n"
    );
    let found = images("file.managed", json!({"contents": toml}));
    assert_eq!(
        found,
        [(PAUSE.to_owned(), "file.managed n, contents".to_owned())]
    );

    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: {PAUSE}\n"
    );
    let found = images("file.managed", json!({"contents": pod}));
    assert_eq!(
        found,
        [(
            PAUSE.to_owned(),
            "file.managed n, Pod p, spec.containers[0].image".to_owned()
        )]
    );

    let found = images(
        "kubernetes.manifest",
        object("ConfigMap", json!({"data": {"helperPod.yaml": pod}})),
    );
    let what = "kubernetes.manifest n, ConfigMap ns/o, Pod p, spec.containers[0].image";
    assert_eq!(found, [(PAUSE.to_owned(), what.to_owned())]);

    let found = images(
        "cmd.run",
        json!({"cmd": format!("ctr images pull {PAUSE}")}),
    );
    assert_eq!(found[0].0, PAUSE);
    assert_eq!(
        images("image.present", json!({})),
        [("n".to_owned(), "image.present n".to_owned())]
    );
}

#[test]
fn a_name_without_its_registry_is_found_where_an_image_belongs() {
    for args in [
        object(
            "Pod",
            json!({"spec": {"containers": [{"image": "busybox"}]}}),
        ),
        object(
            "Pod",
            json!({"spec": {"containers": [{"args": ["--helper-image=busybox"]}, {"image": "busybox"}]}}),
        ),
        object(
            "ConfigMap",
            json!({"data": {"pod.yaml": "spec:\n  containers:\n  - image: busybox\n"}}),
        ),
    ] {
        let found = images("kubernetes.manifest", args.clone());
        assert_eq!(found.len(), 1, "{args}: {found:?}");
        assert_eq!(found[0].0, "busybox");
    }
    for text in [
        "\"sandbox\" = \"pause:3.10\"\n",
        "sandbox_image = \"pause:3.10\"",
        "x --solver-image=pause:3.10 --y",
    ] {
        assert_eq!(
            images("file.managed", json!({"contents": text}))[0].0,
            "pause:3.10",
            "{text}"
        );
    }
}

#[test]
fn other_strings_are_not_mistaken_for_images() {
    let object = object(
        "Deployment",
        json!({"spec": {
            "containers": [{"imagePullPolicy": "Always", "args": ["--image-pull-policy=Always", "--image-gc", "x/y:z"]}],
            "imageRepository": "registry.k8s.io/coredns", "description": "such as docker.io/library/nginx:1",
            "taints": "node-role.kubernetes.io/control-plane:NoSchedule",
        }}),
    );
    assert_eq!(images("kubernetes.manifest", object), []);
}
