mod bundle;

use std::fs;
use std::sync::LazyLock;

use serde_json::{Value, json};

use self::bundle::{Bundle, RPMS};
use super::worker::{DEBIAN, grains};
use super::*;
use crate::completeness::{Artifact, Inventory, Unmet};

/// A bundle with packages for both kinds of hosts, and the needs of the shipped tree, compiled once
/// for all tests.
static NEEDS: LazyLock<(Bundle, Requirements)> = LazyLock::new(|| {
    let mut site = Bundle::new();
    site.add_rpms();
    let needs = needs(site.dir.path(), &site.manifest(), Coverage::Covering).unwrap();
    (site, needs)
});

fn named(artifact: &Artifact) -> String {
    artifact.to_string()
}

#[test]
fn a_bundle_with_all_that_the_shipped_tree_names_is_complete() {
    let (site, needs) = &*NEEDS;
    let missing: Vec<String> = needs
        .missing(&site.stock())
        .iter()
        .map(Unmet::to_string)
        .collect();
    assert_eq!(missing, [""; 0]);
    // Every role, pod network and address was compiled.
    assert!(needs.renderings() > 300, "{}", needs.renderings());
    for (artifact, place) in [
        (
            "the image registry.k8s.io/pause:3.10.2",
            "file.managed /etc/containerd/config.toml, contents",
        ),
        (
            "the image ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1",
            "initContainers[0].image",
        ),
        (
            "the image registry.example/demo:1",
            "kubernetes.manifest chart-demo, Pod default/demo",
        ),
        (
            "the image docker.io/library/busybox:1.37.0",
            "ConfigMap local-path-storage/local-path-config",
        ),
        ("the file charts/demo.yaml", "the state tree reads it"),
        ("the package keepalived", "pkg.installed host-packages"),
        (
            "the file bin/halite-master",
            "file.managed /usr/local/bin/halite-master, source",
        ),
        (
            "the file nginx/manifests.map",
            "file.managed /etc/nginx/conf.d/halite.conf, contents",
        ),
        (
            "the file states/halite/orchestrate/add_node.sls",
            "the state tree reads it",
        ),
    ] {
        let found = needs
            .artifacts()
            .iter()
            .find(|(found, _)| named(found) == artifact);
        let (_, places) = found.unwrap_or_else(|| panic!("nothing needs {artifact}"));
        assert!(
            places.keys().any(|found| found.what.contains(place)),
            "{artifact}: {places:?}"
        );
    }
}

#[test]
fn whatever_is_taken_away_is_missed() {
    let (site, needs) = &*NEEDS;
    let without = without_each(site.dir.path(), &site.manifest(), needs, &site.stock()).unwrap();
    let spare = without.iter().filter(|(_, said)| said.is_empty());
    let spare: Vec<String> = spare.map(|(artifact, _)| named(artifact)).collect();
    assert_eq!(
        spare,
        [
            "the file states/README.md",
            "the file states/custom/README.md"
        ]
    );
}

#[test]
fn a_bundle_for_hosts_of_red_hats_kind_needs_their_packages_too() {
    let (site, needs) = &*NEEDS;
    let stock = site.stock();
    let lines = |stock: &Inventory| {
        needs
            .missing(stock)
            .iter()
            .map(Unmet::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&stock), [""; 0]);
    for name in RPMS.split_whitespace() {
        let artifact = Artifact::Rpm {
            name: name.to_owned(),
            version: None,
        };
        let missing = lines(&stock.without(&artifact));
        assert!(
            missing.len() == 1 && missing[0].contains(&format!("the RPM package {name}")),
            "{missing:?}"
        );
    }
    for path in [
        "rpm/repodata/primary.xml.gz",
        "rpm/repodata/repomd.xml.asc",
        "rpm/halite.asc",
    ] {
        let missing = lines(&stock.without(&Artifact::File {
            path: path.to_owned(),
        }));
        assert!(
            missing.len() == 1 && missing[0].contains(path),
            "{path}: {missing:?}"
        );
    }
    let package = "rpm/packages/libmnl-1-1.x86_64.rpm";
    let missing = lines(&stock.without(&Artifact::File {
        path: package.to_owned(),
    }));
    assert!(
        missing.len() == 1 && missing[0].contains(package),
        "{missing:?}"
    );
}

#[test]
fn what_is_missing_beside_a_component_is_in_the_same_report() {
    let mut site = Bundle::new();
    for (kind, name) in [
        ("images", "flannel"),
        ("files", "bin/halite-minion"),
        ("files", "nginx/registry.conf"),
    ] {
        site.manifest[kind]
            .as_object_mut()
            .unwrap()
            .remove(name)
            .unwrap();
    }
    let flannel_cni = "ghcr.io/flannel-io/flannel-cni-plugin:v9";
    site.manifest["images"]["flannel-cni-plugin"] = json!(flannel_cni);
    let (sets, facts) = (
        option_sets::sets("v1.36.3", &BTreeMap::new(), Coverage::Covering).unwrap(),
        facts(&site.manifest()).unwrap(),
    );
    let tree = Kept::new(&DirTree::new().root(site.dir.path().join("states")));
    // Only the defaults: all sets would take this unoptimised program many seconds.
    let gathered =
        |facts: &BundleFacts, until: Until| gather(&tree, facts, &sets[..1], until).unwrap();
    let (first, all) = (
        gathered(&facts, Until::Problem),
        gathered(&facts, Until::End),
    );
    assert!(!first.compiles() && !all.compiles());
    assert!(
        first.renderings() <= WORKERS && all.renderings() > WORKERS,
        "{} and {}",
        first.renderings(),
        all.renderings()
    );
    let needs = gathered(&with_stand_ins(&facts, &tree), Until::End);
    let report: Vec<String> = needs
        .missing(&site.stock())
        .iter()
        .map(Unmet::to_string)
        .collect();
    for wanted in [
        "the image of the component flannel: the recipe has no image of a component \"flannel\"",
        flannel_cni,
        "the file bin/halite-minion",
        "the file nginx/registry.conf",
    ] {
        assert!(
            report.iter().any(|missing| missing.contains(wanted)),
            "{wanted}: {report:#?}"
        );
    }
    assert!(needs.compiles() && report.len() == 4, "{report:#?}");
}

#[test]
fn components_are_found_in_templates() {
    let text = "{{ pillar.halite.images.etcd }} {{ pillar.halite.images['kube-proxy'] }} {{ pillar.halite.images[\"a\"] }} \
                {{ pillar.halite.images.get('b') }} {% for c in pillar.halite.images %}{{ pillar.halite.images[c] }}";
    assert_eq!(
        components(text).collect::<Vec<_>>(),
        ["etcd", "kube-proxy", "a", "b"]
    );
}

#[test]
fn a_part_of_the_tree_that_is_not_there_is_named_by_who_reads_it() {
    for (path, wanted) in [
        (
            "states/halite/base/network/flannel.yaml.j2",
            "halite/base/network/flannel.sls:",
        ),
        (
            "states/halite/orchestrate/add_node.sls",
            "there is no SLS `halite.orchestrate.add_node`",
        ),
        (
            "states/halite/host/keepalived/aside.sls",
            "aside/init.sls\n  needed by ",
        ),
    ] {
        let mut site = Bundle::new();
        fs::remove_file(site.dir.path().join(path)).unwrap();
        site.manifest["files"].as_object_mut().unwrap().remove(path);
        let set = &sets(&site.manifest(), Coverage::Covering).unwrap()[0];
        let tree = Kept::new(&DirTree::new().bundle(site.dir.path()));
        let facts = facts(&site.manifest()).unwrap();
        let mut worker = Worker::new(&tree, &facts);
        worker.hosts(set).unwrap();
        worker.orchestrations(set).unwrap();
        let needs = worker.needs();
        let report: Vec<String> = needs
            .missing(&site.stock())
            .iter()
            .map(Unmet::to_string)
            .collect();
        assert!(
            report.iter().any(|missing| missing.contains(wanted)),
            "{path}: {report:?}"
        );
    }
}

#[test]
fn an_addon_without_its_image_is_refused_unless_nobody_can_choose_it() {
    let mut site = Bundle::new();
    site.manifest["images"]
        .as_object_mut()
        .unwrap()
        .remove("metrics-server");
    let all = sets(&site.manifest(), Coverage::Covering).unwrap();
    let set = all
        .iter()
        .find(|set| set.name == "addons.metricsServer: true")
        .unwrap();
    let tree = Kept::new(&DirTree::new().bundle(site.dir.path()));
    let facts = facts(&site.manifest()).unwrap();
    let mut worker = Worker::new(&tree, &facts);
    worker.hosts(set).unwrap();
    let told: Vec<String> = worker
        .needs()
        .missing(&site.stock())
        .iter()
        .map(Unmet::to_string)
        .collect();
    let explained = |line: &String| {
        line.contains("`metrics-server`") && line.contains("addons.metricsServer: [false]")
    };
    assert!(told.iter().any(explained), "{told:?}");
    site.manifest["options"] = json!({"addons.metricsServer": ["false"]});
    let chosen = sets(&site.manifest(), Coverage::Covering).unwrap();
    assert!(
        chosen
            .iter()
            .all(|set| !set.declaration.cluster.addons.metrics_server)
    );
}

#[test]
fn one_compiler_for_all_says_what_one_for_each_says() {
    let site = Bundle::new();
    let tree = Kept::new(&DirTree::new().bundle(site.dir.path()));
    let facts = facts(&site.manifest()).unwrap();
    let mut shared = Worker::new(&tree, &facts);
    let all = sets(&site.manifest(), Coverage::Covering).unwrap();
    // Samples in an order in which neighbours differ a lot. All sets would take too long without
    // the caches.
    for at in [0, all.len() - 1, 7, all.len() / 2, 1, 0] {
        let set = &all[at];
        for target in &set.targets {
            let pillar = shared.view(set, &target.minion).unwrap();
            let grains = grains(target, &pillar, DEBIAN);
            let rendered = |worker: &mut Worker| worker.render(set, target, &pillar, &grains, None);
            let one = rendered(&mut shared);
            let own = rendered(&mut Worker::new(&tree, &facts));
            assert!(
                one.problems.is_empty() && !one.states.is_empty(),
                "{:?}",
                one.problems
            );
            assert_eq!(one, own, "{} of {}", target.what, set.name);
        }
    }
}
