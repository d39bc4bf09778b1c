//! Leftovers of another pod network.

use super::*;

#[test]
fn another_pod_network_is_named_with_the_commands_that_remove_it() {
    let judged = |facts: &NodeFacts| {
        let found = run(facts)
            .into_iter()
            .find(|found| found.name == "other-pod-network");
        found.unwrap().verdict
    };
    let mut facts = good_added();
    facts.pod_network.interfaces = vec!["cni0".into(), "flannel.1".into()];
    let interfaces = "for link in cni0 flannel.1; do ip link delete $link; done";
    assert_eq!(
        judged(&facts),
        Verdict::bad(
            "another pod network left its interfaces cni0 flannel.1",
            format!("run: {interfaces}"),
        )
    );
    let path = "/etc/cni/net.d/87-other.conflist";
    facts.pod_network.files = vec![path.into()];
    let message =
        format!("another pod network left its configuration {path}, and interfaces cni0 flannel.1");
    let commands = format!("rm {path}; {interfaces}");
    assert_eq!(
        judged(&facts),
        Verdict::bad(&message, format!("run: {commands}"))
    );
    // It may be the operator's own, which exists before the cluster.
    facts.requirements.own_pod_network = true;
    assert_eq!(warned(&facts), ["other-pod-network"]);
    // A host of etcd alone has no pods.
    facts.requirements.own_pod_network = false;
    let ClusterPart::Added(added) = &mut facts.part else {
        unreachable!()
    };
    added.runs_containers = false;
    assert_eq!(judged(&facts), Verdict::Good);
}
