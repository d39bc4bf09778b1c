//! An overview of the members for people: the leader, the serving members, and how many may fail.

use crate::error::EtcdError;
use crate::member::{Alarm, AlarmKind, Member, Members, Status};
use crate::quorum::{Voters, quorum};
use crate::view::{MemberList, View};

/// All members with their states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The members.
    pub members: Vec<MemberOverview>,
    /// The number of voting members, and of those that serve.
    pub voters: Voters,
    /// `true` if they certainly have a quorum, even if fewer are seen to serve.
    pub has_quorum: bool,
    /// The alarms that are raised.
    pub alarms: Vec<Alarm>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOverview {
    /// The member as the cluster lists it.
    pub member: Member,
    /// Its own state, if it answers.
    pub status: Option<Status>,
    /// `true` for the leader.
    pub leads: bool,
    /// The entries that it lacks, if it answers.
    pub lag: Option<u64>,
    /// The reason why it does not serve.
    pub fault: Option<String>,
}

impl Overview {
    /// Returns whether a member has reached its quota: then etcd accepts no writes.
    #[must_use]
    pub fn has_reached_quota(&self) -> bool {
        let mut alarms = self.alarms.iter();
        alarms.any(|alarm| alarm.kind == AlarmKind::NoSpace)
    }

    /// Asks all members. Without a quorum, one of them provides the list, and the alarms are
    /// unknown.
    ///
    /// # Errors
    /// No member answers.
    pub async fn take(cluster: &dyn Members) -> Result<Self, EtcdError> {
        let listed = MemberList::ask(cluster).await?;
        let view = View::take(cluster, listed).await;
        let (voters, has_quorum) = (view.count(), view.has_quorum());
        let alarms = if has_quorum {
            cluster.alarms().await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let known = view
            .seen
            .iter()
            .filter_map(|seen| seen.status.as_ref().ok());
        // After a change of leader, the newest answer counts: the one with the most entries.
        let leader = known
            .max_by_key(|status| status.raft_index)
            .and_then(|s| s.leader);
        let member = |seen: &crate::view::MemberStatus| MemberOverview {
            leads: leader == Some(seen.member.id),
            lag: seen.status.as_ref().ok().map(|status| view.lag(status)),
            fault: view.fault(seen),
            member: seen.member.clone(),
            status: seen.status.as_ref().ok().cloned(),
        };
        Ok(Self {
            members: view.seen.iter().map(member).collect(),
            voters,
            has_quorum,
            alarms,
        })
    }

    /// The quorum in one line: `3 members, 1 may fail`.
    #[must_use]
    pub fn quorum_line(&self) -> String {
        let Voters { all, serving } = self.voters;
        let members = format!("{all} {}", if all == 1 { "member" } else { "members" });
        let serve = if serving == all {
            String::new()
        } else {
            format!(
                ", {serving} of them {}",
                if serving == 1 { "serves" } else { "serve" }
            )
        };
        if !self.voters.have_quorum() {
            let end = match self.has_quorum {
                true => "they still have a quorum, so other members serve that cannot be reached, or lack entries".to_owned(),
                false => format!("no quorum, {} are needed", quorum(all)),
            };
            return format!("{members}{serve}: {end}");
        }
        match serving - quorum(all) {
            0 => format!("{members}{serve}, none may fail"),
            spare => format!("{members}{serve}, {spare} may fail"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeCluster;

    /// The overview of the fake, which is ready at once.
    fn overview(cluster: &FakeCluster) -> Overview {
        use std::future::Future as _;
        use std::task::{Context, Poll, Waker};
        let mut future = Box::pin(Overview::take(cluster));
        match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(overview) => overview.unwrap(),
            Poll::Pending => panic!("the fake never waits"),
        }
    }

    #[test]
    fn the_line_says_how_many_may_fail_now() {
        let line = |all: &[&str], stopped: &[&str]| {
            let cluster = FakeCluster::new(all);
            stopped.iter().for_each(|name| cluster.stop(name));
            overview(&cluster).quorum_line()
        };
        assert_eq!(line(&["a"], &[]), "1 member, none may fail");
        assert_eq!(line(&["a", "b"], &[]), "2 members, none may fail");
        assert_eq!(line(&["a", "b", "c"], &[]), "3 members, 1 may fail");
        let five = ["a", "b", "c", "d", "e"];
        assert_eq!(line(&five, &[]), "5 members, 2 may fail");
        assert_eq!(
            line(&five, &["a"]),
            "5 members, 4 of them serve, 1 may fail"
        );
        assert_eq!(
            line(&["a", "b", "c"], &["b"]),
            "3 members, 2 of them serve, none may fail"
        );
        assert_eq!(
            line(&["a", "b", "c"], &["b", "c"]),
            "3 members, 0 of them serve: no quorum, 2 are needed"
        );
    }

    #[test]
    fn unreachable_members_do_not_mean_a_lost_quorum() {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        cluster.hide("b");
        cluster.hide("c");
        let seen = overview(&cluster);
        assert!(seen.has_quorum && !seen.voters.have_quorum());
        let line = seen.quorum_line();
        assert!(
            line.starts_with("3 members, 1 of them serves: they still have a quorum"),
            "{line}"
        );
        cluster.stop("b");
        cluster.stop("c");
        assert!(!overview(&cluster).has_quorum);
    }

    #[test]
    fn the_leader_and_what_does_not_serve_are_named() {
        let cluster = FakeCluster::new(&["a", "b", "c"]);
        cluster.stop("b");
        let overview = overview(&cluster);
        let leads: Vec<bool> = overview.members.iter().map(|own| own.leads).collect();
        assert_eq!(leads, [true, false, false]);
        assert!(
            overview.members[1]
                .fault
                .as_ref()
                .unwrap()
                .starts_with("b: ")
        );
        assert_eq!(overview.members[0].lag, Some(0));
    }
}
