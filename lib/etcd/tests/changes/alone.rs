//! The last member becomes the only one, and no other member ever does.

use halite_etcd::AloneError;
use halite_etcd::fake::{FakeCluster, FakePace};

use super::support::{run, run_with};

fn may_be_alone(cluster: &FakeCluster, name: &str) -> Result<(), AloneError> {
    run(cluster, async |changes| changes.may_be_alone(name).await)
}

#[test]
fn only_the_last_member_may_be_alone_and_only_after_a_while_without_a_quorum() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.stop("a");
    let text = may_be_alone(&cluster, "c").unwrap_err().to_string();
    assert!(
        text.contains("(3 members, 2 of them serve, none may fail)"),
        "{text}"
    );
    assert!(text.contains("`ctl node replace`"), "{text}");

    cluster.stop("b");
    let text = may_be_alone(&cluster, "d").unwrap_err().to_string();
    assert!(
        text.ends_with("it is not a member of etcd; the members are a, b, c"),
        "{text}"
    );
    // The wrong member: its data is missing.
    let text = may_be_alone(&cluster, "b").unwrap_err().to_string();
    assert!(
        text.contains("the member c runs") && text.ends_with("recover from c"),
        "{text}"
    );

    let pace = FakePace::new(&cluster);
    let allowed = run_with(&cluster, &pace, async |changes| {
        changes.may_be_alone("c").await
    });
    assert_eq!(allowed, Ok(()));
    // Fifteen seconds, one report for each.
    assert_eq!(pace.reports().len(), 15, "{:?}", pace.reports());

    cluster.force_new_cluster("c");
    assert_eq!(may_be_alone(&cluster, "c"), Ok(()), "a repetition");
    assert_eq!(
        run(&cluster, async |changes| changes.wait_alone("c").await),
        Ok(())
    );
}

#[test]
fn of_five_members_two_that_run_are_not_one() {
    let cluster = FakeCluster::new(&["a", "b", "c", "d", "e"]);
    for name in ["a", "b", "c"] {
        cluster.stop(name);
    }
    let text = may_be_alone(&cluster, "d").unwrap_err().to_string();
    assert!(
        text.contains("the member e runs") && text.contains("switch its host off"),
        "{text}"
    );
}

#[test]
fn a_member_that_is_not_alone_in_time_is_an_error() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.stop("a");
    cluster.stop("b");
    let waited = run(&cluster, async |changes| changes.wait_alone("c").await);
    let text = waited.unwrap_err().to_string();
    assert!(
        text.starts_with("waited 60 s until c is the only member: 3 members, 0 of them serve"),
        "{text}"
    );
}
