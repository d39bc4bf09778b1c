//! Images from a registry, recorded in the lock.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;

use halite_builder::completeness::{Collector, CompiledState, Rendering};
use halite_builder::{Error, Options};
use halite_bundle::verify;
use halite_durable::Digest;
use halite_errors::chain;
use halite_manifest::Manifest;
use halite_testkit::distribution::Registry;
use halite_testkit::registry::{Content, OCI_INDEX, OCI_MANIFEST};
use halite_testkit::{Authority, Site, put};
use serde_json::{Value, json};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A site whose images all come from one registry: the components through it as a mirror, the
/// site's own image directly.
pub struct World {
    pub site: Site,
    pub registry: Registry,
    pub own: String,
}

/// An image for two platforms that states its licence.
fn image(name: &str, tag: &str, text: &str) -> Content {
    let mut all = Content::default();
    let mut of = |architecture: &str| {
        let labels = json!({"org.opencontainers.image.licenses": "MIT"});
        let config =
            json!({"os": "linux", "architecture": architecture, "config": {"Labels": labels}});
        let config = all.blob(
            "application/vnd.oci.image.config.v1+json",
            config.to_string().as_bytes(),
        );
        let layer = all.blob(LAYER, format!("{text} for {architecture}").as_bytes());
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]});
        let mut descriptor = all.manifest(name, OCI_MANIFEST, &manifest);
        descriptor["platform"] = json!({"os": "linux", "architecture": architecture});
        descriptor
    };
    let both = [of("arm64"), of("amd64")];
    let index = all.index(name, OCI_INDEX, &both);
    all.tag(name, tag, &index);
    all
}

impl World {
    pub fn new() -> Self {
        let mut site = Site::new();
        let authority = Authority::new(site.dir.path());
        let registry = Registry::start(site.dir.path(), &authority);
        let host = registry.host();
        for entry in site.recipe["images"].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("layout");
            let reference = entry["reference"].as_str().unwrap().to_owned();
            let (name, tag) = reference
                .split_once('/')
                .unwrap()
                .1
                .split_once(':')
                .unwrap();
            registry.push(name, &image(name, tag, &reference));
        }
        let own = format!("{host}/team/app:1");
        registry.push("team/app", &image("team/app", "1", "own"));
        site.recipe["images"]
            .as_array_mut()
            .unwrap()
            .push(json!({"reference": own, "licence": "BSD-3-Clause"}));
        let mirrored = json!({"mirror": host});
        let mut registries = json!({"registry.k8s.io": mirrored, "ghcr.io": {"mirror": [host]}});
        registries[&host] = json!({"ca": "authority.pem", "login": "config.json"});
        site.recipe["registries"] = registries;
        site.recipe["no-proxy"] = json!("*");
        let logins = json!({"auths": {(host): {"auth": "bWU6c2VjcmV0"}}});
        put(&site.path("config.json"), logins.to_string().as_bytes());
        fs::set_permissions(site.path("config.json"), fs::Permissions::from_mode(0o600)).unwrap();
        Self {
            site,
            registry,
            own,
        }
    }

    pub fn recorded(&self) -> Value {
        serde_saphyr::from_str(&fs::read_to_string(self.site.path("recipe.lock.yaml")).unwrap())
            .unwrap()
    }
}

fn offline() -> Options {
    Options {
        offline: true,
        ..Options::default()
    }
}

#[test]
fn what_the_lock_names_is_pulled_and_nothing_else() {
    let world = World::new();
    // A build takes no item that the lock does not record.
    let error = world.site.build("bundle").unwrap_err();
    let Error::Unrecorded { names, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(names.len(), 10, "{error}");
    assert!(
        names[0].starts_with("the image registry.k8s.io/") && !world.site.path("bundle").exists()
    );
    assert!(
        error
            .to_string()
            .ends_with("run `ctl bundle lock` to record what these resolve to"),
        "{error}"
    );

    let resolved = world.site.lock().unwrap();
    assert_eq!(
        (resolved.changes.len(), resolved.lock.unlicensed().len()),
        (10, 0)
    );
    let recorded = world.recorded();
    let etcd = &recorded["images"]["registry.k8s.io/etcd:3.6.8-0"];
    assert_eq!(
        (&etcd["licence"], &etcd["source"]),
        (&json!("MIT"), &json!("registry"))
    );
    assert_eq!(etcd["why"], "component etcd");
    // Its registry names it by an index of two platforms.
    let index = etcd["index"].as_str().unwrap().to_owned();
    let sha256 = etcd["sha256"].as_str().unwrap().to_owned();
    assert_ne!(index, sha256);
    let own = &recorded["images"][&world.own];
    assert_eq!(
        (&own["licence"], &own["why"]),
        (&json!("BSD-3-Clause"), &json!("asked for"))
    );
    let before = fs::read(world.site.path("recipe.lock.yaml")).unwrap();
    assert!(
        world.site.lock().unwrap().changes.is_empty()
            && world.site.update(true).unwrap().changes.is_empty()
    );
    assert_eq!(
        fs::read(world.site.path("recipe.lock.yaml")).unwrap(),
        before
    );

    // The registry's content changes; the bundle does not, until the change is recorded.
    world
        .registry
        .push("team/app", &image("team/app", "1", "newer"));
    let first = world.site.build("bundle").unwrap();
    assert!(
        verify(&world.site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    assert_eq!(
        fs::read(world.site.path("recipe.lock.yaml")).unwrap(),
        before
    );
    assert_eq!(
        first.images.len(),
        9,
        "an own image is not a component: {:?}",
        first.images
    );
    assert_eq!(
        first.images["etcd"],
        format!("registry.k8s.io/etcd:3.6.8-0@sha256:{sha256}")
    );
    let blob = format!("images/blobs/sha256/{index}");
    assert_eq!(first.sha256(&blob), Some(index.as_str()));
    let index = fs::read_to_string(world.site.path("bundle/images/index.json")).unwrap();
    assert!(index.contains(&world.own) && index.contains(own["sha256"].as_str().unwrap()));
    let layer = format!("images/blobs/sha256/{}", Digest::of(b"own for amd64"));
    assert!(first.sha256(&layer).is_some());
    assert!(world.site.lock().unwrap().changes.is_empty());
    let changes = world.site.update(true).unwrap().changes;
    assert!(
        matches!(&changes[..], [one] if one.name == world.own),
        "{changes:?}"
    );
    let second = world.site.build("bundle").unwrap();
    assert!(second.sha256(&layer).is_none());
    // No file contains the registry's login.
    for file in ["recipe.lock.yaml", "bundle/manifest.json"] {
        assert!(
            !fs::read_to_string(world.site.path(file))
                .unwrap()
                .contains("secret")
        );
    }
}

#[test]
fn without_network_everything_comes_from_the_cache_or_is_named() {
    let world = World::new();
    world.site.lock().unwrap();
    let first = world.site.build("bundle").unwrap();
    let World {
        site,
        registry,
        own,
    } = world;
    drop(registry);
    fs::remove_dir_all(site.path("bundle")).unwrap();
    assert_eq!(site.build_with("bundle", &offline()).unwrap(), first);
    // The image part of the cache has all blobs; without that part they are fetched again.
    let fetched = site.path("cache/fetched/sha256");
    let gone = [
        Digest::of(b"own for amd64"),
        Digest::of(b"registry.k8s.io/pause:3.10.2 for amd64"),
    ];
    for digest in &gone {
        fs::remove_file(fetched.join(digest.hex())).unwrap();
    }
    let before = fs::read(site.path("bundle/manifest.json")).unwrap();
    let error = site
        .build_with("bundle", &offline())
        .map_err(|error| chain(&error))
        .unwrap_err();
    for (name, digest) in [
        (own.as_str(), &gone[0]),
        ("registry.k8s.io/pause:3.10.2", &gone[1]),
    ] {
        assert!(
            error.contains(&format!("image {name} (blob {})", digest.oci())),
            "{error}"
        );
    }
    assert!(
        error.contains("offline, and these 2 are not in the cache"),
        "{error}"
    );
    assert_eq!(fs::read(site.path("bundle/manifest.json")).unwrap(), before);
}

#[test]
fn everything_that_cannot_be_resolved_is_told_at_once() {
    let mut world = World::new();
    for missing in ["gone/a:1", "gone/b:2"] {
        let reference = format!("{}/{missing}", world.registry.host());
        world.site.recipe["images"]
            .as_array_mut()
            .unwrap()
            .push(json!({"reference": reference}));
    }
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("/v2/gone/a/manifests/1") && error.contains("/v2/gone/b/manifests/2"),
        "{error}"
    );
    assert!(!world.site.path("recipe.lock.yaml").exists());
}

#[test]
fn two_builds_at_once_make_the_same_bundle() {
    let world = World::new();
    world.site.lock().unwrap();
    let build = |out: &'static str| world.site.build(out);
    std::thread::scope(|scope| {
        let both = ["one", "two"].map(|out| scope.spawn(move || build(out)));
        let [one, other] = both.map(|build| build.join().unwrap().unwrap());
        assert_eq!(one, other);
    });
    for out in ["one", "two"] {
        assert!(
            verify(&world.site.path(out), &mut |_| ())
                .unwrap()
                .is_sound()
        );
    }
}

#[test]
fn an_image_may_be_asked_for_by_the_digest_of_its_index() {
    let world = World::new();
    world.site.lock().unwrap();
    let recorded = world.recorded();
    let digest = |key: &str| {
        let item = &recorded["images"]["registry.k8s.io/etcd:3.6.8-0"];
        format!("sha256:{}", item[key].as_str().unwrap())
    };
    let build = |reference: &str| {
        let render = |_: &Path, _: &Manifest| {
            let mut gathering = Collector::default();
            let state = CompiledState {
                file: "custom/a.sls".into(),
                line: 1,
                function: "image.present".into(),
                name: reference.to_owned(),
                args: serde_json::Map::new(),
                files: Vec::new(),
            };
            gathering.add(&Rendering {
                options: "a site".into(),
                states: vec![Rc::new(state)],
                ..Rendering::default()
            });
            Ok(gathering.needs())
        };
        let built = world.site.build_for("bundle", &Options::default(), &render);
        built.map(drop).map_err(|error| chain(&error))
    };
    for key in ["index", "sha256"] {
        for name in ["registry.k8s.io/etcd:3.6.8-0", "registry.k8s.io/etcd"] {
            build(&format!("{name}@{}", digest(key))).unwrap();
        }
    }
    // A server serves a digest only below the name of its image.
    for reference in [
        format!("registry.k8s.io/pause:3.10.2@{}", digest("index")),
        format!("registry.k8s.io/etcd:3.6.8-0@sha256:{}", "0".repeat(64)),
    ] {
        let error = build(&reference).unwrap_err();
        assert!(error.contains(&reference), "{error}");
    }

    // A lock made by an earlier version has no index: the image is the same, and its index is
    // absent.
    let lock = world.site.path("recipe.lock.yaml");
    let text = fs::read_to_string(&lock).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.trim().starts_with("index:"));
    fs::write(
        &lock,
        lines.map(|line| format!("{line}\n")).collect::<String>(),
    )
    .unwrap();
    build(&format!("registry.k8s.io/etcd@{}", digest("sha256"))).unwrap();
    let error = build(&format!("registry.k8s.io/etcd:3.6.8-0@{}", digest("index"))).unwrap_err();
    assert!(error.contains("the bundle has sha256:"), "{error}");

    // An index that lacks the recorded manifest is refused.
    let pause = recorded["images"]["registry.k8s.io/pause:3.10.2"]["index"].as_str();
    let etcd = digest("index");
    let wrong = text.replace(etcd.trim_start_matches("sha256:"), pause.unwrap());
    assert_ne!(wrong, text);
    fs::write(&lock, wrong).unwrap();
    let error = build("registry.k8s.io/pause:3.10.2").unwrap_err();
    assert!(error.contains("registry.k8s.io/etcd:3.6.8-0"), "{error}");
}
