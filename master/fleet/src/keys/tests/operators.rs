//! Operators with their roles: admitted and refused.

use halite_core::refusal::Refusal;
use halite_proto::role::Role;
use halite_store::AuditFilter;

use super::*;

/// Creates an operator and returns its certificate.
async fn made(site: &Site, name: &str, role: &str) -> Result<String, Refusal> {
    let wanted = NewOperator {
        name: name.to_owned(),
        role: role.to_owned(),
        days: 0,
        csr_pem: PrivateKey::generate().unwrap().request(name).unwrap(),
    };
    let (pem, _) = create_operator(&site.app, "root", &wanted).await?;
    Ok(pem)
}

fn caller(pem: &str) -> Caller {
    Caller::from_der(&halite_proto::pki::certificates(pem).unwrap()[0]).unwrap()
}

fn role_of(site: &Site, pem: &str) -> Option<Role> {
    let caller = caller(pem);
    let role = site.app.gate.role(&caller);
    assert_eq!(role.is_some(), site.app.gate.admit(&caller).is_ok());
    role
}

/// The certificate that init created for root.
fn root(site: &Site) -> String {
    let path = site.directory.path().join("etc/operator/operator.crt");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the same site after a restart of its master.
async fn restarted(site: Site) -> Site {
    let app = App::open(
        site.app.config.clone(),
        Arc::clone(&site.clock) as Arc<_>,
        Arc::clone(&site.app.store),
    );
    Site {
        app: app.await.unwrap(),
        ..site
    }
}

/// Fills the page with the operators to the last byte, so that a growing row finds no space.
async fn fill_operators(site: &Site) {
    let mut length = 0;
    for step in [500, 20, 1] {
        loop {
            let filler = halite_store::Operator {
                name: "filler".to_owned(),
                role: Role::Viewer,
                fingerprint: None,
                created: NOW,
                creator: "x".repeat(length + step),
                expires: None,
                revoked: None,
            };
            if site.store.put_operator(&filler).await.is_err() {
                break;
            }
            length += step;
        }
    }
}

async fn state(site: &Site, name: &str) -> String {
    let all = list_operators(&site.app).await.unwrap().operators;
    let one = all.into_iter().find(|operator| operator.name == name);
    one.unwrap().state.to_string()
}

#[tokio::test]
async fn an_operator_has_a_role_until_it_is_revoked_and_a_restart_forgets_neither() {
    let site = site().await;
    let alice = made(&site, "alice", "viewer").await.unwrap();
    let bob = made(&site, "bob", "deployer").await.unwrap();
    let site = restarted(site).await;
    assert_eq!(role_of(&site, &root(&site)), Some(Role::Admin));
    assert_eq!(role_of(&site, &alice), Some(Role::Viewer));
    assert_eq!(role_of(&site, &bob), Some(Role::Deployer));
    let mut changes = site.app.gate.changes();
    changes.mark_unchanged();
    revoke_operator(&site.app, "root", "alice").await.unwrap();
    assert!(
        changes.has_changed().unwrap(),
        "open connections are checked again"
    );
    assert_eq!(role_of(&site, &alice), None);
    let site = restarted(site).await;
    assert_eq!(role_of(&site, &alice), None);
    assert_eq!(role_of(&site, &bob), Some(Role::Deployer));
    assert_eq!(state(&site, "alice").await, "revoked");
    // A repetition is not an error, and a new key of that name is not the old one.
    revoke_operator(&site.app, "root", "alice").await.unwrap();
    let second = made(&site, "alice", "deployer").await.unwrap();
    assert_eq!(role_of(&site, &second), Some(Role::Deployer));
    assert_eq!(role_of(&site, &alice), None);
}

#[tokio::test]
async fn a_certificate_of_our_ca_for_an_unknown_name_does_not_come_in() {
    let site = site().await;
    let identity =
        halite_proto::identity::Identity::new("prod", IdentityKind::Operator, "eve").unwrap();
    let request = PrivateKey::generate().unwrap().request("eve").unwrap();
    let profile = halite_core::ca::Profile::identity(&identity);
    let issued = site
        .app
        .cas
        .sign(halite_core::ca::HALITE, &request, &profile, NOW);
    assert_eq!(role_of(&site, &issued.unwrap().certificate_pem), None);
}

#[tokio::test]
async fn an_invalid_operator_is_refused_with_the_remedy() {
    let site = site().await;
    made(&site, "alice", "viewer").await.unwrap();
    for (name, role, kind, text) in [
        (
            "alice",
            "admin",
            RefusalKind::Conflict,
            "ctl operator revoke alice",
        ),
        (
            "root",
            "viewer",
            RefusalKind::Conflict,
            "ctl operator revoke root",
        ),
        (
            "bob",
            "owner",
            RefusalKind::Invalid,
            "viewer, deployer, admin",
        ),
        ("Bob", "viewer", RefusalKind::Invalid, "lower-case"),
    ] {
        let refused = made(&site, name, role).await.unwrap_err();
        assert_eq!(refused.kind, kind, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
    }
    let long = NewOperator {
        name: "bob".to_owned(),
        role: "viewer".to_owned(),
        days: 366,
        csr_pem: PrivateKey::generate().unwrap().request("bob").unwrap(),
    };
    let refused = create_operator(&site.app, "root", &long).await.unwrap_err();
    assert!(refused.message.contains("the maximum is 365"), "{refused}");
    let bad = NewOperator {
        days: 1,
        csr_pem: "x".to_owned(),
        ..long
    };
    let refused = create_operator(&site.app, "root", &bad).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid, "{refused}");
    let unknown = revoke_operator(&site.app, "root", "bob").await.unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::NotFound);
    assert!(unknown.message.starts_with("there is no"), "{unknown}");
}

#[tokio::test]
async fn an_operator_expires_and_can_be_made_again() {
    let site = site().await;
    let first = made(&site, "alice", "admin").await.unwrap();
    let found = Inspected::from_pem(&first).unwrap();
    assert_eq!(found.not_after * 1000, NOW + 90 * DAY);
    assert_eq!(state(&site, "alice").await, "valid");
    site.clock.advance(91 * DAY);
    assert_eq!(state(&site, "alice").await, "expired");
    // An expired administrator cannot take the place of the last one.
    let refused = revoke_operator(&site.app, "alice", "root").await;
    assert!(refused.unwrap_err().message.contains("last administrator"));
    let second = made(&site, "alice", "admin").await.unwrap();
    assert_eq!(role_of(&site, &second), Some(Role::Admin));
    assert_eq!(role_of(&site, &first), None, "it has another key");
    revoke_operator(&site.app, "alice", "root").await.unwrap();
}

#[tokio::test]
async fn the_last_administrator_stays_also_when_two_revoke_each_other_at_once() {
    let site = site().await;
    made(&site, "bob", "deployer").await.unwrap();
    let refused = revoke_operator(&site.app, "root", "root").await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("last administrator"), "{refused}");
    assert_eq!(role_of(&site, &root(&site)), Some(Role::Admin));
    made(&site, "alice", "admin").await.unwrap();
    // Their own answer would be lost with the connection.
    let refused = revoke_operator(&site.app, "alice", "alice").await;
    let refused = refused.unwrap_err();
    assert!(
        refused.message.contains("another administrator"),
        "{refused}"
    );
    let (first, second) = tokio::join!(
        revoke_operator(&site.app, "alice", "root"),
        revoke_operator(&site.app, "root", "alice")
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test]
async fn a_full_disk_does_not_keep_a_revoked_operator_in() {
    let site = site().await;
    let alice = made(&site, "alice", "admin").await.unwrap();
    let limit = fill_disk(&site).await;
    fill_operators(&site).await;
    let refused = revoke_operator(&site.app, "root", "alice").await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("is cut off"), "{refused}");
    assert!(refused.message.contains("Free space"), "{refused}");
    assert_eq!(role_of(&site, &alice), None);
    site.store.limit_pages(Some(limit)).await;
    revoke_operator(&site.app, "root", "alice").await.unwrap();
    let site = restarted(site).await;
    assert_eq!(role_of(&site, &alice), None);
}

#[tokio::test]
async fn a_revoked_root_comes_back_with_a_new_key_only() {
    let site = site().await;
    let old = root(&site);
    made(&site, "alice", "admin").await.unwrap();
    revoke_operator(&site.app, "alice", "root").await.unwrap();
    // A renewal by a highstate has the same key.
    site.clock.advance(300 * DAY);
    halite_core::init::init(&site.app.config, NOW + 300 * DAY).unwrap();
    let renewed = root(&site);
    assert_ne!(renewed, old);
    let site = restarted(site).await;
    for pem in [&old, &renewed] {
        assert_eq!(role_of(&site, pem), None);
    }
    std::fs::remove_dir_all(site.directory.path().join("etc/operator")).unwrap();
    halite_core::init::init(&site.app.config, NOW + 300 * DAY).unwrap();
    let site = restarted(site).await;
    assert_eq!(role_of(&site, &root(&site)), Some(Role::Admin));
    for pem in [&old, &renewed] {
        assert_eq!(role_of(&site, pem), None);
    }
    let audit = site.store.audit(&AuditFilter::newest(1)).await.unwrap();
    assert!(audit[0].what.contains("by root on the master's host"));
}
