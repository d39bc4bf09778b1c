//! The space in the members' databases: returns free pages, and clears a reached quota.
//!
//! etcd never shrinks its database file by itself: space that a compaction frees is reused, and
//! counts against the quota until the member is defragmented. During defragmentation the member
//! answers nothing. So one member at a time is defragmented, the leader last, and only while all
//! others serve.

use std::collections::BTreeSet;

use super::{Changes, Patience, Round, again};
use crate::error::EtcdError;
use crate::member::{Alarm, AlarmKind, MemberId, Status};
use crate::overview::{MemberOverview, Overview};
use crate::refusal::Refusal;

/// The part of its quota, in percent, above which a database counts as full after everything
/// possible was freed. A larger one would raise its alarm again at once.
const FULL: u64 = 90;

/// The space that a member freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The member.
    pub name: String,
    /// The previous size of its database, in bytes.
    pub before: u64,
    /// The new size.
    pub after: u64,
}

impl std::fmt::Display for Freed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, after) = (mib(self.before), mib(self.after));
        write!(f, "{}: {before} MiB → {after} MiB", self.name)
    }
}

/// The reason why no more space can be freed. Freed space stays free.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The members' data differs: nothing may be removed until it is known which is right.
    #[error(
        "cannot touch the databases of etcd: the member {0} has the alarm CORRUPT; remove it and add it again"
    )]
    Corrupt(MemberId),
    /// No member has this name.
    #[error("cannot defragment {name}: it is not a member of etcd; the members are {members}")]
    NoMember {
        /// The name.
        name: String,
        /// The members.
        members: String,
    },
    /// The data in use fills the quota.
    #[error(
        "cannot make room in etcd: the database of {name} uses {} MiB of its quota of {} MiB; delete objects, or \
         declare a larger `quota-backend-bytes` in etcd.extraArgs",
        mib(*.in_use), mib(*.quota)
    )]
    Full {
        /// The member.
        name: String,
        /// Bytes in use.
        in_use: u64,
        /// The quota in bytes.
        quota: u64,
    },
    /// The timeout has expired.
    #[error("waited {limit} s until {until}: {because}; run it again when all members serve")]
    TooLong {
        /// The awaited condition.
        until: String,
        /// The timeout in seconds.
        limit: u64,
        /// The last reason.
        because: String,
    },
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// The members that were defragmented by one change.
#[derive(Default)]
struct Done {
    ids: BTreeSet<MemberId>,
    freed: Vec<Freed>,
    /// A member that currently cannot free any more.
    full: Option<SpaceError>,
}

/// The members to defragment.
#[derive(Clone, Copy)]
struct Due<'a> {
    /// Only members with more than this percentage of their database free.
    above: u8,
    /// If set, only this member.
    only: Option<&'a str>,
}

impl Due<'_> {
    fn matches(self, own: &MemberOverview) -> bool {
        let free = own.status.as_ref().map(Status::free_percent);
        self.only.is_none_or(|name| own.member.title() == name)
            && free.is_none_or(|free| free > u64::from(self.above))
    }

    fn check_name(self, overview: &Overview) -> Result<(), SpaceError> {
        let Some(name) = self.only else {
            return Ok(());
        };
        let titles = || overview.members.iter().map(|own| own.member.title());
        if titles().any(|title| title == name) {
            return Ok(());
        }
        Err(SpaceError::NoMember {
            name: name.to_owned(),
            members: titles().collect::<Vec<_>>().join(", "),
        })
    }
}

impl Changes<'_> {
    /// Defragments the members with more than `above` percent of their database free.
    ///
    /// # Errors
    /// The members' data differs, or the others did not all serve at any time before the timeout.
    pub async fn defragment(&self, above: u8) -> Result<Vec<Freed>, SpaceError> {
        let until = "the databases of etcd are defragmented".to_owned();
        self.defragment_due(until, Due { above, only: None }).await
    }

    /// Defragments one member, if a percent of its database or more is free.
    ///
    /// # Errors
    /// No member has this name; or as [`Changes::defragment`].
    pub async fn defragment_member(&self, name: &str) -> Result<Vec<Freed>, SpaceError> {
        let until = format!("the database of {name} is defragmented");
        let only = Some(name);
        self.defragment_due(until, Due { above: 0, only }).await
    }

    async fn defragment_due(&self, until: String, due: Due<'_>) -> Result<Vec<Freed>, SpaceError> {
        let patience = self.patience(until);
        let mut done = Done::default();
        loop {
            let because = match self.defragment_round(due, &mut done).await? {
                Round::Done(()) => return Ok(done.freed),
                Round::Again(because) => because,
            };
            wait(&patience, because).await?;
        }
    }

    async fn defragment_round(
        &self,
        due: Due<'_>,
        done: &mut Done,
    ) -> Result<Round<()>, SpaceError> {
        let overview = match Overview::take(self.members).await {
            Ok(overview) => overview,
            Err(error) => return Ok(again(&error)),
        };
        sound(&overview.alarms)?;
        due.check_name(&overview)?;
        let is_due = |own: &&MemberOverview| {
            let is_new = !done.ids.contains(&own.member.id) && own.member.has_started();
            is_new && due.matches(own)
        };
        // A member that does not answer may be due, so wait for it.
        let Some(next) = overview.members.iter().filter(is_due).min_by_key(order) else {
            return Ok(Round::Done(()));
        };
        self.defragment_one(&overview, next, done).await
    }

    /// Clears a reached quota: removes old revisions, frees their space, and disarms the alarms.
    /// All keys keep their current values.
    ///
    /// # Errors
    /// The members' data differs, the data in use fills the quota, or the others did not all serve
    /// at any time before the timeout.
    pub async fn make_room(&self) -> Result<Vec<Freed>, SpaceError> {
        let patience = self.patience("etcd has room below its quota".to_owned());
        let (mut done, mut compacted) = (Done::default(), false);
        loop {
            let round = if compacted {
                self.room_round(&mut done).await?
            } else {
                self.compact_round(&mut compacted).await?
            };
            let because = match round {
                Round::Done(()) => return Ok(done.freed),
                Round::Again(because) => because,
            };
            if let Err(error) = wait(&patience, because).await {
                return Err(done.full.unwrap_or(error));
            }
        }
    }

    /// Removes old revisions. The API server does this every five minutes with a write, which the
    /// alarm refuses.
    async fn compact_round(&self, compacted: &mut bool) -> Result<Round<()>, SpaceError> {
        let overview = match Overview::take(self.members).await {
            Ok(overview) => overview,
            Err(error) => return Ok(again(&error)),
        };
        sound(&overview.alarms)?;
        let known = overview
            .members
            .iter()
            .filter_map(|own| own.status.as_ref());
        let Some(newest) = known.map(|status| status.revision).max() else {
            return Ok(Round::Again("no member answers".to_owned()));
        };
        match self.members.compact(newest).await {
            Ok(()) => *compacted = true,
            Err(error) if is_compacted(&error) => *compacted = true,
            Err(error) => return Ok(again(&error)),
        }
        Ok(Round::Again("old revisions were removed".to_owned()))
    }

    async fn room_round(&self, done: &mut Done) -> Result<Round<()>, SpaceError> {
        let overview = match Overview::take(self.members).await {
            Ok(overview) => overview,
            Err(error) => return Ok(again(&error)),
        };
        sound(&overview.alarms)?;
        let raised = |own: &MemberOverview| {
            overview
                .alarms
                .iter()
                .any(|alarm| alarm.member == own.member.id)
        };
        let tight = |own: &&MemberOverview| match &own.status {
            Some(status) if status.db_quota > 0 => status.db_size * 100 > status.db_quota * FULL,
            // It does not report its quota.
            _ => raised(own) && !done.ids.contains(&own.member.id),
        };
        // A defragmented member can free more only after it has compacted more revisions.
        let can_free = |own: &&MemberOverview| {
            let free = own.status.as_ref().map_or(0, Status::free_percent);
            !done.ids.contains(&own.member.id) || free >= 100 - FULL
        };
        let mut members = overview.members.iter().filter(tight);
        let Some(first) = members.clone().next() else {
            return self.disarm_all(&overview).await;
        };
        let Some(next) = members.by_ref().filter(can_free).min_by_key(order) else {
            let status = first.status.as_ref();
            done.full = Some(SpaceError::Full {
                name: first.member.title(),
                in_use: status.map_or(0, |status| status.db_in_use),
                quota: status.map_or(0, |status| status.db_quota),
            });
            return Ok(Round::Again(format!(
                "{} has not compacted more revisions yet",
                first.member.title()
            )));
        };
        done.full = None;
        self.defragment_one(&overview, next, done).await
    }

    async fn disarm_all(&self, overview: &Overview) -> Result<Round<()>, SpaceError> {
        if overview.alarms.is_empty() {
            return Ok(Round::Done(()));
        }
        for alarm in &overview.alarms {
            if let Err(error) = self.members.disarm(*alarm).await {
                return Ok(again(&error));
            }
        }
        Ok(Round::Again("the alarms are disarmed".to_owned()))
    }

    /// Defragments one member, if all others serve.
    async fn defragment_one(
        &self,
        overview: &Overview,
        next: &MemberOverview,
        done: &mut Done,
    ) -> Result<Round<()>, SpaceError> {
        let voters = overview.members.iter().filter(|own| !own.member.is_learner);
        if let Some(fault) = voters.filter_map(|own| own.fault.as_ref()).next() {
            return Ok(Round::Again(fault.clone()));
        }
        if !overview.voters.have_quorum() {
            return Ok(Round::Again(overview.quorum_line()));
        }
        let Some(before) = next.status.as_ref().map(|status| status.db_size) else {
            return Ok(Round::Again(format!(
                "{} does not answer",
                next.member.title()
            )));
        };
        if let Err(error) = self.members.defragment(&next.member).await {
            return Ok(again(&error));
        }
        done.ids.insert(next.member.id);
        let after = self.members.status(&next.member).await;
        done.freed.push(Freed {
            name: next.member.title(),
            before,
            after: after.map_or(before, |status| status.db_size),
        });
        Ok(Round::Again(format!(
            "{} was defragmented",
            next.member.title()
        )))
    }
}

async fn wait(patience: &Patience<'_>, because: String) -> Result<(), SpaceError> {
    let waited = patience.wait(because).await;
    waited.map_err(|because| SpaceError::TooLong {
        until: patience.until.clone(),
        limit: patience.changes.limit.as_secs(),
        because,
    })
}

fn sound(alarms: &[Alarm]) -> Result<(), SpaceError> {
    let mut corrupt = alarms
        .iter()
        .filter(|alarm| alarm.kind == AlarmKind::Corrupt);
    match corrupt.next() {
        Some(alarm) => Err(SpaceError::Corrupt(alarm.member)),
        None => Ok(()),
    }
}

/// The sort key: the leader last, the others by name.
fn order(own: &&MemberOverview) -> (bool, String) {
    (own.leads, own.member.title())
}

fn is_compacted(error: &EtcdError) -> bool {
    error.refusal() == Some(&Refusal::Compacted)
}
