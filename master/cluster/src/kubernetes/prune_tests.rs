use std::time::Duration;

use halite_states::engine::Modules as _;
use halite_states::low::{Controls, Position, Requisites};
use serde_json::json;

use super::super::fake::FakeApi;
use super::super::modules::Patience;
use super::*;

#[path = "data_loss_tests.rs"]
mod data_loss;

#[path = "prune_order_tests.rs"]
mod order;

#[path = "plan_tests.rs"]
mod plan;

fn chunk(id: &str, fun: &str, args: Value) -> Chunk {
    Chunk {
        state: "kubernetes".into(),
        fun: fun.into(),
        id: id.into(),
        name: id.into(),
        sls: "s".into(),
        source: Position::default(),
        args: args.as_object().unwrap().clone(),
        requisites: Requisites::default(),
        controls: Controls::default(),
        sensitive: false,
    }
}

fn set(name: &str, documents: Value) -> Chunk {
    chunk(
        name,
        "manifest",
        json!({"set": name, "documents": documents}),
    )
}

fn owned(sets: &[&str]) -> Chunk {
    chunk(
        "owned",
        "owned",
        json!({"sets": sets, "among": ["a", "b", "chart-*"]}),
    )
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let version = match kind {
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "StorageClass" => "storage.k8s.io/v1",
        "APIService" => "apiregistration.k8s.io/v1",
        "Widget" => "x.io/v1",
        _ => "v1",
    };
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if kind == "CustomResourceDefinition" {
        object["spec"] = json!({"group": "x.io", "names": {"kind": "Widget"}});
    }
    object
}

/// Each run has its own view of the cluster, as each job does.
fn run(api: &Arc<FakeApi>, test: bool) -> KubernetesModules {
    let patience = Patience {
        total: Duration::from_secs(2),
        node: Duration::from_millis(20),
        pause: Duration::from_millis(1),
    };
    KubernetesModules::new(
        Arc::clone(api) as Arc<dyn super::super::Api>,
        test,
        patience,
    )
}

async fn applied(api: &Arc<FakeApi>, states: &[Chunk]) -> Vec<String> {
    api.writes.lock().unwrap().clear();
    let cluster = run(api, false);
    for state in states {
        let checked = cluster
            .check(state)
            .await
            .unwrap_or_else(|failure| panic!("{}: {failure}", state.id));
        cluster.apply(state, &checked.diff).await.unwrap();
        let again = cluster.check(state).await.unwrap();
        assert!(
            again.diff.is_empty() && again.changes.is_empty(),
            "{}: {:?}",
            state.id,
            again.changes
        );
    }
    api.writes.lock().unwrap().clone()
}

async fn refusal(api: &Arc<FakeApi>, state: &Chunk) -> String {
    run(api, false).check(state).await.unwrap_err().text()
}

#[tokio::test]
async fn a_set_comes_is_kept_and_goes_without_a_trace() {
    let api = Arc::new(FakeApi::default());
    api.put(object("ConfigMap", "kube-system", "theirs"));
    let everything = || {
        api.objects
            .lock()
            .unwrap()
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let before = everything();
    let members = json!([
        object("APIService", "", "v1.x.io"),
        object("Service", "n", "a"),
        object("Namespace", "", "n"),
        object("ClusterRole", "", "a"),
        object("ConfigMap", "", "in-default"),
    ]);
    let states = [owned(&["a"]), set("a", members)];
    assert_eq!(
        applied(&api, &states).await,
        [
            "apply Namespace n",
            "apply Service n/a",
            "apply ClusterRole a",
            "apply ConfigMap in-default",
            "apply APIService v1.x.io",
        ]
    );
    assert_eq!(
        applied(&api, &states).await,
        Vec::<String>::new(),
        "a second apply changes nothing"
    );

    // A deleted object is created again; copies that controllers and people make of it are left
    // alone.
    let reference = ObjectRef::of(&object("Service", "n", "a")).unwrap();
    api.objects.lock().unwrap().remove(&reference);
    assert_eq!(applied(&api, &states).await, ["apply Service n/a"]);
    let labels = json!({"labels": {SET: "a"}, "annotations": {"halite/object": "Service n/a"}});
    let mut copied = object("Endpoints", "n", "a");
    copied["metadata"]["labels"] = labels["labels"].clone();
    copied["metadata"]["annotations"] = labels["annotations"].clone();
    api.put(copied.clone());
    assert_eq!(applied(&api, &states).await, Vec::<String>::new());

    assert_eq!(
        applied(&api, &[owned(&[])]).await,
        [
            "delete APIService v1.x.io",
            "delete ClusterRole a",
            "delete ConfigMap in-default",
            "delete Service n/a",
            "delete Namespace n",
        ]
    );
    api.objects
        .lock()
        .unwrap()
        .remove(&ObjectRef::of(&copied).unwrap());
    assert_eq!(everything(), before);
    assert_eq!(applied(&api, &[owned(&[])]).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_a_later_version_no_longer_has_goes_also_whole_kinds() {
    let api = Arc::new(FakeApi::default());
    let old = json!([
        object("Service", "kube-system", "a"),
        object("Role", "kube-system", "a")
    ]);
    let beside = set("b", json!([object("Role", "kube-system", "b")]));
    applied(&api, &[set("a", old), beside.clone()]).await;
    let new = set("a", json!([object("Service", "kube-system", "a")]));
    let plan = run(&api, true).check(&new).await.unwrap();
    assert_eq!(
        plan.changes.keys().collect::<Vec<_>>(),
        ["Role kube-system/a"]
    );
    assert!(
        plan.comment
            .contains("one object that `a` no longer names will be removed"),
        "{}",
        plan.comment
    );
    assert_eq!(
        applied(&api, &[new, beside]).await,
        ["delete Role kube-system/a"]
    );
}

#[tokio::test]
async fn an_object_that_somebody_else_made_is_not_taken_over() {
    let api = Arc::new(FakeApi::default());
    api.put(object("Service", "kube-system", "a"));
    let state = set("a", json!([object("Service", "kube-system", "a")]));
    let told = refusal(&api, &state).await;
    assert!(
        told.contains("Service kube-system/a") && told.contains("halite/set=a"),
        "{told}"
    );
    // Two sets contain the same object.
    let api = Arc::new(FakeApi::default());
    applied(&api, std::slice::from_ref(&state)).await;
    let mut other = state.clone();
    (other.id, other.args["set"]) = ("b".into(), json!("b"));
    assert!(
        refusal(&api, &other)
            .await
            .contains("belongs to the set `a`")
    );
    // Two states manage one set.
    let cluster = run(&api, false);
    cluster.check(&state).await.unwrap();
    other.args["set"] = json!("a");
    assert!(
        cluster
            .check(&other)
            .await
            .unwrap_err()
            .text()
            .contains("already manages the set `a`")
    );
}

#[tokio::test]
async fn a_namespace_is_shared_and_goes_with_the_last_that_lives_in_it() {
    let api = Arc::new(FakeApi::default());
    let chart = |name: &str| {
        set(
            name,
            json!([object("Namespace", "", "n"), object("Role", "n", name)]),
        )
    };
    let both = [owned(&["a", "b"]), chart("a"), chart("b")];
    let made = ["apply Namespace n", "apply Role n/a", "apply Role n/b"];
    assert_eq!(applied(&api, &both).await, made);
    assert_eq!(applied(&api, &both).await, Vec::<String>::new());
    let checked = run(&api, false).check(&owned(&["b"])).await.unwrap();
    assert!(
        checked
            .comment
            .contains("Namespace n stays: it contains the set `b`"),
        "{}",
        checked.comment
    );
    // The remaining set takes over the namespace.
    let one = [owned(&["b"]), chart("b")];
    assert_eq!(
        applied(&api, &one).await,
        ["delete Role n/a", "apply Namespace n"]
    );
    assert_eq!(applied(&api, &one).await, Vec::<String>::new());
    assert_eq!(
        applied(&api, &[owned(&[])]).await,
        ["delete Role n/b", "delete Namespace n"]
    );
    // An object of another owner is in the set's namespace.
    api.put(object("Namespace", "", "n"));
    assert_eq!(applied(&api, &one).await, ["apply Role n/b"]);
    assert_eq!(applied(&api, &[owned(&[])]).await, ["delete Role n/b"]);
}

/// The files of the operator's manifests: an object in another file, and a file with another name.
#[tokio::test]
async fn an_object_moves_between_manifests_without_being_deleted() {
    let api = Arc::new(FakeApi::default());
    let (namespace, claim) = (
        object("Namespace", "", "n"),
        object("PersistentVolumeClaim", "n", "data"),
    );
    let run_all = async |states: &[Chunk]| {
        api.writes.lock().unwrap().clear();
        let cluster = run(&api, false).running(states);
        for state in states {
            let checked = cluster.check(state).await.unwrap();
            cluster.apply(state, &checked.diff).await.unwrap();
        }
        api.writes.lock().unwrap().clone()
    };
    let owned = |sets: &[&str]| {
        chunk(
            "owned",
            "owned",
            json!({"sets": sets, "among": ["manifest-*"]}),
        )
    };
    let (a, b) = ("manifest-a", "manifest-b");
    let first = [
        owned(&[a, b]),
        set(a, json!([namespace, claim])),
        set(b, json!([])),
    ];
    run_all(&first).await;
    // To a later file, and back to an earlier one.
    for (of_a, of_b) in [
        (json!([namespace]), json!([claim])),
        (json!([namespace, claim]), json!([])),
    ] {
        let states = [owned(&[a, b]), set(a, of_a), set(b, of_b)];
        let moved = ["apply PersistentVolumeClaim n/data"];
        assert_eq!(run_all(&states).await, moved);
        assert_eq!(run_all(&states).await, [""; 0]);
    }
    // The file has another name.
    let renamed = [owned(&[b]), set(b, json!([namespace, claim]))];
    let taken = ["apply Namespace n", "apply PersistentVolumeClaim n/data"];
    assert_eq!(run_all(&renamed).await, taken);
    // Both files name it.
    let both = [
        owned(&[a, b]),
        set(b, json!([namespace, claim])),
        set(a, json!([claim])),
    ];
    let cluster = run(&api, false).running(&both);
    let told = cluster.check(&both[2]).await.unwrap_err().text();
    assert!(
        told.contains("already belongs to the set `manifest-b`"),
        "{told}"
    );
}

/// For example, when an operator's own flannel with the same names replaces Halite's.
#[tokio::test]
async fn a_set_of_the_same_names_follows_the_one_that_goes() {
    let api = Arc::new(FakeApi::default());
    let objects = json!([object("Namespace", "", "n"), object("Service", "n", "a")]);
    applied(&api, &[owned(&["a"]), set("a", objects.clone())]).await;
    let other = set("chart-a", objects);
    assert!(
        refusal(&api, &other)
            .await
            .contains("already belongs to the set `a`"),
        "it is not removed yet"
    );
    assert_eq!(
        applied(&api, &[owned(&["chart-a"]), other]).await,
        [
            "delete Service n/a",
            "delete Namespace n",
            "apply Namespace n",
            "apply Service n/a"
        ]
    );
}

#[tokio::test]
async fn what_says_that_it_stays_and_what_cannot_be_looked_at_is_told() {
    let api = Arc::new(FakeApi::default());
    let mut kept = object("CustomResourceDefinition", "", "widgets.x.io");
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    applied(
        &api,
        &[set("a", json!([kept, object("Role", "kube-system", "a")]))],
    )
    .await;
    api.put(object("Gadget", "", "broken"));
    api.broken_kinds.lock().unwrap().push("Gadget".into());
    let checked = run(&api, false).check(&owned(&[])).await.unwrap();
    assert_eq!(
        checked.changes.keys().collect::<Vec<_>>(),
        ["Role kube-system/a"]
    );
    for part in [
        "widgets.x.io stays",
        "cannot list Gadget of v1",
        "conversion webhook failed",
    ] {
        assert!(
            checked.comment.contains(part),
            "{part} in {}",
            checked.comment
        );
    }
}

#[tokio::test]
async fn sets_that_are_not_ours_are_not_judged() {
    let api = Arc::new(FakeApi::default());
    applied(
        &api,
        &[
            set("mine", json!([object("Role", "kube-system", "mine")])),
            set("chart-demo", json!([object("Role", "kube-system", "demo")])),
        ],
    )
    .await;
    let states = [
        owned(&["a"]),
        set("a", json!([object("Role", "kube-system", "a")])),
    ];
    assert_eq!(
        applied(&api, &states).await,
        ["delete Role kube-system/demo", "apply Role kube-system/a"]
    );
    // Nor may any other set take it over.
    let cluster = run(&api, false);
    cluster.check(&owned(&["b"])).await.unwrap();
    let taken = set("b", json!([object("Role", "kube-system", "mine")]));
    assert!(
        cluster
            .check(&taken)
            .await
            .unwrap_err()
            .text()
            .contains("belongs to the set `mine`")
    );
}

#[tokio::test]
async fn a_definition_that_is_not_served_is_named() {
    let api = Arc::new(FakeApi::default());
    let mut definition = object("CustomResourceDefinition", "", "widgets.x.io");
    let condition = json!({"type": "NamesAccepted", "status": "False", "message": "\"widgets\" is already in use"});
    definition["status"] = json!({"conditions": [condition]});
    let state = set(
        "a",
        json!([object("Widget", "kube-system", "w"), definition]),
    );
    let cluster = run(&api, false);
    let checked = cluster.check(&state).await.unwrap();
    let told = cluster
        .apply(&state, &checked.diff)
        .await
        .unwrap_err()
        .text();
    assert!(
        told.contains("widgets.x.io") && told.contains("already in use"),
        "{told}"
    );
    assert!(
        api.object("Widget", "w").is_none(),
        "later objects were not applied"
    );
}

#[tokio::test]
async fn a_plan_without_an_api_removes_nothing_and_a_plan_writes_nothing() {
    let api = Arc::new(FakeApi::default());
    applied(
        &api,
        &[set("a", json!([object("Role", "kube-system", "a")]))],
    )
    .await;
    api.writes.lock().unwrap().clear();
    let cluster = run(&api, true);
    let states = [
        owned(&[]),
        set("b", json!([object("Role", "kube-system", "a")])),
    ];
    for state in &states {
        let checked = cluster.check(state).await.unwrap();
        assert_eq!(
            checked.changes.keys().collect::<Vec<_>>(),
            ["Role kube-system/a"],
            "{}",
            state.id
        );
        cluster.predict(state, &checked.diff).await;
    }
    assert!(api.writes.lock().unwrap().is_empty());
    api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let checked = run(&api, true).check(&owned(&[])).await.unwrap();
    assert!(
        checked.changes.is_empty() && checked.comment.contains("known after apply"),
        "{}",
        checked.comment
    );
    assert!(run(&api, false).check(&owned(&[])).await.is_err());
}
