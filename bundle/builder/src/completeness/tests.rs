mod image_names;

use halite_durable::{digest, files};
use halite_manifest::{Manifest, manifest};
use serde_json::json;

use super::*;

const PAUSE: &str = "registry.k8s.io/pause:3.10.2";

/// A state with these arguments.
fn state(function: &str, name: &str, args: Value) -> CompiledState {
    let args = args.as_object().unwrap().clone();
    let (function, name) = (function.into(), name.into());
    CompiledState {
        file: "base/x.sls".into(),
        line: 3,
        function,
        name,
        args,
        files: Vec::new(),
    }
}

fn rendering(states: Vec<CompiledState>) -> Rendering {
    let states = states.into_iter().map(Rc::new).collect();
    Rendering {
        options: "a worker, defaults".into(),
        states,
        ..Rendering::default()
    }
}

/// The images that a state names, each with its place.
fn images(function: &str, args: Value) -> Vec<(String, String)> {
    let mut gathering = Collector::default();
    gathering.add(&rendering(vec![state(function, "n", args)]));
    let mut found = Vec::new();
    for (artifact, places) in gathering.needs().artifacts() {
        if let Artifact::Image { reference } = artifact {
            found.extend(
                places
                    .keys()
                    .map(|place| (reference.clone(), place.what.clone())),
            );
        }
    }
    found
}

#[test]
fn a_script_that_names_an_image_is_shown_by_its_first_line() {
    let mut gathering = Collector::default();
    let script = format!("set -e\nctr images mount {PAUSE} /mnt\n");
    gathering.add(&rendering(vec![state("cmd.run", &script, json!({}))]));
    let needs = gathering.needs();
    let mut places = needs.artifacts().values().flat_map(|places| places.keys());
    assert_eq!(places.next().unwrap().what, "cmd.run set -e …");
}

/// A Kubernetes object with these fields in addition to its name.
fn object(kind: &str, further: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "o", "namespace": "ns"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(further.as_object().unwrap().clone());
    json!({"documents": [object]})
}

/// A bundle with one image, two packages of which one needs the other, and a file.
fn site() -> (tempfile::TempDir, Manifest) {
    site_with(PAUSE)
}

/// The same with an image of this name.
fn site_with(image_name: &str) -> (tempfile::TempDir, Manifest) {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = json!({"format": manifest::FORMAT, "name": "halite", "version": "1", "built": "", "kubernetes": "v1",
        "components": {}, "images": {}, "packages": {}, "files": {}});
    let mut put = |path: &str, content: &str| {
        files::write(&dir.path().join(path), 0o644, content.as_bytes()).unwrap();
        let sha256 = digest::sha256(content.as_bytes());
        manifest["files"][path] = json!({"sha256": sha256, "size": content.len()});
        sha256
    };
    let mut blob = |content: &str, kind: &str| {
        let hex = digest::sha256(content.as_bytes());
        put(&format!("images/blobs/sha256/{hex}"), content);
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{hex}"),
            "size": content.len()})
    };
    let (config, layer) = (
        blob("config", "config.v1+json"),
        blob("layer", "layer.v1.tar"),
    );
    let mut image = blob(
        &json!({"config": config, "layers": [layer]}).to_string(),
        "manifest.v1+json",
    );
    image["annotations"] = json!({halite_fetch::oci_layout::REF_NAME: image_name});
    put(
        "images/index.json",
        &json!({"schemaVersion": 2, "manifests": [image]}).to_string(),
    );
    let mut stanza = |name: &str, depends: &str| {
        let sha256 = put(&format!("apt/pool/{name}.deb"), name);
        format!(
            "Package: {name}\nVersion: 1-1\nDepends: {depends}\nFilename: pool/{name}.deb\nSHA256: {sha256}\n"
        )
    };
    let index = format!(
        "{}\n{}",
        stanza("nftables", "libnft (>= 1), libc6"),
        stanza("libnft", "libc6")
    );
    for (path, _) in OWN_FILES
        .iter()
        .filter(|(path, _)| ![BASE, "images/index.json"].contains(path))
    {
        put(
            path,
            if path.ends_with("/Packages") {
                &index
            } else {
                path
            },
        );
    }
    put(
        BASE,
        "Package: libc6\nStatus: install ok installed\nVersion: 2\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
    );
    put("bin/halite-minion", "program");
    put("README", "nothing needs it");
    let manifest = serde_json::from_value(manifest).unwrap();
    (dir, manifest)
}

fn gathering() -> Collector {
    let mut gathering = Collector::default();
    gathering.add(&rendering(vec![
        state("image.present", PAUSE, json!({})),
        state(
            "pkg.installed",
            "host",
            json!({"pkgs": [{"nftables": "1-1"}, "libc6"]}),
        ),
        state(
            "file.managed",
            "/bin/m",
            json!({"source": "bundle://bin/halite-minion"}),
        ),
    ]));
    gathering
}

fn needs() -> Requirements {
    gathering().needs()
}

fn report(missing: &[Unmet]) -> String {
    missing
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn whatever_is_taken_away_is_named_with_what_needs_it() {
    let (dir, manifest) = site();
    let (needs, stock) = (needs(), Inventory::read(dir.path(), &manifest).unwrap());
    assert_eq!(report(&needs.missing(&stock)), "");
    let mut taken = 0;
    for artifact in stock.artifacts() {
        let report = report(&needs.missing(&stock.without(&artifact)));
        let (name, user) = match &artifact {
            Artifact::Image { reference } => (reference.clone(), "base/x.sls:3: image.present"),
            Artifact::Package { name, .. } if name == "libnft" => (
                format!("the package {name}"),
                "the package nftables: depends on libnft (>= 1)",
            ),
            Artifact::Package { name, .. } => (
                format!("the package {name} 1-1"),
                "base/x.sls:3: pkg.installed host",
            ),
            Artifact::Rpm { .. } => unreachable!("this bundle is not for RPM distributions"),
            Artifact::File { path } => match path.split_once("sha256/") {
                Some((_, hex)) => (hex.to_owned(), "base/x.sls:3: image.present"),
                None if path == "README" => continue,
                None if path == "apt/pool/libnft.deb" => {
                    (path.clone(), "the package nftables: depends on libnft")
                }
                None if path.starts_with("apt/pool") => {
                    (path.clone(), "base/x.sls:3: pkg.installed host")
                }
                None if path == "bin/halite-minion" => {
                    (path.clone(), "base/x.sls:3: file.managed /bin/m, source")
                }
                None => (path.clone(), "the bundle itself"),
            },
        };
        assert!(
            report.contains(&name) && report.contains(user),
            "without {artifact}: {report:?}"
        );
        taken += 1;
    }
    assert_eq!(taken, 1 + 2 + 3 + 2 + 1 + OWN_FILES.len());
    let without = needs.without_each(&stock);
    assert_eq!(without.len(), taken + 1);
    let spare: Vec<_> = without
        .iter()
        .filter(|(_, missing)| missing.is_empty())
        .map(|(spare, _)| spare)
        .collect();
    assert_eq!(
        spare,
        [&Artifact::File {
            path: "README".into()
        }]
    );
}

#[test]
fn everything_that_is_missing_is_in_one_report() {
    let (dir, manifest) = site();
    let stock = Inventory::read(dir.path(), &manifest).unwrap();
    let mut gathering = gathering();
    let further = rendering(vec![
        state("image.present", "quay.io/a/b:1", json!({})),
        state("image.present", "busybox", json!({})),
        state(
            "image.present",
            &format!("registry.k8s.io/pause@sha256:{}", "0".repeat(64)),
            json!({}),
        ),
        state("pkg.installed", "gone", json!({})),
        state("pkg.installed", "nftables", json!({"version": "2"})),
        state(
            "file.managed",
            "/etc/x",
            json!({"contents": "include bundle://nginx/other.conf;\n"}),
        ),
    ]);
    gathering.add(&Rendering {
        options: "the objects, cni.plugin: none".into(),
        files: vec!["states/gone.sls".into()],
        problems: vec!["base/y.sls:1: `pillar.halite.images.x` is undefined".into()],
        ..further
    });
    let report = report(&gathering.needs().missing(&stock));
    for wanted in [
        "base/y.sls:1: `pillar.halite.images.x` is undefined",
        "the image quay.io/a/b:1: images/index.json does not name it\n    needed by base/x.sls:3: image.present quay.io/a/b:1 \
         (the objects, cni.plugin: none)",
        "the image busybox: no bundle can serve this name: \"busybox\" names no registry",
        "does not name it",
        "the package gone: neither a bare host nor the repository of the bundle has it",
        "the package nftables 2: the repository has 1-1 instead",
        "the file nginx/other.conf: the bundle has no such file",
        "the file states/gone.sls",
    ] {
        assert!(report.contains(wanted), "{wanted:?} is not in {report}");
    }
}

#[test]
fn a_short_name_needs_the_image_that_containerd_pulls_for_it() {
    let (dir, manifest) = site_with("docker.io/library/busybox:1.36");
    let stock = Inventory::read(dir.path(), &manifest).unwrap();
    let missing = |image: &str| {
        let pod = object("Pod", json!({"spec": {"containers": [{"image": image}]}}));
        let mut gathering = Collector::default();
        gathering.add(&rendering(vec![state("kubernetes.manifest", "n", pod)]));
        report(&gathering.needs().missing(&stock))
    };
    for there in [
        "busybox:1.36",
        "docker.io/busybox:1.36",
        "library/busybox:1.36",
    ] {
        assert_eq!(missing(there), "", "{there}");
    }
    for (gone, full) in [
        ("busybox:1", "docker.io/library/busybox:1"),
        ("busybox", "docker.io/library/busybox:latest"),
        ("team/app:2", "docker.io/team/app:2"),
        ("quay.io/team/app", "quay.io/team/app:latest"),
    ] {
        let said = missing(gone);
        let pulled =
            format!("containerd pulls it as {full}, and images/index.json does not name it");
        assert!(
            said.contains(&format!("the image {gone}: no bundle can serve this name"))
                && said.contains(&pulled)
                && said.contains("add that name to `images:`"),
            "{said}"
        );
    }
}

#[test]
fn a_name_declared_as_not_an_image_is_not_missing() {
    let (dir, mut manifest) = site();
    let mut gathering = gathering();
    let text = "see example.com/a/b:1 and example.com/a/c:1";
    gathering.add(&rendering(vec![state(
        "file.managed",
        "/etc/x",
        json!({"contents": text}),
    )]));
    let needs = gathering.needs();
    let said = |manifest: &Manifest| {
        let stock = Inventory::read(dir.path(), manifest).unwrap();
        needs
            .missing(&stock)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&manifest).len(), 2);
    manifest
        .not_images
        .insert("example.com/a/b:1".into(), "an example".into());
    let found = said(&manifest);
    assert!(
        found.len() == 1 && found[0].starts_with("the image example.com/a/c:1: "),
        "{found:?}"
    );
    manifest
        .not_images
        .insert("example.com/a/c:1".into(), "an example".into());
    assert_eq!(said(&manifest), [""; 0]);
    // An exception that is not needed is reported.
    manifest
        .not_images
        .insert("example.com/gone:1".into(), "an example".into());
    let found = said(&manifest);
    assert!(
        found.len() == 1 && found[0].contains("example.com/gone:1, but nothing names it"),
        "{found:?}"
    );
    // The exception does not affect an existing image: its absence is still noticed.
    let json = serde_json::to_value(&manifest).unwrap();
    assert_eq!(json["not-images"]["example.com/a/b:1"], "an example");
}

#[test]
fn renderings_that_come_to_the_same_are_counted() {
    let (mut one, two) = (needs(), needs());
    one.merge(two);
    assert_eq!(one.renderings(), 2);
    let uses = one.artifacts()[&Artifact::Image {
        reference: PAUSE.into(),
    }]
        .values()
        .next()
        .unwrap();
    assert_eq!(uses.to_string(), "a worker, defaults; 1 more");
}

/// A state that is the same object counts in each rendering that contains it; a file that several
/// states read counts once per rendering.
#[test]
fn what_renderings_have_in_common_counts_for_each() {
    let with_file = |name: &str| {
        Rc::new(CompiledState {
            files: vec!["states/a.sls".into()],
            ..state("image.present", name, json!({}))
        })
    };
    let shared = with_file("quay.io/a/b:1");
    let equal = with_file("quay.io/a/b:1");
    let mut gathering = Collector::default();
    for (options, rpm, states) in [
        (
            "first",
            false,
            vec![shared.clone(), with_file("quay.io/c/d:1")],
        ),
        ("second", false, vec![shared.clone()]),
        ("third", true, vec![shared.clone()]),
        ("fourth", false, vec![equal]),
    ] {
        gathering.add(&Rendering {
            options: options.into(),
            rpm,
            states,
            ..Rendering::default()
        });
    }
    let one = gathering.needs();
    let mut twice = one.clone();
    twice.merge(one.clone());
    for (needs, wanted) in [(&one, [4, 1, 4]), (&twice, [8, 2, 8])] {
        let uses = needs.artifacts().values().flat_map(BTreeMap::values);
        let uses: Vec<_> = uses
            .map(|uses| (uses.first.as_str(), uses.renderings))
            .collect();
        assert_eq!(
            uses,
            wanted.map(|times| ("first", times)),
            "a/b, c/d and the file"
        );
        assert_eq!(needs.renderings(), wanted[0]);
    }
}
