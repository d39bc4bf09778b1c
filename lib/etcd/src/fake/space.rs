//! The databases of the cluster in memory, and forced states of its members.

use super::{FakeCluster, Outcome, State};
use crate::member::{Alarm, AlarmKind, MemberId};
use crate::refusal::Refusal;

/// The quota of each member's database.
pub const QUOTA: u64 = 2 << 30;

/// The bytes of a member's database.
#[derive(Debug, Clone, Copy)]
pub struct Database {
    /// The size of its file.
    pub size: u64,
    /// The bytes in use.
    pub in_use: u64,
    /// The bytes in use after a compaction.
    pub data: u64,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            size: 4096,
            in_use: 4096,
            data: 4096,
        }
    }
}

impl State {
    pub(super) fn compact(&mut self, revision: i64) -> Outcome {
        if self.compacted >= revision {
            return Err(Refusal::Compacted);
        }
        self.compacted = revision;
        for own in &mut self.members {
            own.database.in_use = own.database.data;
        }
        self.changes.push("compact".to_owned());
        Ok(())
    }

    pub(super) fn defragment(&mut self, id: MemberId) -> Outcome {
        let own = self.find(id)?;
        own.database.size = own.database.in_use;
        let name = own.member.title();
        self.changes.push(format!("defragment {name}"));
        Ok(())
    }

    pub(super) fn disarm(&mut self, alarm: Alarm) -> Outcome {
        let name = self.find(alarm.member)?.member.title();
        self.alarms.retain(|raised| *raised != alarm);
        self.changes.push(format!("disarm {name}"));
        Ok(())
    }
}

impl FakeCluster {
    /// Sets a member's database. A size above the quota raises the alarm.
    pub fn set_database(&self, name: &str, database: Database) {
        let mut state = self.state();
        let mut raised = Vec::new();
        for own in &mut state.members {
            if own.member.name == name {
                own.database = database;
                raised.extend((database.size > QUOTA).then_some(own.member.id));
            }
        }
        let alarm = |member| Alarm {
            member,
            kind: AlarmKind::NoSpace,
        };
        state.alarms.extend(raised.into_iter().map(alarm));
    }

    /// Starts a member with `--force-new-cluster`: it becomes the only member.
    pub fn force_new_cluster(&self, name: &str) {
        let mut state = self.state();
        state.members.retain(|own| own.member.name == name);
        for own in &mut state.members {
            own.runs = true;
        }
        state.elect();
    }

    /// Makes a member raise the alarm for differing data.
    pub fn set_corrupt(&self, name: &str) {
        let mut state = self.state();
        let found = state.members.iter().find(|own| own.member.name == name);
        let Some(member) = found.map(|own| own.member.id) else {
            return;
        };
        let kind = AlarmKind::Corrupt;
        state.alarms.push(Alarm { member, kind });
    }
}
