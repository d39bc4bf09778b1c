//! Addons and charts.

use std::fs;

use halite_document::Problem;
use halite_states::compile;
use halite_states::compile::{Compiled, Input};
use halite_states::tree::DirTree;
use serde_json::{Value, json};

use crate::support::{bundle, chunk, fixture, here, highstate, sure, with};

#[test]
fn addons_are_sets_and_an_addon_that_is_off_is_not_among_them() {
    let (mut pillar, grains) = fixture("master");
    let owned = |pillar: &Value| {
        chunk(
            &highstate(pillar, &grains),
            "kubernetes.owned",
            "addons-owned",
        )
        .args["sets"]
            .clone()
    };
    assert_eq!(owned(&pillar), json!(["flannel"]));
    let among = chunk(
        &highstate(&pillar, &grains),
        "kubernetes.owned",
        "addons-owned",
    )
    .args["among"]
        .clone();
    assert_eq!(
        among,
        json!([
            "flannel",
            "metrics-server",
            "local-path",
            "chart-*",
            "manifest-*"
        ]),
        "no set of the site's own"
    );
    pillar["halite"]["addons"] = json!({"metricsServer": true, "localPath": true});
    pillar["halite"]["images"]["metrics-server"] = json!("r.example/metrics-server:1");
    pillar["halite"]["images"]["local-path-provisioner"] = json!("r.example/provisioner:1");
    pillar["halite"]["images"]["local-path-helper"] = json!("r.example/shell:1");
    assert_eq!(
        owned(&pillar),
        json!(["flannel", "metrics-server", "local-path"])
    );
    let compiled = highstate(&pillar, &grains);
    for (set, kinds, images) in [
        (
            "metrics-server",
            ["APIService", "Deployment"],
            &["r.example/metrics-server:1"][..],
        ),
        (
            "local-path",
            ["StorageClass", "Namespace"],
            &["r.example/provisioner:1", "r.example/shell:1"],
        ),
    ] {
        let args = &chunk(&compiled, "kubernetes.manifest", set).args;
        assert_eq!(args["set"], set);
        let documents = args["documents"].as_array().unwrap();
        for kind in kinds {
            assert!(
                documents.iter().any(|document| document["kind"] == kind),
                "{set}: {kind}"
            );
        }
        let text = args["documents"].to_string();
        for image in images {
            assert!(text.contains(image), "{set}: {image}");
        }
    }
    let place = |id: &str| {
        compiled
            .low
            .chunks
            .iter()
            .position(|chunk| chunk.id == id)
            .unwrap()
    };
    assert!(
        place("addons-owned") < place("metrics-server"),
        "removals come first"
    );

    pillar["halite"]["images"]
        .as_object_mut()
        .unwrap()
        .remove("local-path-helper");
    let problems = with(&pillar, &grains, compile::highstate).unwrap_err();
    assert!(
        problems[0]
            .to_string()
            .contains("no image `local-path-helper`"),
        "{}",
        problems[0]
    );
}

#[test]
fn charts_come_from_the_bundle_and_an_unknown_one_is_named() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["bundle"]["charts"] = json!({"demo": "1.0.0", "logs": "2.0.0"});
    pillar["halite"]["charts"] = json!(["demo"]);
    let directory = tempfile::tempdir().unwrap();
    let bundle_dir = directory.path();
    fs::create_dir_all(bundle_dir.join("charts")).unwrap();
    let text = "kind: Service\napiVersion: v1\nmetadata: {name: demo}\n---\nkind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: demo}\n";
    fs::write(bundle_dir.join("charts/demo.yaml"), text).unwrap();
    let tree = DirTree::new().bundle(bundle_dir).root(here().join("tree"));
    let compile = |pillar: &Value| {
        compile::highstate(&Input {
            tree: &tree,
            minion: "master",
            pillar,
            grains: &grains,
            bundle: &bundle,
        })
    };
    let compiled = sure(compile(&pillar));
    let args = &chunk(&compiled, "kubernetes.manifest", "chart-demo").args;
    assert_eq!(
        (
            args["set"].as_str(),
            args["documents"].as_array().unwrap().len()
        ),
        (Some("chart-demo"), 2)
    );
    assert_eq!(
        chunk(&compiled, "kubernetes.owned", "addons-owned").args["sets"],
        json!(["flannel", "chart-demo"])
    );
    pillar["halite"]["charts"] = json!(["dmeo"]);
    let problems = compile(&pillar).unwrap_err();
    assert!(
        problems[0]
            .to_string()
            .contains("no chart `dmeo`; it has demo, logs"),
        "{}",
        problems[0]
    );
}

/// Compiles the highstate of the target `master` with files of the operator in `custom/manifests`.
fn with_manifests(pillar: &Value, files: &[(&str, &str)]) -> Result<Compiled, String> {
    compiled_with(pillar, files, compile::highstate)
}

/// Compiles states of the target `master` with files of the operator in `custom/manifests`.
fn compiled_with(
    pillar: &Value,
    files: &[(&str, &str)],
    compile: impl Fn(&Input) -> Result<Compiled, Vec<Problem>>,
) -> Result<Compiled, String> {
    let (_, grains) = fixture("master");
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join("manifests").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let tree = DirTree::new()
        .mount("custom", directory.path())
        .root(here().join("tree"));
    let input = Input {
        tree: &tree,
        minion: "master",
        pillar,
        grains: &grains,
        bundle: &bundle,
    };
    compile(&input).map_err(|problems| {
        let problems = problems.iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn manifests_of_the_operator_are_sets_of_their_files() {
    let (mut pillar, _) = fixture("master");
    pillar["custom"] = json!({"teams": ["red", "blue"]});
    pillar["halite"]["secrets"] = json!({"app": "halite-secret::secrets.app::"});
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\ndata: {rule: '{{ $labels.pod }}'}\n";
    let teams = "{% from 'custom/manifests/names.jinja' import prefix %}\n{% for team in pillar.custom.teams %}\n---\n\
        apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ prefix }}-{{ team }}}\n{% endfor %}\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\n\
        stringData: {password: '{{ pillar.halite.secrets.app }}'}\n";
    let files = [
        ("rules.yaml", map),
        ("teams.yaml.j2", teams),
        ("apps/web/login.yml.j2", secret),
        ("names.jinja", "{% set prefix = 'team' %}"),
        ("README.md", "{{ nothing }}"),
        (".rules.yaml.swp", "{{ nothing }}"),
        ("rules.yaml~", "{{ nothing }}"),
    ];
    let compiled = with_manifests(&pillar, &files).unwrap();
    let owned = chunk(&compiled, "kubernetes.owned", "addons-owned");
    let sets = [
        "flannel",
        "manifest-apps.web.login",
        "manifest-rules",
        "manifest-teams",
    ];
    assert_eq!(owned.args["sets"], json!(sets));
    let manifest = |set: &str| chunk(&compiled, "kubernetes.manifest", set);
    // Without `.j2` it is not a template: braces stay.
    let rules = manifest("manifest-rules");
    assert_eq!(
        rules.args["documents"][0]["data"]["rule"],
        "{{ $labels.pod }}"
    );
    assert!(!rules.sensitive);
    let teams = manifest("manifest-teams").args["documents"].clone();
    let names: Vec<&Value> = teams
        .as_array()
        .unwrap()
        .iter()
        .map(|team| &team["metadata"]["name"])
        .collect();
    assert_eq!(names, ["team-red", "team-blue"]);
    let login = manifest("manifest-apps.web.login");
    assert_eq!(login.args["set"], "manifest-apps.web.login");
    assert!(login.sensitive, "no diff of it is made");
    let last = compiled.low.chunks.last().unwrap();
    assert_eq!(
        last.sls, "halite.addons.manifests",
        "they may use what others define"
    );

    // The states exist without files: then `owned` removes every set of an earlier file.
    let none = with_manifests(&pillar, &[]).unwrap();
    let owned = chunk(&none, "kubernetes.owned", "addons-owned");
    assert_eq!(owned.args["sets"], json!(["flannel"]));
}

/// A step of the bootstrap, for example: such a run does not know the object that moved to another
/// file, and nothing in it is about the files.
#[test]
fn a_run_without_the_manifests_judges_none_of_their_sets() {
    let (pillar, _) = fixture("master");
    let files = [("teams.yaml.bak", "")];
    for sls in [
        "halite.base.network",
        "halite.addons.owned",
        "halite.addons.charts",
    ] {
        let step = |input: &Input| compile::step(input, &[sls.to_owned()]);
        let compiled = compiled_with(&pillar, &files, step).unwrap();
        let owned = compiled
            .low
            .chunks
            .iter()
            .find(|chunk| chunk.id == "addons-owned");
        let among = owned.map(|owned| owned.args["among"].as_array().unwrap());
        assert!(
            among.is_none_or(|among| !among.contains(&json!("manifest-*"))),
            "{sls}: {among:?}"
        );
    }
    let step = |input: &Input| compile::step(input, &["halite.addons.manifests".to_owned()]);
    let compiled = compiled_with(&pillar, &[("teams.yaml", "")], step).unwrap();
    let owned = chunk(&compiled, "kubernetes.owned", "addons-owned");
    assert_eq!(owned.args["sets"], json!(["flannel", "manifest-teams"]));
    assert!(
        owned.args["among"]
            .as_array()
            .unwrap()
            .contains(&json!("manifest-*"))
    );
    assert!(compiled_with(&pillar, &files, step).is_err());
}

#[test]
fn a_manifest_with_a_mistake_is_named() {
    let (pillar, _) = fixture("master");
    let long = format!("{}.yaml", "a".repeat(55));
    for (files, wanted) in [
        (
            [("web.yaml", ""), ("web.yaml.j2", "")].as_slice(),
            "/etc/halite/custom/manifests/web.yaml.j2: it has the same name as /etc/halite/custom/manifests/web.yaml",
        ),
        (
            &[("a.b.yaml", ""), ("a/b.json", "")],
            "it has the same name as",
        ),
        (
            &[("web.txt", "")],
            "/etc/halite/custom/manifests/web.txt: a manifest is called NAME.yaml",
        ),
        (&[("a b.yaml", "")], "a manifest is called NAME.yaml"),
        (&[(long.as_str(), "")], "at most 54 characters"),
        (&[("a-.yaml", "")], "ends in a letter or digit"),
        (
            &[(
                "web.yaml",
                "apiVersion: v1\nkind: Pod\n---\nkind: Pod\nmetadata: {name: a}\n",
            )],
            "custom/manifests/web.yaml:1:1: this Pod has no text as `metadata.name`",
        ),
        (
            &[(
                "web.yaml.j2",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ pillar.custom.no }}}\n",
            )],
            "custom/manifests/web.yaml.j2:3",
        ),
        (
            &[(
                "web.yaml.j2",
                "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: {{ pillar.halite.secrets.no }}}\n",
            )],
            "custom/manifests/web.yaml.j2:4",
        ),
    ] {
        let said = with_manifests(&pillar, files).unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

/// The firewall opens the kubelet's port to metrics-server only, and the kubelet gets a serving
/// certificate that metrics-server can verify; both only with the addon.
#[test]
fn metrics_server_reaches_every_kubelet() {
    for (name, own) in [("bootstrap", "10.10.0.11"), ("worker", "10.10.1.12")] {
        let rule = |source: &str| {
            format!(
                "rule family=\"ipv4\" source {source} destination address=\"{own}\" port port=\"10250\" protocol=\"tcp\" accept"
            )
        };
        let (mut pillar, grains) = fixture(name);
        let is_open = |compiled: &Compiled, source: &str| {
            let rules = &chunk(compiled, "firewalld.policy", "halite-host").args["rich_rules"];
            rules.as_array().unwrap().contains(&json!(rule(source)))
        };
        let crt = "/var/lib/kubelet/pki/kubelet.crt";
        let off = highstate(&pillar, &grains);
        let (pods, nodes) = ("address=\"10.233.0.0/16\"", "ipset=\"halite-nodes\"");
        assert!(!is_open(&off, pods) && !is_open(&off, nodes));
        assert!(is_open(&off, "ipset=\"halite-control-plane\""));
        assert!(!off.low.chunks.iter().any(|chunk| chunk.name == crt));
        pillar["halite"]["addons"]["metricsServer"] = json!(true);
        let on = highstate(&pillar, &grains);
        for source in [pods, nodes] {
            assert!(is_open(&on, source), "{name}: {source}");
        }
        let certificate = &chunk(&on, "x509.certificate", crt).args;
        assert_eq!(
            (&certificate["sans_ip"], &certificate["server_auth"]),
            (&json!([own]), &json!(true))
        );
        assert!(!certificate.contains_key("client_auth"));
        // Only a kubelet of 1.36 or later reloads it for clients that use its address.
        for (version, restarts) in [("v1.35.4", true), ("v1.36.3", false)] {
            pillar["halite"]["kubernetes"]["version"] = json!(version);
            let on = highstate(&pillar, &grains);
            let place = |wanted: &str| {
                let mut chunks = on.low.chunks.iter();
                chunks.position(|chunk| chunk.id == wanted).unwrap()
            };
            let watched = &on.low.chunks[place("kubelet")].requisites.watch;
            assert_eq!(watched.contains(&place(crt)), restarts, "{name}, {version}");
        }
    }
}
