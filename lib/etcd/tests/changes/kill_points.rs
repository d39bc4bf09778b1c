//! A change is interrupted before or after each of its writes, as if its process had died, and run
//! again by another process: the final state is the same as without an interruption.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use halite_etcd::fake::{Database, FakeCluster, FakePace, QUOTA, host};
use halite_etcd::{
    Alarm, ChangeError, Changes, Keys, Member, MemberId, Members, MembersFuture, Removal, Snapshot,
    Status,
};

use super::support::{finish, run};

/// The moment at which the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Before the write has reached the cluster.
    Before,
    /// After the write, without its answer.
    After,
}

/// A cluster whose caller dies at the write with this number.
struct Stopped<'a> {
    cluster: &'a FakeCluster,
    at: usize,
    moment: Moment,
    writes: AtomicUsize,
}

impl<'a> Stopped<'a> {
    fn write<'s>(
        &'s self,
        write: impl FnOnce() -> MembersFuture<'s, ()> + Send + 's,
    ) -> MembersFuture<'s, ()> {
        let dies = self.writes.fetch_add(1, Ordering::Relaxed) == self.at;
        Box::pin(async move {
            if dies && self.moment == Moment::Before {
                return std::future::pending().await;
            }
            let answer = write().await;
            if dies {
                return std::future::pending().await;
            }
            answer
        })
    }
}

impl Members for Stopped<'_> {
    fn list(&self) -> MembersFuture<'_, Vec<Member>> {
        self.cluster.list()
    }
    fn known(&self) -> MembersFuture<'_, Vec<Member>> {
        self.cluster.known()
    }
    fn status<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Status> {
        self.cluster.status(member)
    }
    fn alarms(&self) -> MembersFuture<'_, Vec<Alarm>> {
        self.cluster.alarms()
    }
    fn add_learner<'a>(&'a self, peer_url: &'a str) -> MembersFuture<'a, ()> {
        self.write(move || self.cluster.add_learner(peer_url))
    }
    fn promote(&self, id: MemberId) -> MembersFuture<'_, ()> {
        self.write(move || self.cluster.promote(id))
    }
    fn remove(&self, id: MemberId) -> MembersFuture<'_, ()> {
        self.write(move || self.cluster.remove(id))
    }
    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> MembersFuture<'a, ()> {
        self.write(move || self.cluster.move_leader(leader, to))
    }
    fn compact(&self, revision: i64) -> MembersFuture<'_, ()> {
        self.write(move || self.cluster.compact(revision))
    }
    fn defragment<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, ()> {
        self.write(move || self.cluster.defragment(member))
    }
    fn disarm(&self, alarm: Alarm) -> MembersFuture<'_, ()> {
        self.write(move || self.cluster.disarm(alarm))
    }
    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> MembersFuture<'a, Keys> {
        self.cluster.keys(member, revision)
    }
    fn snapshot<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Snapshot> {
        self.cluster.snapshot(member)
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
enum Change {
    AddLearner,
    Promote,
    /// The learner never syncs.
    PromoteInVain,
    RemoveFollower,
    RemoveLeader,
    RemoveDead,
    RemoveLearner,
    /// A learner that never started.
    RemoveUnstarted,
    MoveLeader,
    Defragment,
    MakeRoom,
}

/// The changes, with the number of writes of each.
const TABLE: [(Change, usize); 11] = [
    (Change::AddLearner, 1),
    (Change::Promote, 1),
    (Change::PromoteInVain, 1),
    (Change::RemoveFollower, 1),
    (Change::RemoveLeader, 2),
    (Change::RemoveDead, 1),
    (Change::RemoveLearner, 1),
    (Change::RemoveUnstarted, 1),
    (Change::MoveLeader, 1),
    (Change::Defragment, 3),
    (Change::MakeRoom, 7),
];

impl Change {
    /// The cluster before it: `a` leads, `d` is the host in question.
    fn cluster(self) -> FakeCluster {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        let learner = matches!(
            self,
            Self::Promote | Self::PromoteInVain | Self::RemoveLearner | Self::RemoveUnstarted
        );
        if learner {
            run(&cluster, async |changes| {
                changes.add_learner(&host("d"), true).await
            })
            .unwrap();
        }
        if learner && !matches!(self, Self::RemoveUnstarted) {
            cluster.start(&host("d"));
        }
        if matches!(self, Self::PromoteInVain) {
            cluster.set_rate(0);
        }
        if matches!(self, Self::Defragment | Self::MakeRoom) {
            let full = Database {
                size: QUOTA + 1,
                in_use: QUOTA / 2,
                data: 1,
            };
            for name in ["a", "b", "c"] {
                cluster.set_database(name, full);
            }
        }
        if matches!(self, Self::RemoveDead) {
            cluster.stop("a");
        }
        cluster
    }

    /// Runs the change; the end of a learner that never synced is a valid result, too.
    async fn run(self, changes: &Changes<'_>) -> Result<(), ChangeError> {
        let remove = |name: &str, dead| Removal {
            name: name.to_owned(),
            peer_url: Some(host(name).peer_url),
            dead,
        };
        match self {
            Self::AddLearner => changes.add_learner(&host("d"), true).await.map(drop),
            Self::Promote => changes.promote(&host("d")).await.map(drop),
            Self::PromoteInVain => match changes.promote(&host("d")).await {
                Err(ChangeError::NeverSynced { .. } | ChangeError::NoMember { .. }) => Ok(()),
                other => panic!("{other:?}"),
            },
            Self::RemoveFollower => changes.remove(&remove("b", false)).await,
            Self::RemoveLeader => changes.remove(&remove("a", false)).await,
            Self::RemoveDead => changes.remove(&remove("a", true)).await,
            Self::RemoveLearner | Self::RemoveUnstarted => {
                changes.remove(&remove("d", false)).await
            }
            Self::MoveLeader => changes.move_leader_off("a").await.map(drop),
            Self::Defragment => {
                changes.defragment(45).await.unwrap();
                Ok(())
            }
            Self::MakeRoom => {
                changes.make_room().await.unwrap();
                Ok(())
            }
        }
    }
}

/// Runs a change whose process dies at a write; `None` if it died.
fn stopped(
    change: Change,
    cluster: &FakeCluster,
    at: usize,
    moment: Moment,
) -> Option<Result<(), ChangeError>> {
    let members = Stopped {
        cluster,
        at,
        moment,
        writes: AtomicUsize::new(0),
    };
    let pace = FakePace::new(cluster);
    let changes = Changes {
        members: &members,
        pace: &pace,
        limit: Duration::from_secs(60),
        prefer: None,
    };
    finish(Box::pin(async move { change.run(&changes).await }))
}

#[test]
fn a_change_that_was_stopped_at_a_write_ends_in_the_same_state_when_it_is_run_again() {
    for (change, writes) in TABLE {
        let whole = change.cluster();
        let before = whole.changes().len();
        run(&whole, async |changes| change.run(&changes).await).unwrap();
        assert_eq!(whole.changes().len() - before, writes, "{change:?}");
        for at in 0..writes {
            for moment in [Moment::Before, Moment::After] {
                let cluster = change.cluster();
                let died = stopped(change, &cluster, at, moment);
                assert!(died.is_none(), "{change:?} has no write {at}");
                run(&cluster, async |changes| change.run(&changes).await)
                    .unwrap_or_else(|error| panic!("{change:?} {at} {moment:?}: {error}"));
                assert_eq!(
                    cluster.summary(),
                    whole.summary(),
                    "{change:?} {at} {moment:?}"
                );
                assert_eq!(
                    cluster.changes(),
                    whole.changes(),
                    "{change:?} {at} {moment:?}"
                );
            }
        }
        // Once more, by a process that was killed after its last write and before its answer.
        let after = whole.summary();
        run(&whole, async |changes| change.run(&changes).await).unwrap();
        assert_eq!(whole.summary(), after, "{change:?} repeated");
    }
}
