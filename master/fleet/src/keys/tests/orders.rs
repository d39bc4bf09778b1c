//! Operators' orders on keys, and the limits of enrolment.

use halite_core::names::minion;

use super::*;

#[tokio::test]
async fn a_rejected_or_deleted_key_is_out_at_once() {
    let site = site().await;
    let host = Host::new("worker-1");
    let token = site
        .token(TokenRequest {
            uses: 9,
            ..TokenRequest::default()
        })
        .await;
    let pem = certificate(site.enrol(&host, &token).await);
    let mut changes = site.app.gate.changes();
    changes.mark_unchanged();
    site.order("worker-1", "reject").await.unwrap();
    assert!(
        changes.has_changed().unwrap(),
        "open connections are checked again"
    );
    assert!(!site.admits(&pem));
    let why = reason(site.enrol(&host, &token).await);
    assert!(why.contains("an operator rejected this key"), "{why}");

    site.order("worker-1", "accept").await.unwrap();
    let second = certificate(site.enrol(&host, "").await);
    assert!(
        site.admits(&second) && !site.admits(&pem),
        "a revoked certificate stays revoked"
    );
    site.order("worker-1", "delete").await.unwrap();
    assert!(!site.admits(&second));
    assert_eq!(site.state("worker-1").await, None);
    // A restart preserves all of this.
    let again = App::open(
        site.app.config.clone(),
        Arc::clone(&site.clock) as Arc<_>,
        Arc::clone(&site.app.store),
    );
    let again = Site {
        app: again.await.unwrap(),
        clock: Arc::clone(&site.clock),
        store: Arc::clone(&site.store),
        directory: TempDir::new().unwrap(),
    };
    let old = again.refused(&host, &token).await;
    assert!(old.message.contains("the token is not valid"), "{old}");
    let token = again.token(TokenRequest::default()).await;
    let third = certificate(again.enrol(&host, &token).await);
    assert!(again.admits(&third) && !again.admits(&pem) && !again.admits(&second));
}

#[tokio::test]
async fn a_rejected_or_deleted_key_does_not_return_with_an_older_token() {
    for action in ["reject", "delete"] {
        let site = site().await;
        let host = Host::new("worker-1");
        let many = TokenRequest {
            uses: 9,
            ..TokenRequest::default()
        };
        let bound = TokenRequest {
            id: "worker-1".to_owned(),
            ..TokenRequest::default()
        };
        let (used, other) = (site.token(many.clone()).await, site.token(many).await);
        let own = site.token(bound.clone()).await;
        certificate(site.enrol(&host, &used).await);
        let answer = site.order("worker-1", action).await.unwrap();
        let mut taken = answer.revoked_tokens;
        taken.sort_unstable();
        let mut wanted = [&used, &own].map(|token| token.split('.').next().unwrap());
        wanted.sort_unstable();
        assert_eq!(taken, wanted, "{action}");
        for token in [&used, &own] {
            let answer = enrol(&site.app, &host.asks(token)).await;
            assert!(
                matches!(&answer, Err(_) | Ok(EnrolAnswer::Rejected { .. })),
                "{action}: {answer:?}"
            );
            // The same under another name: the host knows the token.
            let renamed = EnrolmentRequest {
                id: "worker-9".to_owned(),
                ..host.asks(token)
            };
            enrol(&site.app, &renamed).await.unwrap_err();
        }
        assert_eq!(site.uses(&other).await, 9, "it was not used");
        // A token from after the order is the operator's confirmation that it may enrol again.
        site.clock.advance(1);
        let later = site.token(bound).await;
        certificate(site.enrol(&host, &later).await);
    }
}

#[tokio::test]
async fn a_rejected_squatter_costs_the_true_host_no_token() {
    let site = site().await;
    let (squatter, honest) = (Host::new("worker-1"), Host::new("worker-1"));
    let token = site
        .token(TokenRequest {
            id: "worker-1".to_owned(),
            ..TokenRequest::default()
        })
        .await;
    site.enrol(&squatter, "").await;
    site.clock.advance(1);
    site.order("worker-1", "reject").await.unwrap();
    // Even if it has learned the token, which is older than the rejection.
    let why = reason(site.enrol(&squatter, &token).await);
    assert!(why.contains("an operator rejected this key"), "{why}");
    certificate(site.enrol(&honest, &token).await);
}

/// A token for a host that was rejected while it was pending still works for another host of that
/// name.
#[tokio::test]
async fn a_clock_that_is_set_makes_no_token_older_or_newer_than_a_rejection() {
    for step in STEPS {
        let site = site().await;
        let host = Host::new("worker-1");
        let bound = || TokenRequest {
            id: "worker-1".to_owned(),
            ttl_seconds: 7 * 24 * 60 * 60,
            ..TokenRequest::default()
        };
        let early = site.token(bound()).await;
        site.enrol(&host, "").await;
        site.clock.step(step);
        site.order("worker-1", "reject").await.unwrap();
        let why = reason(site.enrol(&host, &early).await);
        assert!(
            why.contains("an operator rejected this key"),
            "{step}: {why}"
        );
        site.clock.step(step);
        let late = site.token(bound()).await;
        certificate(site.enrol(&host, &late).await);
    }
}

#[tokio::test]
async fn a_full_disk_does_not_keep_a_rejected_key_in() {
    for action in ["reject", "delete"] {
        let site = site().await;
        let host = Host::new("worker-1");
        let token = site.token(TokenRequest::default()).await;
        let pem = certificate(site.enrol(&host, &token).await);
        let limit = fill_disk(&site).await;
        let refused = site.order("worker-1", action).await.unwrap_err();
        assert!(refused.message.contains("is cut off"), "{refused}");
        assert!(refused.message.contains("Free space"), "{refused}");
        assert!(!site.admits(&pem), "{action}");
        // Once there is space again, the key stays out until the order is repeated; then it can
        // return only with a new certificate.
        site.store.limit_pages(Some(limit)).await;
        let why = reason(site.enrol(&host, "").await);
        assert!(why.contains("an operator rejected this key"), "{why}");
        site.order("worker-1", action).await.unwrap();
        assert!(!site.admits(&pem));
        if action == "reject" {
            site.order("worker-1", "accept").await.unwrap();
            let second = certificate(site.enrol(&host, "").await);
            assert!(site.admits(&second) && !site.admits(&pem));
        }
    }
}

#[tokio::test]
async fn a_connected_minion_is_cut_off_only_by_name_of_the_cluster() {
    let site = site().await;
    let host = Host::new("worker-1");
    certificate(
        site.enrol(&host, &site.token(TokenRequest::default()).await)
            .await,
    );
    let (_connection, mut messages) = site
        .app
        .connections
        .join(&minion("worker-1"), std::net::Ipv4Addr::LOCALHOST.into());
    for action in ["delete", "reject"] {
        for (force, cluster) in [(false, ""), (true, ""), (false, "prod"), (true, "prd")] {
            let order = KeyOrder {
                id: "worker-1".to_owned(),
                action: action.to_owned(),
                cluster: cluster.to_owned(),
                force,
                ..KeyOrder::default()
            };
            let refused = change(&site.app, &order).await.unwrap_err();
            assert_eq!(refused.kind, RefusalKind::Conflict, "{order:?}");
            assert!(
                !refused.message.contains("prod"),
                "the name is for the operator to know: {refused}"
            );
        }
    }
    assert_eq!(site.state("worker-1").await, Some(KeyState::Accepted));
    let order = KeyOrder {
        id: "worker-1".to_owned(),
        action: "delete".to_owned(),
        cluster: "prod".to_owned(),
        force: true,
        ..KeyOrder::default()
    };
    change(&site.app, &order).await.unwrap();
    assert!(messages.recv().await.is_none(), "the stream ends");
    assert!(!site.app.connections.is_connected(&minion("worker-1")));
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused() {
    let site = site().await;
    assert_eq!(
        site.order("unknown", "accept").await.unwrap_err().kind,
        RefusalKind::NotFound
    );
    site.enrol(&Host::new("a"), "").await;
    assert_eq!(
        site.order("a", "bless").await.unwrap_err().kind,
        RefusalKind::Invalid
    );
}

#[tokio::test]
async fn bad_requests_leave_nothing_behind() {
    let site = site().await;
    let host = Host::new("a");
    let good = host.asks("");
    for bad in [
        EnrolmentRequest {
            id: "A".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: "master".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: "../etc".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: String::new(),
            ..good.clone()
        },
        EnrolmentRequest {
            csr_pem: "x".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            grains_json: "{".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            grains_json: "{\"fqdn\": \"w7\\u001b[2K\"}".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            csr_pem: format!("{}{}", good.csr_pem, "x".repeat(10_000)),
            ..good.clone()
        },
    ] {
        assert_eq!(
            enrol(&site.app, &bad).await.unwrap_err().kind,
            RefusalKind::Invalid,
            "{bad:?}"
        );
    }
    assert!(site.app.store.keys().await.unwrap().is_empty());
}

#[tokio::test]
async fn two_hosts_with_one_token_at_once_are_one_too_many() {
    let site = site().await;
    let token = site.token(TokenRequest::default()).await;
    let hosts = [Host::new("a"), Host::new("b")];
    let requests = hosts.each_ref().map(|host| host.asks(&token));
    let (a, b) = tokio::join!(
        enrol(&site.app, &requests[0]),
        enrol(&site.app, &requests[1])
    );
    assert_eq!(
        usize::from(a.is_ok()) + usize::from(b.is_ok()),
        1,
        "{a:?} {b:?}"
    );
    assert_eq!(site.app.store.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_for_roles_lets_in_only_those_declared_with_them() {
    let site = site().await;
    let nodes = site.directory.path().join("etc/nodes");
    std::fs::create_dir_all(&nodes).unwrap();
    let declared =
        "apiVersion: halite/v1\nkind: Node\nmetadata: {name: n}\nroles: [worker, etcd]\n";
    std::fs::write(nodes.join("n.yaml"), declared).unwrap();
    let roles = |names: &[&str]| TokenRequest {
        roles: names.iter().map(|name| (*name).to_owned()).collect(),
        ..TokenRequest::default()
    };
    let host = Host::new("n");
    let refused = site
        .refused(&host, &site.token(roles(&["worker"])).await)
        .await;
    assert!(refused.message.contains("declared with etcd"), "{refused}");
    let token = site.token(roles(&["worker", "etcd", "infra"])).await;
    certificate(site.enrol(&host, &token).await);
    assert_eq!(
        site.app
            .store
            .key(&minion("n"))
            .await
            .unwrap()
            .unwrap()
            .roles,
        ["worker", "etcd", "infra"]
    );
}

/// Otherwise any holder of a token could become a control plane that is declared but has not
/// enrolled, and get the keys of the CAs.
#[tokio::test]
async fn a_token_without_roles_makes_no_control_plane() {
    let site = site().await;
    let nodes = site.directory.path().join("etc/nodes");
    std::fs::create_dir_all(&nodes).unwrap();
    let declare = |name: &str, roles: &str| {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\n"
        );
        std::fs::write(nodes.join(format!("{name}.yaml")), text).unwrap();
    };
    for role in ["bootstrap", "control-plane", "etcd", "registry"] {
        declare("n", &format!("worker, {role}"));
        let token = site.token(TokenRequest::default()).await;
        let refused = site.refused(&Host::new("n"), &token).await;
        assert!(
            refused.message.contains(&format!("declared with {role}"))
                && refused.message.contains("ctl token create --id n"),
            "{refused}"
        );
        assert_eq!(site.uses(&token).await, 1);
    }
    // This is the remedy; and a token for a worker does not make it a control plane later.
    let bound = || TokenRequest {
        id: "n".to_owned(),
        ..TokenRequest::default()
    };
    declare("n", "worker");
    let early = site.token(bound()).await;
    declare("n", "worker, control-plane");
    site.refused(&Host::new("n"), &early).await;
    let token = site.token(bound()).await;
    certificate(site.enrol(&Host::new("n"), &token).await);
    // Hosts that get no such secrets need no roles in a token.
    declare("w", "worker, infra");
    for name in ["w", "undeclared"] {
        let token = site.token(TokenRequest::default()).await;
        certificate(site.enrol(&Host::new(name), &token).await);
    }
}

/// Otherwise its holder could enrol with a name before it is declared as a control plane.
#[tokio::test]
async fn a_key_with_a_token_without_a_role_does_not_get_it_later() {
    let site = site().await;
    let nodes = site.directory.path().join("etc/nodes");
    std::fs::create_dir_all(&nodes).unwrap();
    let token = |id: &str, role: &str| TokenRequest {
        id: id.to_owned(),
        roles: role.split_whitespace().map(str::to_owned).collect(),
        ..TokenRequest::default()
    };
    let roles = ["control-plane", "etcd"].map(str::to_owned);
    let check = async |name: &str, is_declared: bool| {
        let file = nodes.join(format!("{name}.yaml"));
        if is_declared {
            std::fs::write(&file, "roles: [worker]\n").unwrap();
        }
        let checked = check_new_roles(&site.app, name, &roles).await;
        drop(std::fs::remove_file(file));
        checked.is_ok()
    };
    for (name, role, bound, before, after) in [
        ("any", "", "", false, false),
        ("any-worker", "worker", "", false, false),
        ("own", "", "own", false, true),
        ("own-worker", "worker", "own-worker", false, true),
        ("any-etcd", "etcd", "", false, false),
        ("cp-2", "control-plane", "cp-2", false, true),
    ] {
        let token = site.token(token(bound, role)).await;
        certificate(site.enrol(&Host::new(name), &token).await);
        assert_eq!(check(name, false).await, before, "{name}");
        assert_eq!(check(name, true).await, after, "{name}");
        // Its record goes after a month.
        revoke_token(&site.app, token.split('.').next().unwrap())
            .await
            .unwrap();
        assert_eq!(check(name, true).await, !role.is_empty(), "{name}");
    }
    let refused = check_new_roles(&site.app, "any", &roles).await.unwrap_err();
    assert!(
        refused.message.contains("(ctl key delete any)"),
        "{refused}"
    );
    // Its operator has compared the fingerprint; and roles without secrets need no token.
    site.enrol(&Host::new("seen"), "").await;
    site.order("seen", "accept").await.unwrap();
    assert!(check("seen", false).await && check("unknown", false).await);
    let worker = ["worker".to_owned()];
    check_new_roles(&site.app, "any", &worker).await.unwrap();
    let named = site.token(token("cp-3", "control-plane etcd")).await;
    certificate(site.enrol(&Host::new("cp-3"), &named).await);
    assert!(check("cp-3", false).await);
}

#[tokio::test]
async fn renewal_keeps_the_key() {
    let site = site().await;
    let host = Host::new("a");
    let first = certificate(
        site.enrol(&host, &site.token(TokenRequest::default()).await)
            .await,
    );
    site.clock.advance(10 * DAY);
    let second = renew(&site.app, &minion("a"), &host.key.request("a").unwrap())
        .await
        .unwrap();
    assert_ne!(first, second);
    assert!(site.admits(&second) && site.admits(&first));
    let other = PrivateKey::generate().unwrap().request("a").unwrap();
    assert_eq!(
        renew(&site.app, &minion("a"), &other)
            .await
            .unwrap_err()
            .kind,
        RefusalKind::Denied
    );
    assert_eq!(
        renew(&site.app, &minion("b"), &other)
            .await
            .unwrap_err()
            .kind,
        RefusalKind::Denied
    );
}

#[test]
fn init_may_be_repeated_and_follows_the_configuration() {
    let directory = TempDir::new().unwrap();
    let mut config = config(&directory);
    let made = halite_core::init::init(&config, NOW).unwrap();
    let identity = config.state_dir.join("identity.crt");
    let operator = made.operator.join("operator.crt");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let before = (read(&identity), read(&operator));
    assert_eq!(halite_core::init::init(&config, NOW).unwrap(), made);
    assert_eq!((read(&identity), read(&operator)), before);
    let found = Inspected::from_pem(&before.1).unwrap();
    assert_eq!(
        found.identity().unwrap().to_string(),
        "halite://prod/operator/root"
    );

    let address: IpAddr = "10.0.0.9".parse().unwrap();
    config.advertise.push(address);
    halite_core::init::init(&config, NOW).unwrap();
    assert!(
        Inspected::from_pem(&read(&identity))
            .unwrap()
            .addresses
            .contains(&address)
    );
    assert_eq!(read(&operator), before.1);
    halite_core::init::init(&config, NOW + 300 * DAY).unwrap();
    assert_ne!(
        read(&operator),
        before.1,
        "renewed when two thirds of its life are over"
    );
}
