//! Charts from a folder, a web server and a registry, rendered by the real Helm, which takes
//! minutes to build: only `cargo lab test --full` runs these tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use halite_builder::completeness::{Collector, CompiledState, Rendering};
use halite_builder::{Error, Options};
use halite_bundle::verify;
use halite_errors::chain;
use halite_manifest::Manifest;
use halite_testkit::registry::{Content, OCI_MANIFEST};
use halite_testkit::{Server, Site, layout, put, run};
use serde_json::{Value, json};

use crate::images::World;

/// The environment variable with the path of Helm.
const PROGRAM: &str = "HALITE_HELM";

fn helm() -> PathBuf {
    std::env::var_os(PROGRAM).map(PathBuf::from).unwrap_or_else(|| {
        panic!(
            "{PROGRAM} has to name the program; `cargo lab test --full source:` builds it, and so does: go install \
             helm.sh/helm/v3/cmd/helm@v3.19.0"
        )
    })
}

/// A chart with a CRD, hooks, a test, and an image that its values name.
fn chart(site: &Site) {
    for (name, text) in [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.2.3\nannotations: {artifacthub.io/license: MIT}\n",
        ),
        ("values.yaml", "image: quay.io/team/web:1\nreplicas: 1\n"),
        (
            "crds/w.yaml",
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: ws.e.org\nspec:\n  \
             group: e.org\n  scope: Namespaced\n  names: {kind: W, plural: ws}\n  versions: []\n",
        ),
        (
            "templates/deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  replicas: {{ \
             .Values.replicas }}\n  template:\n    spec:\n      initContainers:\n        - {name: i, image: \
             \"quay.io/team/init:2\"}\n      containers:\n        - {name: c, image: {{ .Values.image | quote }}}\n",
        ),
        (
            "templates/test.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: test\n  annotations: {\"helm.sh/hook\": test}\nspec:\n  \
             containers: [{name: t, image: \"quay.io/team/test:1\"}]\n",
        ),
        ("templates/NOTES.txt", "{{ .Release.Name }} is there\n"),
    ] {
        put(&site.path("charts/web").join(name), text.as_bytes());
    }
}

fn with_chart(site: &mut Site, source: &str) {
    chart(site);
    site.recipe["helm"] = json!(helm());
    site.recipe["charts"] =
        json!([{"name": "web", "source": source, "version": "1.2.3", "namespace": "web"}]);
}

/// Builds with the images of the charts as requirements: the shipped state tree applies charts like
/// any other objects.
fn build(site: &Site, options: &Options) -> Result<Manifest, Error> {
    let render = |dir: &Path, manifest: &Manifest| {
        let mut gathering = Collector::default();
        for name in manifest.charts.keys() {
            let text = fs::read_to_string(dir.join(format!("charts/{name}.yaml"))).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let state = CompiledState {
                file: "halite/addons/charts/init.sls".into(),
                line: 1,
                function: "kubernetes.manifest".into(),
                name: name.clone(),
                args: json!({"documents": documents})
                    .as_object()
                    .cloned()
                    .unwrap(),
                files: Vec::new(),
            };
            let states = vec![Rc::new(state)];
            gathering.add(&Rendering {
                options: "a site".into(),
                states,
                ..Rendering::default()
            });
        }
        Ok(gathering.needs())
    };
    site.build_for("bundle", options, &render)
}

fn add_image(site: &mut Site, reference: &str) {
    let folder = format!("images/{}", reference.replace(['/', ':'], "-"));
    layout(&site.path(&folder), reference, reference.as_bytes());
    let image = json!({"reference": reference, "layout": folder, "licence": "MIT"});
    site.recipe["images"].as_array_mut().unwrap().push(image);
}

fn offline() -> Options {
    Options {
        offline: true,
        ..Options::default()
    }
}

#[test]
#[ignore = "needs Helm: cargo lab test --full source:"]
fn a_chart_whose_images_are_not_there_is_refused_with_their_places() {
    let mut site = Site::new();
    with_chart(&mut site, "charts/web");
    let error = build(&site, &Options::default()).unwrap_err();
    assert!(
        matches!(&error, Error::Missing(missing) if missing.len() == 2),
        "{error}"
    );
    let text = chain(&error);
    for wanted in [
        "the image quay.io/team/web:1: images/index.json does not name it\n    needed by halite/addons/charts/init.sls:1: \
         kubernetes.manifest web, Deployment web/web, spec.template.spec.containers[0].image",
        "the image quay.io/team/init:2",
        "spec.template.spec.initContainers[0].image",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    add_image(&mut site, "quay.io/team/web:1");
    add_image(&mut site, "quay.io/team/init:2");
    let made = build(&site, &Options::default()).unwrap();
    assert_eq!(made.charts["web"], "1.2.3");
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    let text = fs::read_to_string(site.path("bundle/charts/web.yaml")).unwrap();
    let kinds: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("kind: "))
        .collect();
    assert_eq!(
        kinds,
        ["Namespace", "CustomResourceDefinition", "Deployment"],
        "{text}"
    );
    assert!(text.contains("  namespace: web\n  name: web\n"), "{text}");
    // Helm wrote the tags; the site runs the images of the bundle.
    for image in ["quay.io/team/web:1@sha256:", "quay.io/team/init:2@sha256:"] {
        assert!(text.contains(image), "{text}");
    }
}

#[test]
#[ignore = "needs Helm: cargo lab test --full source:"]
fn what_a_chart_rendered_to_is_recorded() {
    let mut site = Site::new();
    with_chart(&mut site, "charts/web");
    add_image(&mut site, "quay.io/team/web:1");
    add_image(&mut site, "quay.io/team/web:2");
    add_image(&mut site, "quay.io/team/init:2");
    let lock = site.lock().unwrap().lock;
    let item = &lock.charts["web"];
    assert_eq!(
        (
            item.version.as_str(),
            item.source.as_str(),
            item.licence.as_deref()
        ),
        ("1.2.3", "charts/web", Some("MIT"))
    );
    let first = build(&site, &Options::default()).unwrap();
    // A folder that differs from the recorded one is refused; other values make another request.
    let values = site.path("charts/web/values.yaml");
    put(&values, b"image: quay.io/team/web:1\nreplicas: 3\n");
    let error = build(&site, &Options::default())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("chart web: recorded sha256") && error.contains("ctl bundle update"),
        "{error}"
    );
    let changes = site.update(true).unwrap().changes;
    assert!(
        matches!(&changes[..], [one] if one.name == "chart web"),
        "{changes:?}"
    );
    site.recipe["charts"][0]["values"] = json!({"image": "quay.io/team/web:2"});
    let second = build(&site, &Options::default()).unwrap();
    assert_ne!(
        first.files["charts/web.yaml"],
        second.files["charts/web.yaml"]
    );
    assert!(
        fs::read_to_string(site.path("bundle/charts/web.yaml"))
            .unwrap()
            .contains("quay.io/team/web:2")
    );

    // A chart that renders differently each time is built once, and cannot be built again without
    // the cache.
    put(
        &site.path("charts/web/templates/random.yaml"),
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {p: {{ randAlphaNum 20 }}}\n",
    );
    site.update(true).unwrap();
    let third = build(&site, &Options::default()).unwrap();
    assert_eq!(build(&site, &Options::default()).unwrap(), third);
    fs::remove_dir_all(site.path("cache")).unwrap();
    let error = build(&site, &Options::default())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("the chart web: its rendered objects differ"),
        "{error}"
    );

    // A chart with another version than the recipe states, or a broken one.
    site.recipe["charts"][0]["version"] = json!("2.0.0");
    let error = site.lock().map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("the chart has version 1.2.3, but the recipe requires 2.0.0"),
        "{error}"
    );
    site.recipe["charts"][0]["version"] = json!("1.2.3");
    put(
        &site.path("charts/web/templates/random.yaml"),
        b"{{ fail \"no such value\" }}",
    );
    let error = site
        .update(true)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("rendering the chart web: helm ended with")
            && error.contains("no such value"),
        "{error}"
    );
}

#[test]
#[ignore = "needs Helm: cargo lab test --full source:"]
fn secrets_of_a_chart_do_not_get_into_a_bundle() {
    let mut site = Site::new();
    with_chart(&mut site, "charts/web");
    add_image(&mut site, "quay.io/team/web:1");
    add_image(&mut site, "quay.io/team/init:2");
    put(
        &site.path("charts/web/templates/secret.yaml"),
        b"{{ if .Values.password }}\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: {{ \
          .Values.password }}}\n{{ end }}\n",
    );
    site.recipe["charts"][0]["values"] = json!({"password": "hunter2"});
    let error = site.lock().map_err(|error| chain(&error)).unwrap_err();
    let said = "chart web: the Secret login has contents (password), and every client that reaches the bundle can read it";
    for wanted in [
        said,
        "`secrets:` of the cluster document",
        "existingSecret",
        "`public-secrets: [login]`",
    ] {
        assert!(error.contains(wanted), "{error}");
    }
    assert!(
        !error.contains("hunter2") && !site.path("recipe.lock.yaml").exists(),
        "{error}"
    );
    // An exception for one Secret does not apply to others, and a rendering that a lock already
    // records is also checked.
    site.recipe["charts"][0]["public-secrets"] = json!(["greeting", "login"]);
    site.lock().unwrap();
    build(&site, &Options::default()).unwrap();
    site.recipe["charts"][0]["public-secrets"] = json!(["greeting"]);
    assert!(
        build(&site, &Options::default())
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains(said)
    );
    site.recipe["charts"][0]["values"] = json!({});
    site.update(true).unwrap();
    build(&site, &Options::default()).unwrap();
}

#[test]
#[ignore = "needs Helm: cargo lab test --full source:"]
fn charts_come_from_web_servers_and_registries() {
    let mut world = World::new();
    with_chart(&mut world.site, "charts/web");
    run(
        "helm",
        world.site.dir.path(),
        helm().to_str().unwrap(),
        &["package", "charts/web", "-d", "www"],
    );
    // The same chart in an archive with other bytes.
    let pack = "gzip -dc www/web-1.2.3.tgz | gzip -9n > other.tgz";
    run("gzip", world.site.dir.path(), "sh", &["-c", pack]);
    let archive = fs::read(world.site.path("other.tgz")).unwrap();
    assert_ne!(
        archive,
        fs::read(world.site.path("www/web-1.2.3.tgz")).unwrap()
    );
    let server = Server::directory(world.site.path("www"));
    let mut content = Content::default();
    let config = content.blob(
        "application/vnd.cncf.helm.config.v1+json",
        br#"{"name": "web", "version": "1.2.3"}"#,
    );
    let layer = content.blob(
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
        &archive,
    );
    let manifest =
        json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]});
    let descriptor = content.manifest("charts/web", OCI_MANIFEST, &manifest);
    content.tag("charts/web", "1.2.3", &descriptor);
    world.registry.push("charts/web", &content);
    let host = world.registry.host();
    let mut other = world.site.recipe["charts"][0].clone();
    other["name"] = json!("other");
    other["source"] = json!(format!("oci://{host}/charts/web"));
    world.site.recipe["charts"]
        .as_array_mut()
        .unwrap()
        .push(other);
    world.site.recipe["charts"][0]["source"] = json!(server.url("/web-1.2.3.tgz"));
    add_image(&mut world.site, "quay.io/team/web:1");
    add_image(&mut world.site, "quay.io/team/init:2");

    let error = build(&world.site, &Options::default())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("the chart web, as requested by the recipe\n  the chart other"),
        "{error}"
    );
    world.site.lock().unwrap();
    let recorded: Value = world.recorded();
    assert_eq!(
        recorded["charts"]["other"]["source"],
        format!("oci://{host}/charts/web:1.2.3")
    );
    assert_eq!(
        recorded["charts"]["other"]["sha256"],
        descriptor["digest"].as_str().unwrap()[7..]
    );
    let made = build(&world.site, &Options::default()).unwrap();
    assert_eq!(made.charts.len(), 2);

    // A damaged archive in the cache is fetched again.
    let kept = |digest: &Value| {
        world
            .site
            .path("cache/fetched/sha256")
            .join(digest.as_str().unwrap().trim_start_matches("sha256:"))
    };
    let mut damaged = archive.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(kept(&layer["digest"]), damaged).unwrap();
    fs::remove_file(kept(&recorded["charts"]["other"]["rendered"])).unwrap();
    assert_eq!(build(&world.site, &Options::default()).unwrap(), made);
    assert!(fs::read(kept(&layer["digest"])).unwrap() == archive);

    // From the cache: a rendered chart does not even need Helm, any other chart needs its archive.
    drop(server);
    world.site.recipe["helm"] = json!("/bin/false");
    let World { site, registry, .. } = world;
    drop(registry);
    assert_eq!(build(&site, &offline()).unwrap(), made);
    let mut site = site;
    site.recipe["helm"] = json!(helm());
    for item in recorded["charts"].as_object().unwrap().values() {
        let _ = fs::remove_file(
            site.path("cache/fetched/sha256")
                .join(item["rendered"].as_str().unwrap()),
        );
    }
    assert_eq!(build(&site, &offline()).unwrap(), made);
    for item in recorded["charts"].as_object().unwrap().values() {
        for key in ["rendered", "sha256"] {
            let _ = fs::remove_file(
                site.path("cache/fetched/sha256")
                    .join(item[key].as_str().unwrap()),
            );
        }
    }
    let error = build(&site, &offline())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("offline, and these 2 are not in the cache:\n  chart web (sha256:"),
        "{error}"
    );
}
