//! The times at which certificates are renewed, and the hosts of each job. Pure: the time comes in
//! as a value.

use halite_proto::ids::MinionId;
use halite_store::Millis;

const SECOND: Millis = 1000;
const MINUTE: Millis = 60 * SECOND;
const HOUR: Millis = 60 * MINUTE;

/// The interval between two checks of the hosts, and its maximum jitter, so that masters started
/// together drift apart.
pub const LOOK: Millis = 6 * HOUR;
pub const JITTER: Millis = HOUR;
/// The time after a start within which the first check starts, half of it at random. Minions have
/// reconnected by then.
pub const START: Millis = 40 * SECOND;
/// The time after a trial that failed on a host until the next one there.
pub const AGAIN: Millis = 6 * HOUR;
/// The same after a trial that did not fail, and while a certificate of the host has expired; and
/// the time to the next check while a host has not answered.
pub const SOON: Millis = 10 * MINUTE;
/// The time to the next check while other states are applied, and while certificates due for
/// renewal wait for an operator or for their next trial.
pub const BUSY: Millis = MINUTE;
/// The time after a start of the master for which it waits for missing hosts: after a power cut of
/// all hosts they come back one after the other.
pub const SETTLE: Millis = 5 * MINUTE;
/// The time to the next check during that wait.
pub const SETTLING: Millis = 20 * SECOND;

/// A host with certificates that are due for renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRenewal {
    /// The host.
    pub host: MinionId,
    /// The end of the certificate that ends first.
    pub ends: Millis,
    /// `true` if one has expired.
    pub expired: bool,
    /// `true` if one has expired with which its etcd member accepts the others.
    pub cut_off: bool,
    /// `true` if it has an etcd member or an API server: it gets a turn of its own.
    pub alone: bool,
    /// The last trial on this host.
    pub tried: Option<Tried>,
}

/// A trial that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The time of its end.
    pub ended: Millis,
    /// `true` if the host itself failed; otherwise its turn did not come, or its states succeeded.
    pub failed: bool,
}

impl DueRenewal {
    /// The time from which on the host is tried. A trial in the future dates from before the clock
    /// was set back, and does not count.
    #[must_use]
    pub fn from(&self, now: Millis) -> Millis {
        let tried = self.tried.as_ref().filter(|tried| tried.ended <= now);
        let pause = |tried: &Tried| {
            if self.expired || !tried.failed {
                SOON
            } else {
                AGAIN
            }
        };
        tried.map_or(now, |tried| tried.ended + pause(tried))
    }
}

/// The members of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    /// The number of declared ones.
    pub all: usize,
    /// The number that can accept others: their host has answered, and their certificates are
    /// valid.
    pub valid: usize,
}

impl Members {
    /// Returns whether so many certificates have expired that the members are not a quorum,
    /// whatever they answer.
    fn are_cut_off(self) -> bool {
        self.valid < self.all / 2 + 1
    }
}

/// The hosts of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalBatch {
    /// All its hosts.
    pub hosts: Vec<MinionId>,
    /// Groups that run one after the other, each after a check of etcd; if empty, all hosts run in
    /// parallel.
    pub order: Vec<Vec<MinionId>>,
}

/// The next trial; `None` while no host is due.
///
/// Members of etcd that can no longer reach each other are done in parallel: there is no quorum
/// that could be asked, or lost. Then come the other hosts of the control plane, one by one: hosts
/// with an expired certificate first, and hosts that failed last time at the end, so that a host
/// that cannot be renewed does not hold up the others. Then all other hosts.
#[must_use]
pub fn next(due: &[DueRenewal], members: Members, now: Millis) -> Option<RenewalBatch> {
    let ready = due.iter().filter(|host| host.from(now) <= now);
    let (mut alone, others): (Vec<&DueRenewal>, Vec<&DueRenewal>) =
        ready.partition(|host| host.alone);
    let names = |hosts: &[&DueRenewal]| -> Vec<MinionId> {
        hosts.iter().map(|host| host.host.clone()).collect()
    };
    let in_parallel = |hosts: &[&DueRenewal]| RenewalBatch {
        hosts: names(hosts),
        order: Vec::new(),
    };
    if members.are_cut_off() {
        let cut_off: Vec<&DueRenewal> = alone.iter().copied().filter(|host| host.cut_off).collect();
        if !cut_off.is_empty() {
            return Some(in_parallel(&cut_off));
        }
    }
    alone.sort_by_key(|host| {
        let failed = host.tried.as_ref().is_some_and(|tried| tried.failed);
        (failed, !host.expired, host.host.clone())
    });
    if !alone.is_empty() {
        let hosts = names(&alone);
        let order = hosts.iter().map(|host| vec![host.clone()]).collect();
        return Some(RenewalBatch { hosts, order });
    }
    (!others.is_empty()).then(|| in_parallel(&others))
}

/// The time of the next check when there is nothing to do now. `random` is a random number below
/// its argument.
#[must_use]
pub fn rest(
    due: &[DueRenewal],
    away: bool,
    now: Millis,
    random: impl Fn(Millis) -> Millis,
) -> Millis {
    let usual = if away {
        now + SOON
    } else {
        now + LOOK - random(JITTER)
    };
    let trials = due.iter().map(|host| host.from(now));
    // A check a moment before its time would find nothing to do.
    trials
        .map(|at| at + random(MINUTE))
        .fold(usual, Millis::min)
        .max(now + SECOND)
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;

    use super::*;

    const NOW: Millis = 1_800_000_000_000;
    const SOUND: Members = Members { all: 3, valid: 3 };

    fn host(name: &str) -> DueRenewal {
        DueRenewal {
            host: minion(name),
            ends: NOW + 1,
            expired: false,
            cut_off: false,
            alone: name.starts_with("cp"),
            tried: None,
        }
    }

    fn expired(name: &str) -> DueRenewal {
        DueRenewal {
            ends: NOW,
            expired: true,
            cut_off: true,
            ..host(name)
        }
    }

    fn tried(ago: Millis, failed: bool, due: DueRenewal) -> DueRenewal {
        let ended = NOW - ago;
        DueRenewal {
            tried: Some(Tried { ended, failed }),
            ..due
        }
    }

    fn order(due: &[DueRenewal], members: Members) -> Vec<Vec<String>> {
        let trial = next(due, members, NOW);
        let trial = trial.expect("a trial");
        let names = |group: Vec<MinionId>| group.into_iter().map(String::from).collect();
        match trial.order.is_empty() {
            true => vec![names(trial.hosts)],
            false => trial.order.into_iter().map(names).collect(),
        }
    }

    #[test]
    fn only_a_host_that_failed_waits_for_hours() {
        let from = |due: DueRenewal| due.from(NOW) - NOW;
        assert_eq!(from(host("w-1")), 0);
        assert_eq!(from(tried(0, false, host("w-1"))), SOON);
        assert_eq!(from(tried(0, true, host("w-1"))), AGAIN);
        assert_eq!(from(tried(0, true, expired("w-1"))), SOON);
    }

    #[test]
    fn control_planes_come_one_by_one_and_then_all_workers() {
        let mut due = vec![host("w-2"), host("cp-2"), host("w-1"), host("cp-1")];
        assert_eq!(order(&due, SOUND), [["cp-1"], ["cp-2"]]);
        due.retain(|host| !host.alone);
        assert_eq!(order(&due, SOUND), [["w-2", "w-1"]]);
        assert_eq!(next(&[], SOUND, NOW), None);
    }

    #[test]
    fn a_member_that_is_cut_off_comes_first_and_one_that_failed_last() {
        let due = [
            tried(AGAIN, true, host("cp-1")),
            host("cp-2"),
            expired("cp-3"),
        ];
        let members = Members { all: 3, valid: 2 };
        assert_eq!(order(&due, members), [["cp-3"], ["cp-2"], ["cp-1"]]);
    }

    #[test]
    fn members_without_a_quorum_are_renewed_in_parallel_before_the_others() {
        let due = [
            host("cp-1"),
            expired("cp-2"),
            expired("cp-3"),
            expired("w-1"),
        ];
        let members = Members { all: 3, valid: 1 };
        assert_eq!(order(&due, members), [["cp-2", "cp-3"]]);
        let single = Members { all: 1, valid: 0 };
        assert_eq!(order(&[expired("cp-1"), host("w-1")], single), [["cp-1"]]);
        // A missing host is not part of a quorum either, but valid members are never done in
        // parallel.
        assert_eq!(order(&[host("cp-1"), host("cp-2")], members).len(), 2);
    }

    #[test]
    fn a_host_is_tried_again_after_six_hours_and_sooner_when_it_has_expired() {
        let at = |due: &DueRenewal| due.from(NOW);
        assert_eq!(at(&host("w")), NOW);
        assert_eq!(at(&tried(MINUTE, true, host("w"))), NOW + AGAIN - MINUTE);
        assert_eq!(at(&tried(MINUTE, true, expired("w"))), NOW + SOON - MINUTE);
        assert_eq!(
            at(&tried(-HOUR, true, host("w"))),
            NOW,
            "the clock went back"
        );
        let waiting = [tried(MINUTE, false, host("w"))];
        assert_eq!(next(&waiting, SOUND, NOW), None);
        let due = [tried(SOON, true, expired("w-1")), host("w-2")];
        assert_eq!(order(&due, SOUND), [["w-1", "w-2"]]);
    }

    #[test]
    fn the_next_look_is_jittered_and_never_after_the_next_trial() {
        let most = |below: Millis| below - 1;
        assert_eq!(rest(&[], false, NOW, |_| 0), NOW + LOOK);
        assert_eq!(rest(&[], false, NOW, most), NOW + LOOK - JITTER + 1);
        assert_eq!(rest(&[], true, NOW, most), NOW + SOON);
        let failed = [tried(MINUTE, true, expired("cp-1"))];
        assert_eq!(rest(&failed, false, NOW, |_| 0), NOW + SOON - MINUTE);
        assert!(rest(&failed, false, NOW, most) < NOW + SOON);
    }
}
