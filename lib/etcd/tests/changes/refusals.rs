//! The refusals and the waits of the changes.

use halite_etcd::fake::{FakeCluster, FakePace, host};
use halite_etcd::{ChangeError, Changes, Gate, MemberHost, Removal};

use super::support::{run, run_with};

fn removal(name: &str, dead: bool) -> Removal {
    Removal {
        name: name.to_owned(),
        peer_url: Some(host(name).peer_url),
        dead,
    }
}

fn remove(cluster: &FakeCluster, name: &str, dead: bool) -> Result<(), ChangeError> {
    run(cluster, async |changes| {
        changes.remove(&removal(name, dead)).await
    })
}

#[test]
fn hosts_join_one_after_the_other_and_get_their_votes() {
    let cluster = FakeCluster::new(&["a"]);
    for name in ["b", "c", "d", "e"] {
        let host = host(name);
        let joined = run(&cluster, async |changes| {
            changes.add_learner(&host, true).await
        })
        .unwrap();
        assert!(!joined.has_started && !joined.votes);
        assert!(
            joined
                .initial_cluster
                .ends_with(&format!("{name}=https://{name}:2380")),
            "{joined:?}"
        );
        cluster.start(&host);
        run(&cluster, async |changes| changes.promote(&host).await).unwrap();
    }
    assert!(cluster.summary().iter().all(|(.., votes)| *votes));
    assert_eq!(cluster.summary().len(), 5);
}

#[test]
fn a_member_that_never_started_is_used_again_and_one_that_ran_needs_its_data() {
    let cluster = FakeCluster::new(&["a"]);
    let b = host("b");
    let add = |bare| {
        run(&cluster, async |changes| {
            changes.add_learner(&b, bare).await
        })
    };
    let first = add(true).unwrap();
    assert_eq!(add(true).unwrap(), first);
    cluster.start(&b);
    assert!(add(false).unwrap().has_started);
    assert_eq!(add(true), Err(ChangeError::DataLost { name: "b".into() }));
}

#[test]
fn a_name_or_an_address_of_another_member_is_refused() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    let add = |name: &str, peer_url: &str| {
        let (name, peer_url) = (name.to_owned(), peer_url.to_owned());
        let host = MemberHost { name, peer_url };
        run(&cluster, async |changes| {
            changes.add_learner(&host, true).await
        })
        .unwrap_err()
    };
    let taken = add("b", "https://d:2380").to_string();
    assert!(
        taken.contains("a member of that name is at https://b:2380"),
        "{taken}"
    );
    let taken = add("d", "https://b:2380").to_string();
    assert!(
        taken.contains("it is the address of the member b"),
        "{taken}"
    );
    assert!(cluster.changes().is_empty());
}

#[test]
fn a_second_learner_waits_for_the_first_and_names_it() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    run(&cluster, async |changes| {
        changes.add_learner(&host("d"), true).await
    })
    .unwrap();
    let error = run(&cluster, async |changes| {
        changes.add_learner(&host("e"), true).await
    });
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("waited 60 s until etcd takes e as a learner: the learner"),
        "{text}"
    );
    assert!(text.contains("https://d:2380 comes first"), "{text}");
    assert!(text.contains("`ctl node remove`"), "{text}");
}

#[test]
fn a_promotion_waits_for_a_lagging_learner_and_reports_its_progress() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    run(&cluster, async |changes| {
        changes.add_learner(&host("d"), true).await
    })
    .unwrap();
    let pace = FakePace::new(&cluster);
    cluster.write(9900);
    cluster.start(&host("d"));
    run_with(&cluster, &pace, async |changes| {
        changes.promote(&host("d")).await
    })
    .unwrap();
    let reports = pace.reports();
    assert_eq!(
        reports[1],
        "waiting until d is in sync and has its vote, for 1 s of 60 s: it has 1000 of 10000 entries"
    );
    assert_eq!(cluster.changes().last().unwrap(), "promote d");
}

#[test]
fn a_learner_that_never_syncs_is_removed() {
    for started in [false, true] {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        let before = cluster.summary();
        run(&cluster, async |changes| {
            changes.add_learner(&host("d"), true).await
        })
        .unwrap();
        cluster.set_rate(0);
        cluster.write(100_000);
        if started {
            cluster.start(&host("d"));
        }
        let error = run(&cluster, async |changes| changes.promote(&host("d")).await).unwrap_err();
        let text = error.to_string();
        let cause = if started {
            "it has 0 of 100100 entries"
        } else {
            "it has not started"
        };
        assert!(text.contains(cause), "{text}");
        assert!(
            text.contains("it was removed and the members are unchanged"),
            "{text}"
        );
        assert!(text.ends_with("run the same command again"), "{text}");
        assert_eq!(cluster.summary(), before);
    }
}

#[test]
fn a_vote_is_given_while_one_of_three_is_missing() {
    // Of four votes three are needed: a, b and the new one.
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    run(&cluster, async |changes| {
        changes.add_learner(&host("d"), true).await
    })
    .unwrap();
    cluster.start(&host("d"));
    cluster.stop("c");
    run(&cluster, async |changes| changes.promote(&host("d")).await).unwrap();
    assert_eq!(cluster.changes().last().unwrap(), "promote d");
}

#[test]
fn the_leader_moves_before_its_member_is_removed() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    remove(&cluster, "a", false).unwrap();
    assert_eq!(cluster.changes().len(), 2);
    assert!(
        cluster.changes()[0].starts_with("lead "),
        "{:?}",
        cluster.changes()
    );
    assert_eq!(cluster.changes()[1], "remove a");
    // It is already gone: nothing to do.
    remove(&cluster, "a", false).unwrap();
    assert_eq!(cluster.changes().len(), 2);
}

/// Its host ended before its etcd had published a name. No other host could join after it.
#[test]
fn a_learner_that_never_started_is_removed_by_the_address_of_its_host() {
    for dead in [false, true] {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        let before = cluster.summary();
        let add = |name| {
            run(&cluster, async |changes| {
                changes.add_learner(&host(name), true).await
            })
        };
        add("d").unwrap();
        remove(&cluster, "d", dead).unwrap();
        assert_eq!(cluster.summary(), before);
        add("e").unwrap();
    }
}

/// A member with a name is removed by it: another host may have its address by now.
#[test]
fn a_member_of_another_name_at_the_address_stays() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    let removal = Removal {
        peer_url: Some(host("b").peer_url),
        ..removal("d", true)
    };
    run(&cluster, async |changes| changes.remove(&removal).await).unwrap();
    assert!(cluster.changes().is_empty());
}

#[test]
fn the_last_voting_member_and_a_quorum_are_never_removed() {
    let cluster = FakeCluster::new(&["a"]);
    let error = remove(&cluster, "a", true).unwrap_err();
    assert_eq!(error, ChangeError::LastVoter { name: "a".into() });

    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.stop("c");
    for name in ["a", "b"] {
        let text = remove(&cluster, name, false).unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "cannot remove {name}: 2 of 3 voting members serve, and 2 of the 2 that remain would be needed; bring the others back first"
            )
        );
    }
    let text = remove(&cluster, "c", false).unwrap_err().to_string();
    assert!(
        text.ends_with("if its host is gone for good, remove it as dead"),
        "{text}"
    );
    remove(&cluster, "c", true).unwrap();
    assert_eq!(cluster.summary().len(), 2);

    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.stop("b");
    cluster.stop("c");
    let error = remove(&cluster, "c", true).unwrap_err();
    assert!(matches!(error, ChangeError::QuorumLost { .. }), "{error}");
    assert!(cluster.changes().is_empty());
}

#[test]
fn the_gate_waits_for_the_others_and_not_for_a_cluster_without_quorum() {
    let gate = |cluster: &FakeCluster, host: &str| {
        run(cluster, async |changes| changes.allow_missing(host).await)
    };
    let three = FakeCluster::new(&["a", "b", "c"]);
    let allowed = |serving| Gate::Allowed { all: 3, serving };
    assert_eq!(gate(&three, "a"), Ok(allowed(3)));
    // A host without a member is not missed.
    assert_eq!(gate(&three, "worker-1"), Ok(allowed(3)));
    three.stop("c");
    let text = gate(&three, "a").unwrap_err().to_string();
    assert!(
        text.starts_with("cannot continue with a: 2 of 3 voting members of etcd serve"),
        "{text}"
    );
    assert!(text.contains("c: "), "{text}");
    // The member that is already missing costs nothing.
    assert_eq!(gate(&three, "c"), Ok(allowed(2)));
    three.stop("b");
    let repair = gate(&three, "a").unwrap();
    assert!(matches!(repair, Gate::Repair { .. }), "{repair}");
    three.stop("a");
    let text = gate(&three, "a").unwrap().to_string();
    assert_eq!(
        text,
        "etcd has no quorum and is repaired without waiting: no member answers"
    );
    assert_eq!(gate(&FakeCluster::new(&["a", "b"]), "a"), Ok(Gate::TooFew));
}

#[test]
fn a_member_that_catches_up_does_not_count_yet() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.stop("c");
    cluster.write(50_000);
    cluster.start(&host("c"));
    let pace = FakePace::new(&cluster);
    let gate = run_with(&cluster, &pace, async |changes| {
        changes.allow_missing("a").await
    });
    assert_eq!(gate, Ok(Gate::Allowed { all: 3, serving: 3 }));
    assert!(
        pace.reports()[0].contains("c lacks 50000 of 50100 entries"),
        "{:?}",
        pace.reports()
    );
    assert!(pace.reports().len() > 40);
}

#[test]
fn a_leader_stays_where_no_other_member_can_lead() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    let moved = |cluster: &FakeCluster, name: &'static str| {
        run(cluster, async |changes| changes.move_leader_off(name).await).unwrap()
    };
    assert_eq!(moved(&cluster, "b"), None, "it does not lead");
    assert_eq!(moved(&cluster, "absent"), None);
    let leader = moved(&cluster, "a").unwrap();
    assert_eq!(cluster.leader().as_deref(), Some(&*leader));
    assert_ne!(leader, "a");
    let alone = FakeCluster::new(&["a"]);
    assert_eq!(moved(&alone, "a"), None);
    assert_eq!(alone.leader().as_deref(), Some("a"));
}

#[test]
fn the_preferred_member_leads_next_if_it_votes_and_serves() {
    let cluster = |stopped: Option<&str>| {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        let learner = host("l");
        run(&cluster, async |changes| {
            changes.add_learner(&learner, true).await
        })
        .unwrap();
        cluster.start(&learner);
        if let Some(name) = stopped {
            cluster.stop(name);
        }
        cluster.write(5000);
        cluster
    };
    let next = |cluster: &FakeCluster, prefer: &'static str| {
        let moved = run(cluster, async |changes| {
            let changes = Changes {
                prefer: Some(prefer),
                ..changes
            };
            changes.move_leader_off("a").await
        });
        assert_eq!(moved.unwrap(), cluster.leader());
        cluster.leader().unwrap()
    };
    for name in ["b", "c"] {
        assert_eq!(next(&cluster(None), name), name);
    }
    // It does not run, lacks entries, has no vote, is not a member, or is the one that will be
    // missing.
    assert_eq!(next(&cluster(Some("b")), "b"), "c");
    let behind = cluster(Some("b"));
    behind.start(&host("b"));
    assert_eq!(next(&behind, "b"), "c");
    for name in ["l", "absent", "a"] {
        assert_eq!(next(&cluster(Some("b")), name), "c", "{name}");
    }

    let leaves = cluster(None);
    let gone = run(&leaves, async |changes| {
        let changes = Changes {
            prefer: Some("b"),
            ..changes
        };
        changes.remove(&removal("a", false)).await
    });
    gone.unwrap();
    assert_eq!(leaves.changes()[1..], ["lead b", "remove a"]);
}
