//! The quorum rule as pure functions: the members that may be missing, join or leave.

/// The number of members with a vote, and of those that serve: they answer, follow a leader, and
/// have caught up with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Voters {
    /// All voting members.
    pub all: usize,
    /// The voting members that serve; at most all.
    pub serving: usize,
}

/// The number of votes that a cluster with this many voting members needs.
#[must_use]
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The number of members that may fail without a loss of quorum.
#[must_use]
pub fn tolerance(voters: usize) -> usize {
    voters.saturating_sub(quorum(voters))
}

/// The verdict on whether one more member may be missing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The rule does not apply: a cluster of one or two cannot lose a member, and its hosts must be
    /// worked on all the same.
    TooFew,
    /// Nothing indicates that the cluster has a quorum: it is repaired without waiting.
    NoQuorum,
    /// The others are a quorum without it.
    Allowed,
    /// The others would not be a quorum, or their quorum cannot be verified.
    Refused,
}

impl Voters {
    /// `true` while enough members serve for writes to succeed.
    #[must_use]
    pub fn have_quorum(self) -> bool {
        self.all > 0 && self.serving >= quorum(self.all)
    }

    /// Returns whether one more member may be missing; `serves` says whether it serves at present.
    /// A host without a vote is not missed: pass `votes` as `false`. `has_quorum` says that they
    /// certainly have a quorum: more may serve than are seen to.
    #[must_use]
    pub fn allow_missing(self, has_quorum: bool, votes: bool, serves: bool) -> Verdict {
        if self.all < 3 {
            return Verdict::TooFew;
        }
        let others = self.serving - usize::from(votes && serves);
        if others >= quorum(self.all) {
            Verdict::Allowed
        } else if has_quorum || self.have_quorum() {
            Verdict::Refused
        } else {
            Verdict::NoQuorum
        }
    }

    /// Returns whether the members would still be a quorum of all after a serving member got its
    /// vote.
    #[must_use]
    pub fn keep_quorum_with_one_more(self) -> bool {
        self.have_quorum() && self.serving + 1 >= quorum(self.all + 1)
    }

    /// Returns whether the members would still be a quorum of all after this one left, whether or
    /// not it serves. The last one never leaves.
    #[must_use]
    pub fn keep_quorum_without_one(self, serves: bool) -> bool {
        let Some(rest) = self.all.checked_sub(1).filter(|rest| *rest > 0) else {
            return false;
        };
        let others = self.serving.saturating_sub(usize::from(serves));
        // The removal itself is a write, decided by the previous members.
        self.have_quorum() && others >= quorum(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All combinations of serving and missing members; the first is the one in question.
    fn rows() -> impl Strategy<Value = Vec<bool>> {
        proptest::collection::vec(any::<bool>(), 1..10)
    }

    fn voters(row: &[bool]) -> Voters {
        let serving = row.iter().filter(|serves| **serves).count();
        Voters {
            all: row.len(),
            serving,
        }
    }

    /// Raft's rule: more than half.
    fn majority(row: &[bool]) -> bool {
        2 * row.iter().filter(|serves| **serves).count() > row.len()
    }

    proptest! {
        #[test]
        fn what_is_seen_decides_only_for_the_safe_side(
            both in proptest::collection::vec(any::<(bool, bool)>(), 3..10),
            proof: bool,
        ) {
            let truth: Vec<bool> = both.iter().map(|(serves, _)| *serves).collect();
            let seen: Vec<bool> = both.iter().map(|(serves, seen)| *serves && *seen).collect();
            let mut without = truth.clone();
            without[0] = false;
            let has_quorum = proof && majority(&truth);
            match voters(&seen).allow_missing(has_quorum, true, seen[0]) {
                Verdict::Allowed => prop_assert!(majority(&without)),
                Verdict::NoQuorum => prop_assert!(!has_quorum && !majority(&seen)),
                Verdict::Refused => prop_assert!(has_quorum || majority(&seen)),
                Verdict::TooFew => prop_assert!(false, "three or more"),
            }
        }

        #[test]
        fn what_is_allowed_never_takes_the_quorum_away(row in rows()) {
            let mut without = row.clone();
            without[0] = false;
            let verdict = voters(&row).allow_missing(majority(&row), true, row[0]);
            let expected = match (row.len() < 3, majority(&row), majority(&without)) {
                (true, ..) => Verdict::TooFew,
                (false, false, _) => Verdict::NoQuorum,
                (false, true, true) => Verdict::Allowed,
                (false, true, false) => Verdict::Refused,
            };
            prop_assert_eq!(verdict, expected);
        }

        #[test]
        fn a_host_without_a_vote_is_never_missed(row in rows(), serves: bool) {
            let verdict = voters(&row).allow_missing(majority(&row), false, serves);
            prop_assert_ne!(verdict, Verdict::Refused);
        }

        #[test]
        fn a_member_leaves_only_when_the_rest_is_a_quorum(row in rows()) {
            let expected = row.len() > 1 && majority(&row) && majority(&row[1..]);
            prop_assert_eq!(voters(&row).keep_quorum_without_one(row[0]), expected);
        }

        #[test]
        fn a_vote_is_given_only_when_the_members_stay_a_quorum(row in rows()) {
            let with = [&row[..], &[true]].concat();
            prop_assert_eq!(voters(&row).keep_quorum_with_one_more(), majority(&row) && majority(&with));
        }

        #[test]
        fn the_tolerance_is_the_number_that_may_fail(all in 1usize..20) {
            let fails = |missing: usize| 2 * (all - missing) <= all;
            prop_assert!(!fails(tolerance(all)));
            prop_assert!(fails(tolerance(all) + 1));
        }
    }

    #[test]
    fn three_members_may_miss_one_and_not_two() {
        let three = |serving| Voters { all: 3, serving };
        assert_eq!(three(3).allow_missing(false, true, true), Verdict::Allowed);
        assert_eq!(three(2).allow_missing(false, true, true), Verdict::Refused);
        // The member that is already missing.
        assert_eq!(three(2).allow_missing(false, true, false), Verdict::Allowed);
        assert_eq!(three(1).allow_missing(false, true, true), Verdict::NoQuorum);
        // One member is seen, and follows a leader.
        let seen = three(1);
        assert_eq!(seen.allow_missing(true, true, true), Verdict::Refused);
        assert_eq!(seen.allow_missing(true, true, false), Verdict::Refused);
        let two = Voters { all: 2, serving: 2 };
        assert_eq!(two.allow_missing(false, true, true), Verdict::TooFew);
    }
}
