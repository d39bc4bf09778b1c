use super::*;

fn arguments(words: &[&str]) -> anyhow::Result<NodeAdd> {
    let line = ["ctl", "node", "add"].iter().chain(words);
    let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(line)?;
    match cli.command {
        crate::cli::Command::Node(crate::cli::Node::Add(args)) => Ok(args),
        _ => bail!("another command"),
    }
}

#[test]
fn the_command_to_repeat_declares_the_same() {
    let words = [
        "a=10.0.0.1",
        "b",
        "--roles",
        "worker,infra",
        "--label",
        "x=y",
        "--ignore-preflight",
        "etcd-disk,swap",
    ];
    let args = arguments(&words).unwrap();
    let request = v1::AddNodeRequest {
        nodes: new_nodes(&args).unwrap(),
        roles: args.roles.clone(),
        document_json: json!({"labels": labels(&args.labels).unwrap()}).to_string(),
    };
    let again = same_words(&request, &args.ignore_preflight);
    assert_eq!(again, format!("ctl node add {}", words.join(" ")));
}

#[test]
fn values_of_the_command_to_repeat_are_words_of_a_shell() {
    let again = CommandLine::new("ctl node add")
        .option("from", Some("my hosts' list.yaml"))
        .option("label", Some("a=b"))
        .option("ssh", Some("DOMAIN\\a"));
    assert_eq!(
        again.text(),
        r"ctl node add --from 'my hosts'\'' list.yaml' --label a=b --ssh 'DOMAIN\a'"
    );
}

#[test]
fn a_replacement_with_taints_or_custom_values_is_resumed_by_its_orchestration() {
    let again = |taints: Value, custom: Value, ignored: &[String]| {
        let further = json!({"labels": {"a": "b"}, "taints": taints, "custom": custom});
        let request = v1::AddNodeRequest {
            nodes: vec![v1::NewNode {
                name: "w".to_owned(),
                address: String::new(),
                ..v1::NewNode::default()
            }],
            roles: vec!["worker".to_owned()],
            document_json: further.to_string(),
        };
        same_words(&request, ignored)
    };
    assert_eq!(
        again(Value::Null, json!({}), &[]),
        "ctl node add w --roles worker --label a=b"
    );
    assert!(again(json!([]), json!({}), &[]).starts_with("ctl orchestrate "));
    let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    let tainted = again(taints, json!({}), &["swap".to_owned()]);
    let line = format!("ctl orchestrate {ADD_NODE} --pillar ");
    let pillar = tainted.strip_prefix(&line).unwrap().trim_matches('\'');
    let pillar: Value = serde_json::from_str(pillar).unwrap();
    assert_eq!(pillar, run_pillar("w", &["swap".to_owned()]));
    assert!(again(Value::Null, json!({"rack": 7}), &[]).starts_with(&line));
}

fn parsed(words: &[&str]) -> anyhow::Result<Vec<(String, String)>> {
    let nodes = new_nodes(&arguments(words)?)?;
    Ok(nodes
        .into_iter()
        .map(|node| (node.name, node.address))
        .collect())
}

#[test]
fn nodes_are_named_with_or_without_an_address() {
    let pair = |name: &str, address: &str| (name.to_owned(), address.to_owned());
    assert_eq!(parsed(&["a"]).unwrap(), [pair("a", "")]);
    assert_eq!(
        parsed(&["a", "--address", "10.0.0.1"]).unwrap(),
        [pair("a", "10.0.0.1")]
    );
    assert_eq!(
        parsed(&["a=10.0.0.1", "b", "--roles", "worker"]).unwrap(),
        [pair("a", "10.0.0.1"), pair("b", "")]
    );
    for bad in [
        &["a=10.0.0.1", "--address", "10.0.0.1"][..],
        &["a", "b", "--address", "10.0.0.1"],
        &["a=", "b"],
        &["a=10.0.0"],
        &["a", "--address", "10.0.0"],
        &["a", "--address=-oProxyCommand=x"],
        // A check that only first hosts have, and a name of no check.
        &["a", "--ignore-preflight", "documents"],
        &["a", "--ignore-preflight", "swap,all"],
        &[],
    ] {
        assert!(parsed(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn the_hosts_of_a_file_have_roles_and_fields_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hosts.yaml");
    let text = "apiVersion: halite/v1\nkind: HostList\nhosts:\n- {name: a, address: 10.0.0.1}\n\
                - {name: b, roles: [worker, infra], labels: {disk: ssd}, taints: []}\n";
    fs::write(&path, text).unwrap();
    let request = listed(&path).unwrap();
    let [a, b] = request.nodes.as_slice() else {
        panic!("{request:?}")
    };
    assert_eq!(
        (a.address.as_str(), a.document_json.as_str()),
        ("10.0.0.1", "{}")
    );
    assert_eq!(a.roles, ["worker"]);
    assert_eq!(
        (b.address.as_str(), b.roles.join(",").as_str()),
        ("", "worker,infra")
    );
    let further: Value = serde_json::from_str(&b.document_json).unwrap();
    assert_eq!(further, json!({"labels": {"disk": "ssd"}, "taints": []}));
    fs::write(&path, text.replace("10.0.0.1", "10.0.0")).unwrap();
    let error = listed(&path).unwrap_err().to_string();
    assert!(
        error.contains("hosts.yaml:4:22: hosts[0].address: "),
        "{error}"
    );
}

#[test]
fn a_file_has_all_that_the_options_for_hosts_have() {
    assert!(arguments(&["--from", "hosts.yaml", "--ssh", "root"]).is_ok());
    for bad in [
        &["--from", "hosts.yaml", "a"][..],
        &["--from", "hosts.yaml", "--roles", "worker"],
        &["--from", "hosts.yaml", "--label", "a=b"],
        &["a", "--ssh", "root", "--no-wait"],
        &["a", "--ssh", "-oProxyCommand=x"],
        &["--ssh", "root"],
    ] {
        assert!(arguments(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn ignored_checks_are_in_the_pillar_of_the_run() {
    let args = arguments(&["a", "--ignore-preflight", "swap,mtu"]).unwrap();
    let pillar = run_pillar("a", &args.ignore_preflight);
    assert_eq!(
        pillar,
        json!({"node": "a", "ignore_preflight": ["swap", "mtu"]})
    );
    // Without ignored checks, the run equals that of an earlier ctl.
    assert_eq!(run_pillar("a", &[]), json!({"node": "a"}));
}

#[test]
fn labels_are_pairs() {
    assert_eq!(
        labels(&["disk=ssd".to_owned(), "e=".to_owned()])
            .unwrap()
            .get("disk")
            .unwrap(),
        "ssd"
    );
    assert!(labels(&["disk".to_owned()]).is_err());
}
