//! Kubelets with another version than their host's bundle has, before an upgrade.

use halite_api::UpgradeCheck;
use serde_json::{Value, json};

use super::back_tests::connected;
use super::fixture::ready_node;
use super::upgrade_fixture::{options, plan, site};

/// The worker's node with a kubelet.
pub(super) fn with_kubelet(version: &str) -> Value {
    let mut node = ready_node("worker-1");
    node["status"]["nodeInfo"] = json!({"kubeletVersion": version});
    node
}

#[test]
fn a_kubelet_that_differs_from_its_bundle_is_a_finding() {
    let site = site();
    let life = site.live();
    connected(&life);
    let found = |version: &str| {
        site.api.put(with_kubelet(version));
        let shown = plan(&life, &options()).findings.into_iter();
        let own = shown.filter(|finding| finding.check == UpgradeCheck::Kubelets);
        own.map(|finding| (finding.severity.to_string(), finding.message))
            .collect::<Vec<_>>()
    };
    let start =
        |version: &str| format!("the kubelet of worker-1 is {version}, and its bundle has v1.36.3");
    assert_eq!(found("v1.36.3"), []);
    for version in ["v1.36.1", "v1.36.9", "v1.33.0"] {
        assert_eq!(found(version), [("warning".to_owned(), start(version))]);
    }
    let newer = format!(
        "{}; it must not be newer than an API server (v1.36.3)",
        start("v1.37.0")
    );
    assert_eq!(found("v1.37.0"), [("error".to_owned(), newer)]);
    let older = format!(
        "{}; the API servers of v1.36.3 support kubelets of at most 3 earlier minor versions",
        start("v1.32.9")
    );
    assert_eq!(found("v1.32.9"), [("error".to_owned(), older)]);
    life.kill();
}
