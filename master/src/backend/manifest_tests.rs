//! The operator's manifests: a secret of theirs reaches the API, and nothing that is stored or
//! shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_proto::v1;
use serde_json::{Value, json};

use super::fixture::{CANARY, Site};

const TREE: &[(&str, &str)] = &[(
    "objects.sls",
    "app:\n  kubernetes.manifest:\n    - source: salt://custom/manifests/app.yaml.j2\n    - template: jinja\n    - set: manifest-app\n",
)];

const MANIFEST: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: default}\n\
    stringData: {password: '{{ pillar.halite.secrets.canary }}'}\n---\n\
    apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\n\
    data: {url: 'https://user:{{ pillar.halite.secrets.canary }}@db'}\n";

/// A site with the manifest, whose secret is for this node.
fn site(node: &str) -> Site {
    let site = Site::new(TREE);
    let document = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    let text = text.replace("roles: [worker]", &format!("nodes: [{node}]"));
    std::fs::write(document, text).unwrap();
    let folder = site.path().join("etc/custom/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("app.yaml.j2"), MANIFEST).unwrap();
    site
}

#[test]
fn a_secret_of_a_manifest_reaches_the_api_and_no_record() {
    let site = site("master");
    let life = site.live();
    let run = |test: bool| {
        let events = life.run("state.apply", "master", json!({"sls": ["objects"]}), test);
        assert_eq!(events.last().unwrap().retcode, 0, "{events:?}");
        format!("{events:?}")
    };
    let mut shown = run(true);
    assert!(shown.contains("Secret default/login"), "{shown}");
    assert!(site.api.object("Secret", "login").is_none());
    shown += &run(false);
    let encoded = STANDARD.encode(CANARY);
    let secret = site.api.object("Secret", "login").unwrap();
    assert_eq!(secret["data"], json!({"password": encoded}));
    assert_eq!(secret.get("stringData"), None);
    let settings = site.api.object("ConfigMap", "settings").unwrap();
    assert_eq!(settings["data"]["url"], format!("https://user:{CANARY}@db"));
    assert_eq!(secret["metadata"]["labels"]["halite/set"], "manifest-app");

    // Drift of such an object is repaired, and not displayed either.
    let mut changed = settings;
    changed["data"]["url"] = json!("changed by hand");
    site.api.put(changed);
    shown += &run(false);
    shown += &life.everything_stored(&site);
    for text in [CANARY, &encoded] {
        assert!(!shown.contains(text), "{text} is in a record");
    }
    let now = site.api.object("ConfigMap", "settings").unwrap();
    assert_eq!(now["data"]["url"], format!("https://user:{CANARY}@db"));
}

#[test]
fn a_manifest_gets_no_secret_of_hosts() {
    let site = site("worker-1");
    let life = site.live();
    let request = v1::RunRequest {
        target: "master".into(),
        function: "state.apply".into(),
        args_json: json!({"sls": ["objects"]}).to_string(),
        ..v1::RunRequest::default()
    };
    let refusal = life
        .runtime
        .block_on(life.backend.run("root", request))
        .map(|_| ())
        .unwrap_err();
    assert!(
        refusal.message.contains("app.yaml.j2:4") && refusal.message.contains("canary"),
        "{refusal}"
    );
    assert_eq!(site.api.object("Secret", "login"), None::<Value>);
}
