use std::path::Path;

use halite_pillar::host_facts::HostFacts;
use serde_json::{Value, json};

use super::draft::Draft;
use super::suggestion::{NAMES, suggested};
use super::*;

fn host() -> FirstHost {
    let grains = json!({
        "ip4_interfaces": {"eth0": ["10.0.0.11"], "eth1": ["10.96.7.3"], "docker0": ["172.17.0.1"]},
        "ip4_routes": [
            {"destination": "0.0.0.0/0", "interface": "eth0"},
            {"destination": "10.0.0.0/24", "interface": "eth0"},
            {"destination": "10.96.7.0/24", "interface": "eth1"},
        ],
    });
    FirstHost {
        name: Some("cp-1".to_owned()),
        facts: Some(HostFacts::from_grains("cp-1", &grains)),
        is_here: false,
    }
}

fn draft(directory: &Path) -> Draft {
    Draft::new(directory, None, host().facts)
}

/// Gives these answers, and the suggested one to each other question.
fn answer(draft: &mut Draft, host: &FirstHost, given: &[(&str, Option<Value>)]) {
    for at in 0..draft.questions.len() {
        if !draft.is_asked(at) {
            draft.set(at, None);
            continue;
        }
        let id = draft.questions[at].id.clone();
        let own = given.iter().find(|(path, _)| *path == id);
        let value = match own {
            Some((_, value)) => value.clone(),
            None => suggested(draft, host, at).value,
        };
        draft.set(at, value);
        let problems = draft.problems(|other| other > at);
        assert!(problems.is_empty(), "{id}: {problems:#?}");
    }
}

#[test]
fn every_suggestion_of_the_schemas_is_known() {
    let draft = draft(Path::new("d"));
    for question in &draft.questions {
        let name = question.field.suggestion();
        assert!(
            name.is_none_or(|name| NAMES.contains(&name)),
            "{}: {name:?}",
            question.id
        );
    }
}

#[test]
fn suggestions_fit_the_host_and_each_other() {
    let host = host();
    let mut draft = draft(Path::new("d"));
    answer(&mut draft, &host, &[("metadata.name", Some(json!("prod")))]);
    for (id, value) in [
        ("networks.controlPlane.cidrs", json!(["10.0.0.0/24"])),
        ("networks.pods", json!("10.233.0.0/16")),
        ("networks.services", json!("10.112.0.0/12")),
        ("kubernetes.version", json!("1.36")),
        ("node.metadata.name", json!("cp-1")),
        ("node.address", json!("10.0.0.11")),
    ] {
        assert_eq!(draft.answer_to(id), Some(&value), "{id}");
    }
    let services = draft
        .questions
        .iter()
        .position(|question| question.id == "networks.services")
        .unwrap();
    draft.set(services, None);
    assert_eq!(
        suggested(&draft, &host, services).reason.unwrap(),
        "The default 10.96.0.0/12 overlaps the address 10.96.7.3 (eth1)."
    );
}

#[test]
fn each_combination_of_conditions_makes_valid_documents() {
    let host = host();
    let mut made = 0;
    for bits in 0..64u32 {
        let directory = tempfile::tempdir().unwrap();
        let on = |bit: u32| bits >> bit & 1 == 1;
        let given = |bit: u32, value: Value| on(bit).then_some(value);
        let mut draft = draft(directory.path());
        let answers = [
            ("metadata.name", Some(json!("prod"))),
            (
                "networks.workloadPlane.cidrs",
                given(0, json!(["10.96.7.0/24"])),
            ),
            ("apiServer.vip", given(1, json!("10.0.0.100"))),
            ("apiServer.keepalived", Some(json!(on(2)))),
            ("addons.metricsServer", Some(json!(on(3)))),
            ("host.manageTime", Some(json!(on(4)))),
            ("time.servers", Some(json!(["ntp.example.com"]))),
            ("node.address", given(5, json!("10.0.0.11"))),
        ];
        answer(&mut draft, &host, &answers);
        let problems = draft.problems(|_| false);
        assert!(problems.is_empty(), "{bits:b}: {problems:#?}");
        for (path, text, mode) in draft.files() {
            files::write(&path, text.as_bytes(), mode).unwrap();
        }
        let read = ExistingDocuments::read(directory.path()).unwrap().unwrap();
        // The values that were answered are exactly those that are read.
        let mut again = Draft::new(directory.path(), None, host.facts.clone());
        again.leave(&read);
        again.begin_with(&read);
        for at in 0..draft.questions.len() {
            assert_eq!(
                draft.answer(at),
                again.answer(at),
                "{}",
                draft.questions[at].id
            );
        }
        made += 1;
    }
    assert_eq!(made, 64);
}

#[test]
fn a_problem_of_an_answer_is_found_at_once_and_its_consequences_later() {
    let host = host();
    let mut draft = draft(Path::new("d"));
    answer(&mut draft, &host, &[("metadata.name", Some(json!("prod")))]);
    let at = |draft: &Draft, id: &str| {
        let found = draft
            .questions
            .iter()
            .position(|question| question.id == id);
        found.unwrap()
    };
    let problems = |draft: &Draft, last: usize| -> Vec<String> {
        let found = draft.problems(|other| other > last).into_iter();
        found.map(|problem| problem.path).collect()
    };
    // The time servers are asked after this.
    let manage = at(&draft, "host.manageTime");
    draft.set(manage, Some(json!(true)));
    assert!(problems(&draft, manage).is_empty());
    assert_eq!(
        problems(&draft, at(&draft, "time.servers")),
        ["host.manageTime"]
    );
    draft.set(manage, Some(json!(false)));
    // A later answer does not fit the changed one: it is asked again.
    let planes = at(&draft, "networks.controlPlane.cidrs");
    draft.set(planes, Some(json!(["10.0.0.0/24", "10.233.0.0/24"])));
    assert!(problems(&draft, planes).is_empty());
    assert_eq!(
        problems(&draft, at(&draft, "networks.pods")),
        ["networks.pods"]
    );
}

#[test]
fn values_without_a_question_stay() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = "# mine\napiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
                   networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: 1.30}\n\
                   custom: {a: [1, 2]}\nsecrets: {smtp: {value: \"x: y\", roles: [worker]}}\n";
    std::fs::write(directory.path().join("cluster.yaml"), cluster).unwrap();
    let read = ExistingDocuments::read(directory.path()).unwrap().unwrap();
    let mut draft = draft(directory.path());
    draft.leave(&read);
    draft.begin_with(&read);
    answer(
        &mut draft,
        &host(),
        &[("metadata.name", Some(json!("test")))],
    );
    let (_, text, mode) = draft.files().remove(0);
    assert_eq!(mode, 0o600);
    for part in [
        "  name: test\n",
        "  version: \"1.30\"\n",
        "custom: {a: [1, 2]}\n",
        "secrets: {smtp: {value: \"x: y\", roles: [worker]}}\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
}

#[test]
fn a_first_host_with_a_new_name_replaces_its_document() {
    let directory = tempfile::tempdir().unwrap();
    let mut draft = draft(directory.path());
    answer(
        &mut draft,
        &host(),
        &[("metadata.name", Some(json!("prod")))],
    );
    for (path, text, mode) in draft.files() {
        files::write(&path, text.as_bytes(), mode).unwrap();
    }
    let worker = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: w-1}\nroles: [worker]\n";
    files::write(
        &directory.path().join("nodes/w-1.yaml"),
        worker.as_bytes(),
        0o644,
    )
    .unwrap();
    let read = ExistingDocuments::read(directory.path()).unwrap().unwrap();
    draft.leave(&read);
    draft.begin_with(&read);
    assert_eq!(draft.obsolete(), None);
    let name = |name: &str| ("node.metadata.name", Some(json!(name)));
    answer(&mut draft, &host(), &[name("cp-9")]);
    let old = draft.obsolete().unwrap();
    assert_eq!(old, directory.path().join("nodes/cp-1.yaml"));
    // Another host's document is not replaced.
    let mut questions = draft.questions.iter();
    let at = questions.position(|question| question.id == "node.metadata.name");
    draft.set(at.unwrap(), Some(json!("w-1")));
    let problems = draft.problems(|_| false);
    let says = |text: &str| {
        problems
            .iter()
            .any(|problem| problem.message.contains(text))
    };
    assert!(says("already declares a node `w-1`"), "{problems:#?}");
}

#[test]
fn documents_of_a_cluster_that_runs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
                   networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.36\"}\n";
    let refused = |text: &str| {
        std::fs::write(directory.path().join("cluster.yaml"), text).unwrap();
        let error = ExistingDocuments::read(directory.path()).err().unwrap();
        format!("{error:#}")
    };
    let runs = refused(&format!("{cluster}resolved: {{kubernetes: v1.36.3}}\n"));
    assert!(runs.contains("their cluster exists already"), "{runs}");
    let invalid = refused("kind: Cluster\n");
    assert!(invalid.contains("`metadata` is missing"), "{invalid}");
    std::fs::remove_file(directory.path().join("cluster.yaml")).unwrap();
    assert!(ExistingDocuments::read(directory.path()).unwrap().is_none());
    files::write(&directory.path().join("nodes/a.yaml"), b"", 0o644).unwrap();
    assert!(ExistingDocuments::read(directory.path()).is_err());
}
