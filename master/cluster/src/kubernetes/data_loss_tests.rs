//! Objects that are not removed because data would be lost with them.

use super::*;

/// A claim that a controller created for an owner; in the fake API the uid is the reference's text.
fn claim_of(namespace: &str, name: &str, owner: &Value, uid: &str) -> Value {
    let mut claim = object("PersistentVolumeClaim", namespace, name);
    claim["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"],
        "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": uid}]);
    claim
}

#[tokio::test]
async fn nothing_is_removed_that_would_take_data_with_it() {
    let api = Arc::new(FakeApi::default());
    let members = json!([
        object("Namespace", "", "n"),
        object("CustomResourceDefinition", "", "widgets.x.io"),
        object("Widget", "n", "ours"),
        object("StorageClass", "", "fast"),
        object("PersistentVolumeClaim", "n", "ours"),
        object("Role", "n", "ours"),
    ]);
    applied(&api, &[set("a", members)]).await;
    let mut owned_pod = object("Pod", "n", "of-a-deployment");
    owned_pod["metadata"]["ownerReferences"] = json!([{"name": "a"}]);
    let mut lease = object("Lease", "n", "leader");
    lease["apiVersion"] = json!("coordination.k8s.io/v1");
    let mut claim = object("PersistentVolumeClaim", "default", "theirs");
    claim["spec"] = json!({"storageClassName": "fast"});
    let volume = |name: &str, claim: &str| {
        let mut volume = object("PersistentVolume", "", name);
        volume["spec"] = json!({"storageClassName": "fast", "claimRef": {"namespace": "default", "name": claim}});
        api.put(volume);
    };
    volume("claimed", "theirs");
    volume("released", "gone");
    for foreign in [
        owned_pod,
        claim,
        object("ConfigMap", "n", "kube-root-ca.crt"),
        object("ServiceAccount", "n", "default"),
        lease,
        object("Pod", "n", "theirs"),
        object("Widget", "default", "theirs"),
    ] {
        api.put(foreign);
    }
    api.writes.lock().unwrap().clear();
    let told = refusal(&api, &owned(&[])).await;
    for line in [
        "nothing was removed",
        "\n  PersistentVolumeClaim n/ours: the data in it",
        "\n  StorageClass fast: PersistentVolumeClaim default/theirs, PersistentVolume released\n",
        "\n  CustomResourceDefinition widgets.x.io: Widget default/theirs\n",
        "\n  Namespace n: Pod n/theirs\n",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    assert!(
        !told.contains("claimed") && !told.contains("of-a-deployment"),
        "{told}"
    );
    assert!(api.writes.lock().unwrap().is_empty(), "all or nothing");
    // The same if a set only gets smaller.
    assert!(
        refusal(&api, &set("a", json!([])))
            .await
            .contains("StorageClass fast")
    );
}

#[tokio::test]
async fn claims_keep_the_owner_that_would_take_them() {
    let api = Arc::new(FakeApi::default());
    let database = object("StatefulSet", "kube-system", "db");
    let widget = object("Widget", "kube-system", "ours");
    let definition = object("CustomResourceDefinition", "", "widgets.x.io");
    applied(
        &api,
        &[set(
            "a",
            json!([definition, database.clone(), widget.clone()]),
        )],
    )
    .await;
    let mut pod = object("Pod", "kube-system", "db-0");
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "StatefulSet", "name": "db",
        "uid": "StatefulSet kube-system/db"}]);
    pod["spec"] = json!({"volumes": [{"name": "scratch", "ephemeral": {}}]});
    let mut child = object("Widget", "kube-system", "child");
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "x.io/v1", "kind": "Widget", "name": "ours",
        "uid": "Widget kube-system/ours"}]);
    // Of a version that is no longer served only the name is known.
    let mut former = widget.clone();
    former["apiVersion"] = json!("x.io/v1beta1");
    api.unknown_kinds
        .lock()
        .unwrap()
        .push("x.io/v1beta1".into());
    for foreign in [
        claim_of(
            "kube-system",
            "data-db-0",
            &database,
            "StatefulSet kube-system/db",
        ),
        claim_of("kube-system", "scaled-db-1", &pod, "Pod kube-system/db-0"),
        claim_of("kube-system", "main-1", &widget, "Widget kube-system/ours"),
        claim_of("kube-system", "main-2", &child, "Widget kube-system/child"),
        claim_of("kube-system", "main-3", &former, "Widget kube-system/ours"),
        // A pod's scratch space, and one whose owner was a different object of the same name.
        claim_of("kube-system", "db-0-scratch", &pod, "Pod kube-system/db-0"),
        claim_of("kube-system", "former", &database, "another"),
        pod,
        child,
    ] {
        api.put(foreign);
    }
    api.writes.lock().unwrap().clear();
    let told = refusal(&api, &owned(&[])).await;
    for line in [
        "\n  StatefulSet kube-system/db: PersistentVolumeClaim kube-system/data-db-0, PersistentVolumeClaim kube-system/scaled-db-1\n",
        "\n  Widget kube-system/ours: PersistentVolumeClaim kube-system/main-1, PersistentVolumeClaim kube-system/main-3\n",
        "\n  CustomResourceDefinition widgets.x.io: PersistentVolumeClaim kube-system/main-2\n",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    assert!(
        !told.contains("scratch") && !told.contains("former"),
        "{told}"
    );
    assert!(
        !told.contains("Widget kube-system/child"),
        "it goes with its owner: {told}"
    );
    // The same if the set only gets smaller.
    assert!(
        refusal(&api, &set("a", json!([])))
            .await
            .contains("data-db-0")
    );
    assert!(api.writes.lock().unwrap().is_empty(), "all or nothing");
}

#[tokio::test]
async fn a_claim_with_an_owner_keeps_its_namespace() {
    let api = Arc::new(FakeApi::default());
    applied(&api, &[set("a", json!([object("Namespace", "", "n")]))]).await;
    api.put(claim_of(
        "n",
        "data",
        &object("Widget", "n", "theirs"),
        "unknown",
    ));
    let told = refusal(&api, &owned(&[])).await;
    assert!(
        told.contains("Namespace n: PersistentVolumeClaim n/data"),
        "{told}"
    );
}

#[tokio::test]
async fn a_definition_whose_objects_cannot_be_seen_stays() {
    let api = Arc::new(FakeApi::default());
    let definition = object("CustomResourceDefinition", "", "widgets.x.io");
    applied(&api, &[set("a", json!([definition]))]).await;
    api.put(object("Widget", "kube-system", "theirs"));
    api.unknown_kinds.lock().unwrap().push("Widget".into());
    let told = refusal(&api, &owned(&[])).await;
    for part in [
        "CustomResourceDefinition widgets.x.io: ",
        "does not serve Widget of x.io",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    // A kind that was never served has no objects.
    let reference = ObjectRef::of(&object("CustomResourceDefinition", "", "widgets.x.io")).unwrap();
    api.objects.lock().unwrap().get_mut(&reference).unwrap()["status"] =
        json!({"conditions": [{"type": "Established", "status": "False"}]});
    assert_eq!(
        applied(&api, &[owned(&[])]).await,
        ["delete CustomResourceDefinition widgets.x.io"]
    );
}

#[tokio::test]
async fn what_only_shares_its_kinds_name_with_kubernetes_is_counted() {
    let api = Arc::new(FakeApi::default());
    applied(&api, &[set("a", json!([object("Namespace", "", "n")]))]).await;
    let of = |group: &str, kind: &str| {
        let mut object = object(kind, "n", &format!("{kind}-{group}").to_lowercase());
        object["apiVersion"] = json!(if group.is_empty() {
            "v1".into()
        } else {
            format!("{group}/v1")
        });
        object
    };
    for (group, kind) in [
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("", "Endpoints"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("coordination.k8s.io", "Lease"),
    ] {
        api.put(of(group, kind));
    }
    assert!(run(&api, false).check(&owned(&[])).await.is_ok());
    for (group, kind) in [("x.io", "Event"), ("x.io", "Lease")] {
        api.put(of(group, kind));
    }
    let told = refusal(&api, &owned(&[])).await;
    assert!(
        told.contains("Namespace n: Event n/event-x.io, Lease n/lease-x.io\n"),
        "{told}"
    );
}
