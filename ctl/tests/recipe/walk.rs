//! The walkthrough itself.

use std::fs;
use std::path::PathBuf;

use halite_testkit::put;

use crate::world::World;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.2.3\n";

const TEMPLATE: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\nspec:\n  replicas: {{ .Values.replicas \
                        }}\n  selector: {matchLabels: {app: app}}\n  template:\n    metadata: {labels: {app: app}}\n    spec:\n      \
                        containers:\n        - {name: app, image: {{ .Values.image | quote }}}\n";

fn helm() -> PathBuf {
    let helm = std::env::var_os("HALITE_HELM").map(PathBuf::from);
    helm.expect("HALITE_HELM has to name the program; `cargo lab test --full source:` builds it")
}

#[test]
#[ignore = "needs Helm: cargo lab test --full source:"]
fn from_nothing_to_an_iso_with_an_own_image_and_an_own_chart() {
    let world = World::new();
    fs::create_dir_all(world.path("site")).unwrap();
    let programs = world.path("bin");
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../states/tree");
    let init = [
        "bundle",
        "init",
        "--programs",
        programs.to_str().unwrap(),
        "--states",
        tree,
    ];
    assert!(world.said(&init).contains("then run: ctl bundle lock"));
    assert!(
        world
            .refused(&init)
            .contains("recipe.yaml: it already exists")
    );
    world.edit();

    let error = world.refused(&["bundle", "build", "--out", "halite.iso", "--unsigned"]);
    assert!(
        error.contains("recipe.lock.yaml does not record")
            && error.contains("run `ctl bundle lock`"),
        "{error}"
    );
    assert!(
        world
            .said(&["bundle", "lock"])
            .contains("recorded in recipe.lock.yaml")
    );
    let lock = fs::read(world.path("site/recipe.lock.yaml")).unwrap();
    assert!(world.said(&["bundle", "lock"]).contains("nothing changes"));
    assert_eq!(fs::read(world.path("site/recipe.lock.yaml")).unwrap(), lock);
    world.said(&["bundle", "key", "builder.key", "--unencrypted"]);
    let build = [
        "bundle",
        "build",
        "--out",
        "halite.iso",
        "--key",
        "builder.key",
    ];

    // The site's own chart, whose image is missing in the recipe at first.
    put(&world.path("site/charts/app/Chart.yaml"), CHART.as_bytes());
    put(
        &world.path("site/charts/app/templates/app.yaml"),
        TEMPLATE.as_bytes(),
    );
    let own = format!("{}/team/app:1.2", world.registry.host());
    let chart = format!(
        "\nhelm: {}\ncharts:\n  - {{name: app, source: charts/app, namespace: app, values: {{replicas: 2, image: \"{own}\"}}}}\n",
        helm().display()
    );
    world.add("no-proxy: \"*\"\n", &chart);
    world.said(&["bundle", "lock"]);
    let error = world.refused(&build);
    for wanted in [
        format!("the image {own}: images/index.json does not name it"),
        "Deployment app/app".into(),
    ] {
        assert!(error.contains(&wanted), "{error}");
    }
    assert!(!world.path("site/halite.iso").exists());
    world.add("images:\n", &format!("  - {{reference: \"{own}\"}}\n"));
    let error = world.refused(&build);
    assert!(
        error.contains(&format!("does not record\n  the image {own}")),
        "{error}"
    );
    assert!(
        world
            .said(&["bundle", "lock"])
            .contains("the licences of these are unknown")
    );
    world.said(&build);

    let verified = world.said(&["bundle", "verify", "halite.iso", "--trust", "builder.pub"]);
    assert!(
        verified.contains("all unchanged since they were sealed; signed by"),
        "{verified}"
    );
    assert!(
        world
            .said(&["bundle", "update", "--test"])
            .contains("nothing changes")
    );
    // The same again, without any server.
    let World { registry, web, .. } = &world;
    let asked = web.seen().len();
    let first = fs::read(world.path("site/halite.iso")).unwrap();
    registry.stop();
    world.said(&[
        "bundle",
        "build",
        "--offline",
        "--out",
        "again.iso",
        "--key",
        "builder.key",
    ]);
    assert_eq!(web.seen().len(), asked);
    assert!(
        first == fs::read(world.path("site/again.iso")).unwrap(),
        "another ISO came out"
    );
}
