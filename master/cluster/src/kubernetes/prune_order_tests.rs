//! The order of removal, and the waits of a run.

use super::*;

#[tokio::test]
async fn a_run_waits_until_it_is_gone_and_says_what_holds_it() {
    let api = Arc::new(FakeApi::default());
    let mut held = object("ConfigMap", "kube-system", "held");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    applied(&api, &[set("a", json!([held]))]).await;
    api.stubborn.lock().unwrap().push("held".into());
    let cluster = run(&api, false);
    let checked = cluster.check(&owned(&[])).await.unwrap();
    let told = cluster
        .apply(&owned(&[]), &checked.diff)
        .await
        .unwrap_err()
        .text();
    assert!(
        told.contains("ConfigMap kube-system/held: it is still being removed")
            && told.contains("x.io/hold"),
        "{told}"
    );
    // An object that is already being deleted needs no second request, but is not gone either.
    let cluster = run(&api, false);
    let checked = cluster.check(&owned(&[])).await.unwrap();
    assert_eq!(
        checked.changes["ConfigMap kube-system/held"],
        "still being removed"
    );
    assert!(
        cluster
            .apply(&owned(&[]), &checked.diff)
            .await
            .unwrap_err()
            .text()
            .contains("x.io/hold")
    );
    assert_eq!(
        *api.writes.lock().unwrap(),
        [
            "apply ConfigMap kube-system/held",
            "delete ConfigMap kube-system/held"
        ]
    );
}

#[tokio::test]
async fn custom_resources_go_before_what_handles_them() {
    let api = Arc::new(FakeApi::default());
    let members = json!([
        object("Namespace", "", "n"),
        object("CustomResourceDefinition", "", "widgets.x.io"),
        object("Deployment", "n", "operator"),
        object("Widget", "n", "ours"),
    ]);
    applied(&api, &[set("a", members)]).await;
    api.writes.lock().unwrap().clear();
    api.stubborn.lock().unwrap().push("ours".into());
    for _ in 0..2 {
        let cluster = run(&api, false);
        let checked = cluster.check(&owned(&[])).await.unwrap();
        assert_eq!(checked.changes.len(), 4, "{:?}", checked.changes);
        let told = cluster
            .apply(&owned(&[]), &checked.diff)
            .await
            .unwrap_err()
            .text();
        assert!(
            told.contains("Widget n/ours") && told.contains("still being removed"),
            "{told}"
        );
        assert_eq!(
            *api.writes.lock().unwrap(),
            ["delete Widget n/ours"],
            "its controller is left alone"
        );
    }
    api.stubborn.lock().unwrap().clear();
    api.passing.lock().unwrap().insert("ours".into(), 3);
    assert_eq!(
        applied(&api, &[owned(&[])]).await,
        [
            "delete Deployment n/operator",
            "delete CustomResourceDefinition widgets.x.io",
            "delete Namespace n"
        ]
    );
}

#[tokio::test]
async fn what_custom_resources_own_ends_before_who_handles_it_goes() {
    let api = Arc::new(FakeApi::default());
    let members = json!([
        object("CustomResourceDefinition", "", "widgets.x.io"),
        object("Deployment", "kube-system", "operator"),
        object("Widget", "kube-system", "ours"),
    ]);
    applied(&api, &[set("a", members)]).await;
    let owned_by = |kind: &str, name: &str| {
        let mut child = object("Widget", "kube-system", "child");
        let owner = object(kind, "kube-system", name);
        child["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"], "kind": kind,
            "name": name, "uid": format!("{kind} kube-system/{name}")}]);
        child
    };
    // An object whose owner stays would be orphaned.
    api.put(object("Ingress", "kube-system", "theirs"));
    api.put(owned_by("Ingress", "theirs"));
    let told = refusal(&api, &owned(&[])).await;
    assert!(
        told.contains("CustomResourceDefinition widgets.x.io: Widget kube-system/child"),
        "{told}"
    );
    api.put(owned_by("Widget", "ours"));
    api.writes.lock().unwrap().clear();
    let cluster = run(&api, false);
    let checked = cluster.check(&owned(&[])).await.unwrap();
    let told = cluster
        .apply(&owned(&[]), &checked.diff)
        .await
        .unwrap_err()
        .text();
    assert!(
        told.contains("Widget kube-system/child: it is still being removed"),
        "{told}"
    );
    assert_eq!(
        *api.writes.lock().unwrap(),
        ["delete Widget kube-system/ours"],
        "its controller is left alone"
    );
    api.objects
        .lock()
        .unwrap()
        .retain(|reference, _| reference.name != "child");
    assert_eq!(
        applied(&api, &[owned(&[])]).await,
        [
            "delete Deployment kube-system/operator",
            "delete CustomResourceDefinition widgets.x.io"
        ]
    );
}

#[tokio::test]
async fn what_is_still_being_removed_is_not_as_wanted() {
    let api = Arc::new(FakeApi::default());
    let state = set(
        "a",
        json!([object("Namespace", "", "n"), object("Role", "n", "r")]),
    );
    applied(&api, std::slice::from_ref(&state)).await;
    for (kind, namespace, name) in [("Namespace", "", "n"), ("Role", "n", "r")] {
        let reference = ObjectRef::of(&object(kind, namespace, name)).unwrap();
        let mut objects = api.objects.lock().unwrap();
        let metadata = &mut objects.get_mut(&reference).unwrap()["metadata"];
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        metadata["finalizers"] = json!(["x.io/hold"]);
    }
    let told = refusal(&api, &state).await;
    for part in ["Namespace n: ", "still being removed", "x.io/hold"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    // A test run does not wait.
    let lone = set("b", json!([object("Namespace", "", "n")]));
    let plan = run(&api, true).check(&lone).await.unwrap();
    assert_eq!(plan.changes.keys().collect::<Vec<_>>(), ["Namespace n"]);
    api.passing
        .lock()
        .unwrap()
        .extend([("n".to_owned(), 3), ("r".to_owned(), 0)]);
    let cluster = run(&api, false);
    let checked = cluster.check(&state).await.unwrap();
    api.passing.lock().unwrap().clear();
    api.writes.lock().unwrap().clear();
    cluster.apply(&state, &checked.diff).await.unwrap();
    assert_eq!(
        *api.writes.lock().unwrap(),
        ["apply Namespace n", "apply Role n/r"]
    );
}
