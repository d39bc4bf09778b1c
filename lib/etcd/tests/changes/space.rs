//! The space in the databases: one member at a time, the leader last, and only while all serve.

use halite_etcd::fake::{Database, FakeCluster, FakePace, QUOTA};
use halite_etcd::{Freed, SpaceError};

use super::support::{run, run_with};

const MIB: u64 = 1 << 20;

fn database(size: u64, in_use: u64, data: u64) -> Database {
    Database { size, in_use, data }
}

fn defragment(cluster: &FakeCluster, above: u8) -> Result<Vec<Freed>, SpaceError> {
    run(cluster, async |changes| changes.defragment(above).await)
}

fn make_room(cluster: &FakeCluster) -> Result<Vec<Freed>, SpaceError> {
    run(cluster, async |changes| changes.make_room().await)
}

#[test]
fn members_are_defragmented_one_by_one_and_the_leader_last() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    for (name, in_use) in [("a", 40), ("b", 56), ("c", 54)] {
        cluster.set_database(name, database(100 * MIB, in_use * MIB, MIB));
    }
    let freed = defragment(&cluster, 45).unwrap();
    assert_eq!(cluster.leader().as_deref(), Some("a"));
    // 44 % of b is free, which is not above 45 %.
    assert_eq!(cluster.changes(), ["defragment c", "defragment a"]);
    assert_eq!(freed[0].to_string(), "c: 100 MiB → 54 MiB");
    // Nothing is left to do.
    assert_eq!(defragment(&cluster, 45), Ok(Vec::new()));
    defragment(&cluster, 0).unwrap();
    assert_eq!(cluster.changes()[2..], ["defragment b"]);
}

#[test]
fn one_member_alone_is_defragmented() {
    let cluster = FakeCluster::new(&["a", "b"]);
    for name in ["a", "b"] {
        cluster.set_database(name, database(100 * MIB, 90 * MIB, MIB));
    }
    let only = |name: &str| {
        run(&cluster, async |changes| {
            changes.defragment_member(name).await
        })
    };
    assert_eq!(only("b").unwrap()[0].to_string(), "b: 100 MiB → 90 MiB");
    assert_eq!(only("b"), Ok(Vec::new()));
    assert_eq!(cluster.changes(), ["defragment b"]);
    assert_eq!(
        only("c").unwrap_err().to_string(),
        "cannot defragment c: it is not a member of etcd; the members are a, b"
    );
}

#[test]
fn no_member_is_defragmented_while_another_one_does_not_serve() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.set_database("b", database(100 * MIB, MIB, MIB));
    cluster.stop("c");
    let pace = FakePace::new(&cluster);
    let refused = run_with(&cluster, &pace, async |changes| {
        changes.defragment(45).await
    });
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("waited 60 s until the databases of etcd are defragmented: c: ")
            && text.ends_with("run it again when all members serve"),
        "{text}"
    );
    assert_eq!(cluster.changes(), [""; 0]);
    assert!(
        pace.reports()[0].contains("waiting until the databases"),
        "{:?}",
        pace.reports()
    );
}

#[test]
fn a_reached_quota_is_resolved() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        cluster.set_database(name, database(QUOTA + MIB, QUOTA, 20 * MIB));
    }
    let freed = make_room(&cluster).unwrap();
    assert_eq!(freed.len(), 3);
    assert_eq!(
        cluster.changes(),
        [
            "compact",
            "defragment b",
            "defragment c",
            "defragment a",
            "disarm a",
            "disarm b",
            "disarm c",
        ]
    );
    // Again: old revisions are gone, and no alarm is raised.
    assert_eq!(make_room(&cluster), Ok(Vec::new()));
    assert_eq!(cluster.changes().len(), 7);
}

#[test]
fn data_that_fill_the_quota_keep_the_alarm() {
    let cluster = FakeCluster::new(&["a"]);
    cluster.set_database("a", database(QUOTA + MIB, QUOTA, QUOTA));
    let text = make_room(&cluster).unwrap_err().to_string();
    assert!(
        text.contains("the database of a uses 2048 MiB of its quota of 2048 MiB; delete objects"),
        "{text}"
    );
    assert_eq!(cluster.changes(), ["compact", "defragment a"]);
}

#[test]
fn the_past_of_members_that_differ_is_not_touched() {
    let cluster = FakeCluster::new(&["a", "b", "c"]);
    cluster.set_corrupt("b");
    for outcome in [defragment(&cluster, 0), make_room(&cluster)] {
        let text = outcome.unwrap_err().to_string();
        assert!(
            text.contains("the member 2 has the alarm CORRUPT"),
            "{text}"
        );
    }
    assert_eq!(cluster.changes(), [""; 0]);
}
