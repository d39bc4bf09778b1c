use super::*;

fn host(roles: &[Role]) -> Leaving {
    Leaving {
        name: "cp-2".to_owned(),
        cluster: "prod".to_owned(),
        roles: Some(roles.to_vec()),
        stays: None,
        other_control_planes: 2,
        other_registries: 1,
        has_master: false,
        has_site_registry: false,
        has_key: true,
        is_connected: true,
        vote: Vote::None,
        claims: Claims::Known(Vec::new()),
    }
}

fn plane(all: usize, serving: usize, serves: bool) -> Leaving {
    let voters = Voters { all, serving };
    Leaving {
        vote: Vote::Voting { voters, serves },
        ..host(&[Role::ControlPlane, Role::Etcd])
    }
}

fn confirmed(dead: bool, cluster: &str) -> Confirmed {
    Confirmed {
        dead,
        force: !cluster.is_empty(),
        cluster: cluster.to_owned(),
    }
}

/// The only reason to refuse.
fn reason(leaving: &Leaving, confirmed: &Confirmed) -> String {
    let reasons = leaving.refusals(confirmed);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons[0].clone()
}

#[test]
fn a_live_worker_leaves_without_a_flag_and_a_dead_one_with_the_clusters_name() {
    let plain = Confirmed::default();
    let worker = host(&[Role::Worker]);
    assert!(worker.refusals(&plain).is_empty());
    assert!(worker.losses(false).is_empty());

    let gone = Leaving {
        is_connected: false,
        ..worker.clone()
    };
    assert!(reason(&gone, &plain).contains("--dead --force --cluster prod"));
    assert!(
        reason(&gone, &confirmed(true, "")).contains("it takes --force --cluster prod: the data")
    );
    assert!(
        reason(&gone, &confirmed(true, "test"))
            .contains("--cluster test is not this cluster, which is prod")
    );
    assert!(gone.refusals(&confirmed(true, "prod")).is_empty());
    let alive = reason(&worker, &confirmed(true, "prod"));
    assert!(alive.contains("leave out --dead"), "{alive}");
    let continues = "`ctl orchestrate halite.orchestrate.add_node --pillar node=cp-2`";
    assert!(alive.contains(continues), "{alive}");

    // Declared, but never enrolled: there is nothing to lose.
    let never = Leaving {
        has_key: false,
        ..gone
    };
    assert!(never.refusals(&confirmed(true, "")).is_empty());
}

#[test]
fn claims_of_volumes_that_only_this_host_has_are_named_and_need_force() {
    let plain = Confirmed::default();
    let with = |count: usize| {
        let claims = (0..count).map(|number| format!("default/data-db-{number}"));
        Leaving {
            claims: Claims::Known(claims.collect()),
            ..host(&[Role::Worker])
        }
    };
    let text = reason(&with(2), &plain);
    let named = "it takes --force --cluster prod: volumes that no other host can use, of the claims default/data-db-0, \
                 default/data-db-1: copy";
    assert!(text.starts_with(named), "{text}");
    let forced = confirmed(false, "prod");
    assert!(with(2).refusals(&forced).is_empty());
    // It is named before a host is replaced, which requires the flag in any case.
    let losses = with(12).losses(true);
    assert!(
        losses[1].contains("default/data-db-9 and 2 more:"),
        "{losses:?}"
    );
    // Its disks stay with a host that stays.
    let stays = with(2).staying(&[Role::Worker]);
    assert!(stays.refusals(&plain).is_empty() && stays.losses(false).is_empty());
    let unknown = Leaving {
        claims: Claims::Unknown {
            because: "no answer".to_owned(),
        },
        ..host(&[Role::Worker])
    };
    let text = reason(&unknown, &plain);
    assert!(
        text.contains("which the API does not name (no answer)"),
        "{text}"
    );
    assert!(unknown.refusals(&forced).is_empty());
    // A host that has never enrolled has no data of the cluster on its disks.
    let never = Leaving {
        has_key: false,
        is_connected: false,
        ..unknown
    };
    assert!(never.refusals(&confirmed(true, "")).is_empty());
}

#[test]
fn a_name_without_document_and_key_is_unknown_but_a_key_suffices() {
    let undeclared = Leaving {
        roles: None,
        is_connected: false,
        ..host(&[])
    };
    assert!(undeclared.refusals(&Confirmed::default()).is_empty());
    let unknown = Leaving {
        has_key: false,
        ..undeclared
    };
    assert!(reason(&unknown, &Confirmed::default()).contains("there is no node cp-2"));
}

#[test]
fn a_control_plane_says_that_it_held_keys_and_wants_the_clusters_name() {
    let text = reason(&plane(3, 3, true), &Confirmed::default());
    for part in [
        "--force --cluster prod",
        "its vote in etcd: 2 members are left, none may fail",
        "private keys of the cluster's CAs",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(
        plane(3, 3, true)
            .refusals(&confirmed(false, "prod"))
            .is_empty()
    );
}

#[test]
fn what_would_break_the_quorum_is_not_forced() {
    // One of three members is down: its host may leave, another one may not.
    assert!(
        plane(3, 2, false)
            .refusals(&confirmed(false, "prod"))
            .is_empty()
    );
    let text = reason(&plane(3, 2, true), &confirmed(false, "prod"));
    assert!(
        text.contains("2 of 3 voting members serve, and 2 of the 2 that remain"),
        "{text}"
    );
    assert!(text.ends_with("--force does not override this"), "{text}");
    let silent = Leaving {
        vote: Vote::Unknown {
            because: "no leader".to_owned(),
        },
        ..plane(3, 3, true)
    };
    assert!(reason(&silent, &confirmed(false, "prod")).contains("(no leader)"));
}

#[test]
fn a_host_that_stays_is_asked_for_what_it_loses_only() {
    let stays = |leaving: Leaving, roles: &[Role]| leaving.staying(roles);
    let last = Leaving {
        other_control_planes: 0,
        other_registries: 0,
        has_master: true,
        has_site_registry: true,
        ..plane(3, 2, true)
    };
    // It keeps all of these roles.
    let more = [Role::ControlPlane, Role::Etcd, Role::Worker];
    assert!(
        stays(last.clone(), &more)
            .refusals(&Confirmed::default())
            .is_empty()
    );
    assert!(stays(last.clone(), &more).losses(false).is_empty());
    let reasons = stays(last, &[Role::Worker]).refusals(&confirmed(false, "prod"));
    for (reason, part) in reasons
        .iter()
        .zip(["has the master", "only control plane", "quorum"])
    {
        assert!(reason.contains(part), "{reasons:?}");
    }
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    let away = Leaving {
        is_connected: false,
        ..plane(3, 3, true)
    };
    let reasons = stays(away, &[Role::Worker]).refusals(&confirmed(false, "prod"));
    assert!(
        reasons.concat().contains("ctl node remove --dead"),
        "{reasons:?}"
    );
    let text = reason(
        &stays(plane(3, 3, true), &[Role::Worker]),
        &Confirmed::default(),
    );
    assert!(
        text.contains("--force --cluster prod") && text.contains("CAs"),
        "{text}"
    );
}

/// A control plane may give up its own member, by the rules of a removal, where an API server uses
/// all members.
#[test]
fn a_control_plane_that_gives_its_member_away_is_asked_for_the_vote_only() {
    let gives = |leaving: Leaving| leaving.staying(&[Role::ControlPlane]);
    let text = reason(&gives(plane(3, 3, true)), &Confirmed::default());
    assert!(
        text.contains("it takes --force --cluster prod: its vote in etcd: 2 members are left"),
        "{text}"
    );
    assert!(!text.contains("private keys"), "{text}");
    let prod = confirmed(false, "prod");
    // The same for the master's host, and the only control plane: both stay.
    let first = Leaving {
        other_control_planes: 0,
        has_master: true,
        ..plane(2, 2, true)
    };
    assert!(gives(first).refusals(&prod).is_empty());
    let text = reason(&gives(plane(3, 2, true)), &prod);
    assert!(text.starts_with("etcd would lose its quorum"), "{text}");
    let text = reason(&gives(plane(1, 1, true)), &prod);
    assert!(text.starts_with("it has the only member of etcd"), "{text}");
    // In the reverse case no vote is lost, whatever etcd reports.
    let keeps = plane(3, 2, true).staying(&[Role::Etcd, Role::Worker]);
    let text = reason(&keeps, &Confirmed::default());
    assert!(
        text.contains("private keys") && !text.contains("vote"),
        "{text}"
    );
    assert!(keeps.refusals(&prod).is_empty());
}

#[test]
fn each_loss_is_of_the_role_that_goes() {
    let losses = plane(3, 3, true).losses_of();
    assert!(losses["etcd"].contains("vote"));
    assert!(losses["control-plane"].contains("CAs"));
    assert_eq!(host(&[Role::Worker]).losses_of(), BTreeMap::new());
}

#[test]
fn a_host_of_etcd_alone_takes_a_vote_with_it() {
    let member = |all: usize| {
        let voters = Voters { all, serving: all };
        let vote = Vote::Voting {
            voters,
            serves: true,
        };
        Leaving {
            vote,
            ..host(&[Role::Etcd])
        }
    };
    let text = reason(&member(3), &Confirmed::default());
    assert!(
        text.contains("it takes --force --cluster prod: its vote in etcd: 2 members are left"),
        "{text}"
    );
    assert!(!text.contains("private keys"), "{text}");
    assert!(member(3).refusals(&confirmed(false, "prod")).is_empty());
    let last = reason(&member(1), &confirmed(false, "prod"));
    assert!(last.starts_with("it has the only member of etcd"), "{last}");
    // A learner has no vote.
    let learner = host(&[Role::Etcd]);
    assert!(learner.refusals(&Confirmed::default()).is_empty());
}

#[test]
fn the_masters_host_and_the_last_of_a_kind_stay() {
    let all = [Role::Bootstrap, Role::ControlPlane, Role::Registry];
    // Another host has the master, so the first one is like any other.
    assert!(host(&all).refusals(&confirmed(false, "prod")).is_empty());
    let only = Leaving {
        other_control_planes: 0,
        other_registries: 0,
        has_master: true,
        has_site_registry: true,
        ..host(&all)
    };
    let reasons = only.refusals(&confirmed(false, "prod"));
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(
        reasons
            .iter()
            .all(|reason| reason.ends_with("--force does not override this"))
    );
}
