//! Plans of sets that do not exist yet.

use super::*;

/// A plan has no live objects of new files; those that it would apply count.
#[tokio::test]
async fn a_plan_names_an_object_that_two_new_files_name() {
    let api = Arc::new(FakeApi::default());
    let base = object("ConfigMap", "kube-system", "base");
    let service = object("Service", "n", "a");
    let namespace = object("Namespace", "", "n");
    let states = [
        chunk("base", "object", json!({"manifest": base})),
        set("manifest-a", json!([namespace, service])),
        set("manifest-b", json!([namespace, service, base])),
    ];
    for test in [true, false] {
        let cluster = run(&api, test).running(&states);
        for state in &states[..2] {
            let checked = cluster.check(state).await.unwrap();
            if test {
                cluster.predict(state, &checked.diff).await;
            } else {
                cluster.apply(state, &checked.diff).await.unwrap();
            }
        }
        let told = cluster.check(&states[2]).await.unwrap_err().text();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(
            lines[0].starts_with("Service n/a: it already belongs to the set `manifest-a`"),
            "{told}"
        );
        assert!(
            lines[1].starts_with("ConfigMap kube-system/base: Halite itself applies it"),
            "{told}"
        );
    }
}
