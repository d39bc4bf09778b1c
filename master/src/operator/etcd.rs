//! Lost data of etcd members in `ctl status`. Minions report it with their grains.

use std::collections::BTreeMap;

use halite_host_reports::etcd::{DATA, GRAIN, LOG, ReportedMember};
use halite_proto::ids::MinionId;
use halite_store::Facts;

use super::reports;

/// The problems of hosts whose member has run and no longer has its log.
pub(super) fn problems(facts: &BTreeMap<MinionId, Facts>) -> Vec<String> {
    reports::of_kind(facts, GRAIN)
        .filter(|(_, member): &(_, ReportedMember)| member.is_lost())
        .map(|(host, _)| problem(host))
        .collect()
}

fn problem(host: &MinionId) -> String {
    format!(
        "the etcd member on {host} has lost its data: {DATA}/{LOG} has no log; it is not started empty. `ctl highstate {host}` \
         changes nothing there, and shows how to recover it"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::reports::facts;
    use super::*;

    #[test]
    fn a_member_without_its_log_is_a_problem() {
        let member = |recorded: bool, log: bool| json!({"etcd": {"member": null, "recorded": recorded, "log": log}});
        let known = BTreeMap::from([
            facts("a", &json!({})),
            facts("b", &member(false, true)),
            facts("c", &member(true, true)),
            facts("d", &member(true, false)),
            facts("e", &json!({"etcd": "another's"})),
        ]);
        let problems = problems(&known);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0]
                .contains("the etcd member on d has lost its data: /var/lib/etcd/member/wal"),
            "{problems:?}"
        );
    }
}
