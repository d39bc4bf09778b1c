//! The caller's view of the members differs from the truth: the gate errs only on the safe side.

use std::time::Duration;

use halite_etcd::fake::{FakeCluster, FakePace, host};
use halite_etcd::{AloneError, ChangeError, Changes, Gate, Overview};
use proptest::prelude::*;

use super::support::{finish, run, run_with};

fn gate(cluster: &FakeCluster, host: &str) -> Result<Gate, ChangeError> {
    run(cluster, async |changes| changes.allow_missing(host).await)
}

/// Three serving members in a constant state: none catches up.
fn three() -> FakeCluster {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.set_rate(0);
    cluster.write(50_000);
    cluster
}

#[test]
fn the_gate_waits_for_lagging_members_and_never_repairs_them_in_parallel() {
    let cluster = three();
    cluster.lag("b", 4000);
    cluster.lag("c", 4500);
    for host in ["a", "b", "c"] {
        let text = gate(&cluster, host).unwrap_err().to_string();
        for part in [
            &*format!("cannot continue with {host}: 1 of 3 voting members of etcd serve"),
            "waited 60 s: etcd has a quorum",
            "b lacks 4000 of 50100 entries; c lacks 4500 of 50100 entries",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
    // They catch up.
    cluster.set_rate(1000);
    let allowed = Gate::Allowed { all: 3, serving: 3 };
    assert_eq!(gate(&cluster, "a"), Ok(allowed));
}

#[test]
fn members_that_only_the_caller_cannot_reach_do_not_mean_a_lost_quorum() {
    let cluster = three();
    cluster.hide("b");
    cluster.hide("c");
    for host in ["a", "b", "c"] {
        let text = gate(&cluster, host).unwrap_err().to_string();
        assert!(
            text.contains("etcd has a quorum") && text.contains("b: ") && text.contains("c: "),
            "{text}"
        );
    }
    // They are really lost: the cluster is repaired after a while.
    cluster.stop("b");
    cluster.stop("c");
    let pace = FakePace::new(&cluster);
    let gate = run_with(&cluster, &pace, async |changes| {
        changes.allow_missing("a").await
    });
    assert!(matches!(gate, Ok(Gate::Repair { .. })), "{gate:?}");
    assert_eq!(pace.reports().len(), 15, "{:?}", pace.reports());
}

/// It follows the former leader forever: it never calls an election.
#[test]
fn a_learner_does_not_prove_a_quorum() {
    let cluster = three();
    run(&cluster, async |changes| {
        changes.add_learner(&host("d"), true).await
    })
    .unwrap();
    cluster.start(&host("d"));
    for name in ["a", "b", "c"] {
        cluster.stop(name);
    }
    let gate = gate(&cluster, "a");
    assert!(matches!(gate, Ok(Gate::Repair { .. })), "{gate:?}");
}

#[test]
fn planned_work_is_refused_without_a_quorum_and_says_what_helps() {
    let cluster = three();
    cluster.stop("b");
    cluster.stop("c");
    let refused = gate(&cluster, "a").unwrap().planned("a");
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("cannot continue with a: etcd has no quorum: a follows no leader; b: "),
        "{text}"
    );
    assert!(text.contains("; switch on the hosts"), "{text}");
    cluster.start(&host("b"));
    cluster.start(&host("c"));
    cluster.set_rate(1000);
    let allowed = Gate::Allowed { all: 3, serving: 3 };
    assert_eq!(gate(&cluster, "a").unwrap().planned("a"), Ok(allowed));
}

/// It would lose the others' data, and they would continue as another cluster.
#[test]
fn no_cluster_of_one_is_made_of_a_member_that_follows_a_leader() {
    let cluster = three();
    cluster.hide("b");
    cluster.hide("c");
    let pace = FakePace::new(&cluster);
    let refused = run_with(&cluster, &pace, async |changes| {
        changes.may_be_alone("a").await
    });
    assert!(
        matches!(refused, Err(AloneError::Quorum { .. })),
        "{refused:?}"
    );
    assert_eq!(pace.reports().len(), 15, "{:?}", pace.reports());
}

/// The true state of a member, and what the caller sees of it.
#[derive(Debug, Clone, Copy)]
struct Truth {
    runs: bool,
    hidden: bool,
    lags: bool,
}

prop_compose! {
    fn truth()(runs: bool, hidden: bool, lags: bool) -> Truth {
        Truth { runs, hidden, lags }
    }
}

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

proptest! {
    #[test]
    fn the_gate_takes_no_quorum_away_whatever_is_seen(
        members in proptest::collection::vec(truth(), 3..8),
        which in 0usize..7,
    ) {
        let names = &NAMES[..members.len()];
        let which = which % members.len();
        let cluster = FakeCluster::new(names);
        cluster.set_rate(0);
        cluster.write(50_000);
        for (name, member) in names.iter().zip(&members) {
            if member.lags {
                cluster.lag(name, 2000);
            }
            if member.hidden {
                cluster.hide(name);
            }
            if !member.runs {
                cluster.stop(name);
            }
        }
        let majority = |running: usize| 2 * running > members.len();
        let running = members.iter().filter(|member| member.runs).count();
        let others = running - usize::from(members[which].runs);
        let answers = members.iter().any(|member| member.runs && !member.hidden);
        let gate = {
            let pace = FakePace::new(&cluster);
            let changes = Changes {
                members: &cluster,
                pace: &pace,
                prefer: None,
                limit: Duration::from_secs(60),
            };
            finish(Box::pin(changes.allow_missing(names[which]))).unwrap()
        };
        match gate {
            Ok(Gate::Allowed { .. }) => prop_assert!(majority(others)),
            // Nothing is lost by it, or nothing at all can be seen.
            Ok(Gate::Repair { .. }) => prop_assert!(!majority(running) || !answers),
            Ok(Gate::TooFew) => prop_assert!(false, "three or more"),
            Err(_) => prop_assert!(majority(running) && answers),
        }
        if answers {
            let seen = finish(Box::pin(Overview::take(&cluster))).unwrap().unwrap();
            prop_assert_eq!(seen.has_quorum, majority(running));
        }
    }
}
