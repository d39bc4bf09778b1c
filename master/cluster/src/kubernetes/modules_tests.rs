use halite_states::low::{Controls, Position, Requisites};
use serde_json::json;

use super::super::FieldConflict;
use super::super::fake::FakeApi;
use super::*;

fn chunk(fun: &str, args: Value) -> Chunk {
    Chunk {
        state: "kubernetes".into(),
        fun: fun.into(),
        id: "it".into(),
        name: "it".into(),
        sls: "s".into(),
        source: Position::default(),
        args: args.as_object().unwrap().clone(),
        requisites: Requisites::default(),
        controls: Controls::default(),
        sensitive: false,
    }
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "kube-system"}, "data": data})
}

fn cluster(test: bool) -> (Arc<FakeApi>, KubernetesModules) {
    let api = Arc::new(FakeApi::default());
    let patience = Patience {
        total: Duration::from_secs(2),
        node: Duration::from_millis(20),
        pause: Duration::from_millis(1),
    };
    (
        Arc::clone(&api),
        KubernetesModules::new(api, test, patience).expecting(["n1".to_owned(), "n2".to_owned()]),
    )
}

/// The rule for every module: after check and apply, a second check finds nothing.
async fn apply_and_check_again(
    cluster: &KubernetesModules,
    chunk: &Chunk,
) -> Checked<Vec<Operation>> {
    let first = cluster.check(chunk).await.unwrap();
    assert_eq!(first.changes.is_empty(), first.diff.is_empty());
    cluster.apply(chunk, &first.diff).await.unwrap();
    let again = cluster.check(chunk).await.unwrap();
    assert!(
        again.changes.is_empty() && again.diff.is_empty(),
        "{:?}",
        again.changes
    );
    first
}

#[tokio::test]
async fn an_object_is_made_repaired_and_then_left_alone() {
    let (api, cluster) = cluster(false);
    let state = chunk("object", json!({"manifest": config_map(json!({"a": "1"}))}));
    let made = apply_and_check_again(&cluster, &state).await;
    assert!(
        made.changes["ConfigMap kube-system/c"]
            .as_str()
            .unwrap()
            .contains("+  a: \"1\"")
            || made.changes["ConfigMap kube-system/c"]
                .as_str()
                .unwrap()
                .contains("+  a: '1'"),
        "{made:?}"
    );

    api.put(config_map(json!({"a": "2", "foreign": "stays"})));
    apply_and_check_again(&cluster, &state).await;
    assert_eq!(
        api.object("ConfigMap", "c").unwrap()["data"],
        json!({"a": "1", "foreign": "stays"})
    );
    assert_eq!(api.writes.lock().unwrap().len(), 2, "checks write nothing");
}

#[tokio::test]
async fn whole_objects_lose_what_is_foreign() {
    let (api, cluster) = cluster(false);
    api.put(config_map(json!({"a": "1", "foreign": "goes"})));
    let state = chunk(
        "object",
        json!({"manifest": config_map(json!({"a": "1"})), "whole": true}),
    );
    api.conflicts.store(2, Ordering::SeqCst);
    apply_and_check_again(&cluster, &state).await;
    assert_eq!(
        api.object("ConfigMap", "c").unwrap()["data"],
        json!({"a": "1"})
    );
}

#[tokio::test]
async fn a_binding_to_another_role_is_made_anew() {
    let (api, cluster) = cluster(false);
    let binding = |role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
    };
    api.put(binding("wrong"));
    apply_and_check_again(
        &cluster,
        &chunk(
            "object",
            json!({"manifest": binding("right"), "whole": true}),
        ),
    )
    .await;
    assert_eq!(
        *api.writes.lock().unwrap(),
        ["delete ClusterRoleBinding b", "apply ClusterRoleBinding b"]
    );
}

#[tokio::test]
async fn the_members_of_a_manifest_are_told_apart() {
    let (api, cluster) = cluster(false);
    api.put(config_map(json!({"a": "1"})));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        config_map(json!({"a": "1"})),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}]});
    let made = apply_and_check_again(
        &cluster,
        &chunk("manifest", json!({"documents": [list, null]})),
    )
    .await;
    assert_eq!(made.changes.keys().collect::<Vec<_>>(), ["Namespace n"]);
}

#[tokio::test]
async fn a_manifest_may_bring_its_own_namespace_and_definition() {
    for test in [false, true] {
        let (api, cluster) = cluster(test);
        api.unknown_kinds.lock().unwrap().push("Widget".into());
        let documents = json!([
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}},
            {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "w"},
             "spec": {"group": "x.io", "names": {"kind": "Widget"}}},
            {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"}}]);
        let state = chunk("manifest", json!({"documents": documents}));
        let checked = cluster.check(&state).await.unwrap();
        assert_eq!(checked.changes.len(), 4);
        if test {
            cluster.predict(&state, &checked.diff).await;
        } else {
            api.unknown_kinds.lock().unwrap().clear();
            cluster.apply(&state, &checked.diff).await.unwrap();
        }
        assert!(cluster.check(&state).await.unwrap().changes.is_empty());
    }
}

#[tokio::test]
async fn every_object_that_the_server_refuses_is_named() {
    let (api, cluster) = cluster(false);
    api.put(config_map(json!({"a": "2"})));
    let widget =
        |name: &str| json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": name}});
    api.unknown_kinds.lock().unwrap().push("Widget".into());
    let mut documents = vec![config_map(json!({"a": "1"}))];
    documents.extend((0..20).map(|number| widget(&format!("w{number}"))));
    let state = chunk("manifest", json!({"documents": documents}));
    let told = cluster.check(&state).await.unwrap_err().text();
    for number in 0..20 {
        assert!(told.contains(&format!("Widget w{number}: ")), "{told}");
    }
    assert_eq!(told.lines().count(), 20, "{told}");
    assert!(api.writes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_api_that_does_not_answer_is_one_failure_of_a_manifest() {
    let api = Arc::new(FakeApi::default());
    let patience = Patience {
        total: Duration::from_millis(10),
        node: Duration::ZERO,
        pause: Duration::from_millis(1),
    };
    let cluster = KubernetesModules::new(Arc::clone(&api) as Arc<dyn Api>, false, patience);
    api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let named = |number: u32| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}")}});
    let documents: Vec<Value> = (0..20).map(named).collect();
    let state = chunk("manifest", json!({"documents": documents}));
    let told = cluster.check(&state).await.unwrap_err().text();
    assert!(told.starts_with("ConfigMap c0: "), "{told}");
    assert!(told.ends_with("\n12 more were not checked"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
}

/// The live object holds the secret until the state without it is applied.
#[tokio::test]
async fn a_secret_that_leaves_a_state_is_not_displayed() {
    let (api, cluster) = cluster(false);
    let state = |value: &str| {
        chunk(
            "object",
            json!({"manifest": config_map(json!({"a": value}))}),
        )
    };
    let mut with_secret = state("hidden-word");
    with_secret.sensitive = true;
    apply_and_check_again(&cluster, &with_secret).await;
    let conflict = FieldConflict {
        manager: "kubectl-edit".into(),
        field: ".data.hidden-word".into(),
    };
    let others = [("c".to_owned(), vec![conflict])];
    api.fields_of_others.lock().unwrap().extend(others);
    let absent = chunk(
        "absent",
        json!({"kind": "ConfigMap", "namespace": "kube-system", "object": "c"}),
    );
    for state in [state("plain"), absent] {
        let checked = cluster.check(&state).await.unwrap();
        let shown = format!("{:?} {}", checked.changes, checked.comment);
        assert!(
            !checked.diff.is_empty() && !shown.contains("hidden-word"),
            "{shown}"
        );
    }
    // The server removes the annotation with the value.
    api.put(config_map(json!({"a": "other"})));
    let checked = cluster.check(&state("plain")).await.unwrap();
    let diff = checked.changes["ConfigMap kube-system/c"].as_str().unwrap();
    assert!(diff.contains("plain"), "{diff}");
}

#[tokio::test]
async fn fields_that_are_taken_from_another_manager_are_named_with_it() {
    let (api, cluster) = cluster(true);
    api.put(config_map(json!({"a": "2"})));
    let conflict = FieldConflict {
        manager: "kubectl-edit".into(),
        field: ".data.a".into(),
    };
    api.fields_of_others
        .lock()
        .unwrap()
        .insert("c".into(), vec![conflict]);
    let mut state = chunk("object", json!({"manifest": config_map(json!({"a": "1"}))}));
    let comment = cluster.check(&state).await.unwrap().comment;
    assert!(
        comment.ends_with("; ConfigMap kube-system/c: takes .data.a from kubectl-edit"),
        "{comment}"
    );
    state.sensitive = true;
    let comment = cluster.check(&state).await.unwrap().comment;
    assert!(!comment.contains(".data.a"), "{comment}");
    state = chunk("object", json!({"manifest": config_map(json!({"a": "2"}))}));
    let comment = cluster.check(&state).await.unwrap().comment;
    assert!(!comment.contains("takes"), "{comment}");
}

/// A set is a guest in the namespace of another, and says what it would have changed.
#[tokio::test]
async fn a_namespace_that_stays_as_it_is_is_named() {
    let (api, cluster) = cluster(false);
    let namespace = |labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}});
    api.put(namespace(json!({"theirs": "x"})));
    let state = |labels: Value| {
        chunk(
            "manifest",
            json!({"set": "manifest-a", "documents": [namespace(labels)]}),
        )
    };
    let checked = cluster.check(&state(json!({"theirs": "x"}))).await.unwrap();
    assert_eq!(checked.comment, "The object is up to date");
    let checked = cluster.check(&state(json!({"ours": "y"}))).await.unwrap();
    assert!(checked.diff.is_empty());
    assert!(
        checked.comment.contains("Namespace n stays as it is")
            && checked.comment.contains("halite/set=manifest-a"),
        "{}",
        checked.comment
    );
}

#[tokio::test]
async fn absent_removes_once() {
    let (api, cluster) = cluster(false);
    api.put(config_map(json!({})));
    let state = chunk(
        "absent",
        json!({"kind": "ConfigMap", "namespace": "kube-system", "object": "c"}),
    );
    apply_and_check_again(&cluster, &state).await;
    assert_eq!(
        *api.writes.lock().unwrap(),
        ["delete ConfigMap kube-system/c"]
    );
}

#[tokio::test]
async fn node_labels_and_taints() {
    let (api, cluster) = cluster(false);
    api.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"theirs": "1"}}, "spec": {}}));
    let state = chunk(
        "node",
        json!({"object": "n1", "labels": {"ours": true},
        "taints": [{"key": "k", "effect": "NoSchedule"}]}),
    );
    apply_and_check_again(&cluster, &state).await;
    assert_eq!(
        api.object("Node", "n1").unwrap()["metadata"]["labels"],
        json!({"theirs": "1", "ours": "true"})
    );

    // A label that is removed from the document is removed from the node; labels of others stay,
    // even one that existed before and is only recorded by its own state.
    let recorded = |labels: Value| {
        chunk(
            "node",
            json!({"object": "n1", "record": "halite/labels", "labels": labels}),
        )
    };
    apply_and_check_again(&cluster, &recorded(json!({"a": "1", "b/c": "2"}))).await;
    apply_and_check_again(&cluster, &recorded(json!({"a": "1"}))).await;
    let metadata = || api.object("Node", "n1").unwrap()["metadata"].clone();
    assert_eq!(
        metadata()["labels"],
        json!({"theirs": "1", "ours": "true", "a": "1"})
    );
    assert_eq!(metadata()["annotations"], json!({"halite/labels": "a"}));
    apply_and_check_again(&cluster, &recorded(json!({}))).await;
    assert_eq!(metadata()["labels"], json!({"theirs": "1", "ours": "true"}));

    for (name, waited) in [("declared-only", false), ("n2", true)] {
        let absent = cluster
            .check(&chunk(
                "node",
                json!({"object": name, "labels": {"a": "b"}}),
            ))
            .await
            .unwrap();
        assert!(
            absent.changes.is_empty() && absent.comment.contains("has not joined yet"),
            "{}",
            absent.comment
        );
        assert_eq!(cluster.waited.load(Ordering::SeqCst), waited);
    }
}

#[tokio::test]
async fn a_run_waits_for_an_api_that_restarts_and_says_so_when_it_never_comes() {
    let (api, mut cluster) = cluster(false);
    // Only a failure waits for so long.
    cluster.patience.total = Duration::from_secs(60);
    api.silent_for.store(5, Ordering::SeqCst);
    let state = chunk("object", json!({"manifest": config_map(json!({"a": "1"}))}));
    apply_and_check_again(&cluster, &state).await;

    api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let ready = cluster
        .check(&chunk("api_ready", json!({"timeout": 0})))
        .await
        .unwrap_err();
    assert!(
        ready.text().contains("10.0.0.1:6443") && ready.text().contains("waited 0 s"),
        "{ready}"
    );
    assert!(
        cluster.silent.load(Ordering::SeqCst),
        "the run has already waited: the next state fails at once"
    );
    assert!(
        cluster
            .check(&state)
            .await
            .unwrap_err()
            .text()
            .contains("connection refused")
    );
}

#[tokio::test]
async fn a_plan_without_an_api_shows_everything_as_to_be_made_and_does_not_wait() {
    let (api, cluster) = cluster(true);
    api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let ready = cluster
        .check(&chunk("api_ready", json!({"timeout": 100})))
        .await
        .unwrap();
    assert!(
        ready.changes.is_empty() && ready.comment.contains("does not answer yet"),
        "{}",
        ready.comment
    );
    let object = cluster
        .check(&chunk(
            "object",
            json!({"manifest": config_map(json!({"a": "1"}))}),
        ))
        .await
        .unwrap();
    assert!(
        object.comment.contains("known after apply"),
        "{}",
        object.comment
    );
    assert_eq!(object.changes.len(), 1);
    let node = cluster
        .check(&chunk(
            "node",
            json!({"object": "n1", "labels": {"a": "b"}}),
        ))
        .await
        .unwrap();
    assert_eq!(node.changes.len(), 1);
    assert!(
        node.comment.contains("known after apply"),
        "{}",
        node.comment
    );
    assert!(
        cluster
            .check(&chunk("absent", json!({"kind": "Pod", "object": "p"})))
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

#[tokio::test]
async fn later_checks_of_a_plan_see_what_earlier_ones_would_make() {
    let (api, cluster) = cluster(true);
    api.unknown_kinds.lock().unwrap().push("Widget".into());
    let namespace = chunk(
        "object",
        json!({"manifest": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}}),
    );
    let definition = chunk(
        "object",
        json!({"manifest": {"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.x.io"},
        "spec": {"group": "x.io", "names": {"kind": "Widget"}}}}),
    );
    let inside = chunk(
        "object",
        json!({"manifest": {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"}}}),
    );
    assert!(
        cluster.check(&inside).await.is_err(),
        "nothing explains kind and namespace yet"
    );
    for state in [&namespace, &definition, &inside] {
        let checked = cluster.check(state).await.unwrap();
        assert_eq!(checked.changes.len(), 1);
        cluster.predict(state, &checked.diff).await;
        assert!(
            cluster.check(state).await.unwrap().changes.is_empty(),
            "predicted"
        );
    }
    assert!(api.writes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn secrets_are_not_shown_and_hosts_states_are_refused() {
    let (_, cluster) = cluster(false);
    let mut state = chunk(
        "object",
        json!({"manifest": {"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s", "namespace": "kube-system"}, "stringData": {"token": "canary"}}}),
    );
    assert!(!format!("{:?}", cluster.check(&state).await.unwrap().changes).contains("canary"));
    state.sensitive = true;
    assert!(!format!("{:?}", cluster.check(&state).await.unwrap().changes).contains("canary"));

    let mut file = chunk("managed", json!({}));
    file.state = "file".into();
    assert!(
        cluster
            .check(&file)
            .await
            .unwrap_err()
            .text()
            .contains("file.managed runs on hosts")
    );
    assert!(cluster.condition(&file, &json!("true")).await.is_err());
}
