//! Builds: the results, and the refusals.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use halite_builder::completeness::{Collector, CompiledState, Rendering};
use halite_builder::{Error, Options};
use halite_bundle::{list, verify};
use halite_errors::chain;
use halite_manifest::{Manifest, manifest};
use halite_testkit::{Site, files, hex, layout, put};
use serde_json::json;

#[test]
fn a_bundle_holds_what_its_recipe_says() {
    let site = Site::new();
    let made = site.build("bundle").unwrap();
    let bundle = site.path("bundle");
    assert_eq!(manifest::load(&bundle).unwrap(), made);
    assert!(verify(&bundle, &mut |_| ()).unwrap().is_sound());
    assert_eq!(made.kubernetes, "v1.36.3");
    // Each component is named by the digest that the layout has, and the registry serves.
    let index = fs::read(bundle.join("images/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let named = index["manifests"].as_array().unwrap();
    for reference in made.images.values() {
        let (name, digest) = reference.split_once('@').unwrap();
        let key = "org.opencontainers.image.ref.name";
        let entry = named.iter().find(|entry| entry["annotations"][key] == name);
        assert_eq!(entry.unwrap()["digest"], digest, "{reference}");
    }
    let coredns = &made.images["coredns"];
    assert!(
        coredns.starts_with("registry.k8s.io/coredns/coredns:v1.14.2@sha256:"),
        "{coredns}"
    );
    assert_eq!(made.packages["kubelet"], "1.2.3-1");
    assert_eq!(made.components["containerd"], "1.2.3");
    assert_eq!(made.components["etcd"], "3.6.8-0");
    assert!(!made.components.contains_key("kube-proxy"));
    for path in [
        "install",
        "bin/ctl",
        "states/host/init.sls",
        "prometheus/halite-alerts.yaml",
        "nginx/registry.conf",
        "nginx/manifests.map",
        "nginx/lists.map",
        "nginx/links.map",
        "images/index.json",
        "images/oci-layout",
        "apt/halite.gpg",
        "apt/dists/stable/InRelease",
        "apt/dists/stable/main/binary-amd64/Packages.gz",
        "apt/pool/kubelet_1.2.3-1_amd64.deb",
    ] {
        assert!(
            made.sha256(path).is_some(),
            "{path} is missing: {:?}",
            made.files.keys()
        );
    }
    let listing = list(&bundle).unwrap();
    assert_eq!(listing.images.len(), 9);
    assert_eq!(
        listing.images[0].component.as_deref(),
        Some("flannel-cni-plugin")
    );
    assert_eq!(listing.packages.len(), 5);
    let install = std::process::Command::new(bundle.join("install"))
        .arg("--yes")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&install.stdout), "ctl\n");
    // Nothing else is left behind.
    let left: Vec<_> = fs::read_dir(site.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with('.')),
        "{left:?}"
    );
}

#[test]
fn the_same_inputs_give_the_same_bytes_at_any_time() {
    let mut site = Site::new();
    site.recipe["cache"] = json!("cache-1");
    site.build("one").unwrap();
    // The time in signatures has a resolution of one second, so the next build must start in
    // another second.
    let second = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let before = second();
    while second() == before {
        thread::sleep(Duration::from_millis(10));
    }
    site.recipe["cache"] = json!("cache-2");
    site.build("two").unwrap();
    let (one, two) = (site.path("one"), site.path("two"));
    assert_eq!(files(&one), files(&two));
    for file in files(&one) {
        assert!(
            fs::read(one.join(&file)).unwrap() == fs::read(two.join(&file)).unwrap(),
            "{file} differs"
        );
    }
    // The same applies to parts from the cache.
    site.build("three").unwrap();
    assert_eq!(
        fs::read(two.join("manifest.json")).unwrap(),
        fs::read(site.path("three/manifest.json")).unwrap()
    );
}

#[test]
fn a_cache_in_which_somebody_changed_a_file_is_not_believed() {
    let site = Site::new();
    site.build("bundle").unwrap();
    // The bundle's file and the cache's may be the same inode.
    fs::write(
        site.path("bundle/apt/pool/kubectl_1.2.3-1_amd64.deb"),
        "damaged",
    )
    .unwrap();
    assert!(
        !verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    site.build("bundle").unwrap();
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
}

#[test]
fn what_no_build_has_used_for_a_month_is_removed_from_the_cache() {
    let site = Site::new();
    site.build("one").unwrap();
    let cache = site.path(site.recipe["cache"].as_str().unwrap());
    let kept = |name: &str| {
        let mut names: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|found| found.starts_with(name));
        names
    };
    let before = kept("");
    assert_eq!(
        (kept("apt-").len(), kept("images-").len()),
        (2, 2),
        "{before:?}"
    );
    let age = |name: &str| {
        let month = Duration::from_secs(31 * 86_400);
        let file = fs::File::open(cache.join(name)).unwrap();
        file.set_modified(SystemTime::now() - month).unwrap();
    };
    before.iter().for_each(|name| age(name));
    // An unfinished part, an old part, a part in use, and a directory that is not a part.
    fs::create_dir(cache.join("rpm-0123456789abcdef")).unwrap();
    fs::create_dir(cache.join("apt-0123456789abcdef")).unwrap();
    fs::write(cache.join("apt-0123456789abcdef.json"), "{}").unwrap();
    fs::create_dir(cache.join("apt-1123456789abcdef")).unwrap();
    fs::write(cache.join("apt-1123456789abcdef.json"), "{}").unwrap();
    fs::write(cache.join("apt-mine"), "").unwrap();
    for name in [
        "rpm-0123456789abcdef",
        "apt-0123456789abcdef.json",
        "apt-mine",
    ] {
        age(name);
    }
    site.build("two").unwrap();
    let mut wanted = before;
    wanted.extend(
        [
            "apt-1123456789abcdef",
            "apt-1123456789abcdef.json",
            "apt-mine",
        ]
        .map(str::to_owned),
    );
    wanted.sort();
    let mut left = kept("");
    left.sort();
    assert_eq!(left, wanted);
    assert!(verify(&site.path("two"), &mut |_| ()).unwrap().is_sound());
}

#[test]
fn without_a_cache_nothing_is_kept() {
    let mut site = Site::new();
    site.recipe.as_object_mut().unwrap().remove("cache");
    site.build("bundle").unwrap();
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    assert!(!site.path(".bundle.parts").exists());
}

#[test]
fn what_is_not_as_recorded_is_refused_until_it_is_recorded() {
    let site = Site::new();
    site.build("bundle").unwrap();
    let before = fs::read(site.path("bundle/manifest.json")).unwrap();
    layout(
        &site.path("images/pause"),
        "registry.k8s.io/pause:3.10.2",
        b"another",
    );
    let error = site.build("bundle").unwrap_err();
    let Error::Lock { differences, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(differences.len(), 1);
    assert!(
        differences[0].starts_with("registry.k8s.io/pause:3.10.2: recorded sha256"),
        "{differences:?}"
    );
    assert_eq!(fs::read(site.path("bundle/manifest.json")).unwrap(), before);
    assert!(chain(&error).contains("run `ctl bundle update`"), "{error}");
    assert!(matches!(site.lock(), Err(Error::Lock { .. })));
    let recorded = fs::read(site.path("recipe.lock.yaml")).unwrap();
    let change = &site.update(false).unwrap().changes[..];
    assert!(
        matches!(change, [one] if one.name == "registry.k8s.io/pause:3.10.2"),
        "{change:?}"
    );
    assert_eq!(fs::read(site.path("recipe.lock.yaml")).unwrap(), recorded);
    assert_eq!(site.update(true).unwrap().changes, change);
    let recorded = fs::read(site.path("recipe.lock.yaml")).unwrap();
    assert!(
        site.update(true).unwrap().changes.is_empty() && site.lock().unwrap().changes.is_empty()
    );
    assert_eq!(fs::read(site.path("recipe.lock.yaml")).unwrap(), recorded);
    site.build("bundle").unwrap();
    assert_eq!(fs::read(site.path("recipe.lock.yaml")).unwrap(), recorded);
}

#[test]
fn a_package_that_a_bare_host_could_not_install_is_found_by_the_build() {
    let site = Site::new();
    site.base(&["mount", "util-linux"]);
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("would be incomplete") && error.contains("runc"),
        "{error}"
    );
    assert!(!site.path("bundle").exists());
}

#[test]
fn a_damaged_image_does_not_get_in() {
    let site = Site::new();
    let layer = site.path("images/pause/blobs/sha256").join(hex(b"pause"));
    fs::write(&layer, b"pausE").unwrap();
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains(&hex(b"pause")) && error.contains("damaged"),
        "{error}"
    );
    fs::remove_file(&layer).unwrap();
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains(&hex(b"pause")), "{error}");
}

#[test]
fn something_else_at_the_place_is_left_alone() {
    let site = Site::new();
    put(&site.path("bundle/precious"), b"mine");
    assert!(matches!(site.build("bundle"), Err(Error::Occupied(_))));
    assert_eq!(files(&site.path("bundle")), ["precious"]);
}

#[test]
fn a_second_build_replaces_the_first() {
    let site = Site::new();
    site.build("bundle").unwrap();
    put(&site.path("states/host/init.sls"), b"changed: {}\n");
    site.build("bundle").unwrap();
    assert_eq!(
        fs::read(site.path("bundle/states/host/init.sls")).unwrap(),
        b"changed: {}\n"
    );
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
}

#[test]
fn a_bundle_that_lacks_what_a_cluster_could_ask_for_is_not_written() {
    let site = Site::new();
    let render = |dir: &Path, manifest: &Manifest| {
        assert!(dir.join("states/top.sls").is_file() && manifest.images.contains_key("etcd"));
        let image = |reference: &str| {
            Rc::new(CompiledState {
                file: "base/x.sls".into(),
                line: 7,
                function: "image.present".into(),
                name: reference.into(),
                args: serde_json::Map::new(),
                files: Vec::new(),
            })
        };
        let states = vec![
            image("registry.k8s.io/etcd:3.6.8-0"),
            image("quay.io/a/b:1"),
            image("quay.io/c/d:2"),
        ];
        let mut gathering = Collector::default();
        gathering.add(&Rendering {
            options: "a worker".into(),
            states,
            ..Rendering::default()
        });
        Ok(gathering.needs())
    };
    let error = site
        .build_for("bundle", &Options::default(), &render)
        .unwrap_err();
    assert!(
        matches!(&error, Error::Missing(missing) if missing.len() == 2),
        "{error}"
    );
    let text = chain(&error);
    for wanted in [
        "the image quay.io/a/b:1",
        "the image quay.io/c/d:2",
        "needed by base/x.sls:7: image.present",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(!text.contains("etcd"), "{text}");
    // A failed build leaves neither a bundle nor a lock.
    for name in ["bundle", ".bundle.new", "recipe.lock.yaml"] {
        assert!(!site.path(name).exists(), "{name}");
    }
}

#[test]
fn what_clusters_may_choose_is_in_the_manifest() {
    let mut site = Site::new();
    assert!(site.build("any").unwrap().options.is_empty());
    site.recipe["options"] = json!({"cni.plugin": ["flannel"], "host.manageSwap": [true, "false"]});
    let options = site.build("some").unwrap().options;
    assert_eq!(
        serde_json::to_value(options).unwrap(),
        json!({"cni.plugin": ["flannel"], "host.manageSwap": ["true", "false"]})
    );
    site.recipe["options"] = json!({"cni.plugin": "flannel"});
    let error = site
        .build("wrong")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("options.\"cni.plugin\": must be a list"),
        "{error}"
    );
}
