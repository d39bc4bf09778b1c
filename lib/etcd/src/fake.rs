//! A cluster in memory, with etcd's own checks, for tests of membership changes.

mod pace;
mod sight;
mod space;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::change::MemberHost;
use crate::error::{EtcdError, NoAnswer, Unanswered};
use crate::member::{Alarm, KEYS, Keys, Member, MemberId, Members, MembersFuture, Status};
use crate::quorum::quorum;
use crate::refusal::Refusal;
use crate::snapshot::{SNAPSHOT, Snapshot};

pub use pace::FakePace;
pub use space::{Database, QUOTA};

/// The peer address of a host in the fake.
#[must_use]
pub fn host(name: &str) -> MemberHost {
    MemberHost {
        name: name.to_owned(),
        peer_url: format!("https://{name}:2380"),
    }
}

/// The cluster.
pub struct FakeCluster {
    state: Mutex<State>,
    at_snapshot: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

struct State {
    members: Vec<FakeMember>,
    /// The id of the next member.
    next: u64,
    leader: Option<MemberId>,
    /// The last leader, which a learner never forgets.
    last_leader: Option<MemberId>,
    /// The number of committed entries.
    index: u64,
    /// The number of entries that a running member catches up in one tick.
    rate: u64,
    /// The changes of membership that happened.
    changes: Vec<String>,
    /// The revision up to which old revisions are removed.
    compacted: i64,
    /// The alarms that are raised.
    alarms: Vec<Alarm>,
    /// The parts of the snapshot that each member gives.
    snapshot: Vec<Vec<u8>>,
}

struct FakeMember {
    member: Member,
    runs: bool,
    /// `true` while clients cannot reach it; the other members can.
    hidden: bool,
    applied: u64,
    database: Database,
}

impl FakeMember {
    fn answers(&self) -> bool {
        self.runs && !self.hidden
    }
}

type Outcome = Result<(), Refusal>;

impl State {
    fn voters(&self) -> impl Iterator<Item = &FakeMember> {
        self.members.iter().filter(|own| !own.member.is_learner)
    }

    fn has_quorum(&self) -> bool {
        let running = self.voters().filter(|own| own.runs).count();
        running >= quorum(self.voters().count())
    }

    fn elect(&mut self) {
        let stays = |own: &&FakeMember| own.runs && Some(own.member.id) == self.leader;
        let present = self.voters().find(stays);
        let newest = self
            .voters()
            .filter(|own| own.runs)
            .max_by_key(|own| own.applied);
        let leader = present.or(newest).map(|own| own.member.id);
        self.leader = leader.filter(|_| self.has_quorum());
        self.last_leader = self.leader.or(self.last_leader);
    }

    fn find(&mut self, id: MemberId) -> Result<&mut FakeMember, Refusal> {
        let found = self.members.iter_mut().find(|own| own.member.id == id);
        found.ok_or(Refusal::MemberNotFound)
    }

    fn add(&mut self, peer_url: &str) -> Outcome {
        if self.members.iter().any(|own| own.member.is_at(peer_url)) {
            return Err(Refusal::PeerUrlExists);
        }
        if self.members.iter().any(|own| own.member.is_learner) {
            return Err(Refusal::TooManyLearners);
        }
        if !self.voters().all(|own| own.runs) {
            return Err(Refusal::Unhealthy);
        }
        let member = Member {
            id: MemberId(self.next),
            name: String::new(),
            peer_urls: vec![peer_url.to_owned()],
            client_urls: Vec::new(),
            is_learner: true,
        };
        self.next += 1;
        self.members.push(FakeMember {
            member,
            runs: false,
            hidden: false,
            applied: 0,
            database: Database::default(),
        });
        self.changes.push(format!("add {peer_url}"));
        Ok(())
    }

    fn promote(&mut self, id: MemberId) -> Outcome {
        let (index, voters) = (self.index, self.voters().count());
        let started = self.voters().filter(|own| own.member.has_started()).count();
        let learner = self.find(id)?;
        if !learner.member.is_learner {
            return Err(Refusal::NotLearner);
        }
        if learner.applied * 10 < index * 9 {
            return Err(Refusal::LearnerNotReady);
        }
        if started + 1 < quorum(voters + 1) {
            return Err(Refusal::NotEnoughStarted);
        }
        let learner = self.find(id)?;
        learner.member.is_learner = false;
        let name = learner.member.title();
        self.changes.push(format!("promote {name}"));
        Ok(())
    }

    fn remove(&mut self, id: MemberId) -> Outcome {
        let (name, is_learner, runs) = {
            let own = self.find(id)?;
            (own.member.title(), own.member.is_learner, own.runs)
        };
        let rest: Vec<&FakeMember> = self.voters().filter(|own| own.member.id != id).collect();
        let started = rest.iter().filter(|own| own.member.has_started()).count();
        let running = rest.iter().filter(|own| own.runs).count();
        if !is_learner && started < quorum(rest.len()) {
            return Err(Refusal::NotEnoughStarted);
        }
        if !is_learner && runs && running < quorum(rest.len()) {
            return Err(Refusal::Unhealthy);
        }
        self.members.retain(|own| own.member.id != id);
        self.changes.push(format!("remove {name}"));
        self.elect();
        Ok(())
    }

    fn move_leader(&mut self, leader: MemberId, to: MemberId) -> Outcome {
        if self.leader != Some(leader) {
            return Err(Refusal::NotLeader);
        }
        let next = self.find(to)?;
        if next.member.is_learner || !next.runs {
            return Err(Refusal::BadTransferee);
        }
        let name = next.member.title();
        self.leader = Some(to);
        self.changes.push(format!("lead {name}"));
        Ok(())
    }
}

impl FakeCluster {
    /// A cluster of these members, all running. The first one leads.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let own = |(id, name): (u64, &&str)| FakeMember {
            member: Member {
                id: MemberId(id),
                name: (*name).to_owned(),
                peer_urls: vec![host(name).peer_url],
                client_urls: vec![format!("https://{name}:2379")],
                is_learner: false,
            },
            runs: true,
            hidden: false,
            applied: 100,
            database: Database::default(),
        };
        let members: Vec<FakeMember> = (1..).zip(names).map(own).collect();
        let mut state = State {
            next: 1 + members.len() as u64,
            leader: members.first().map(|own| own.member.id),
            members,
            last_leader: None,
            index: 100,
            rate: 1000,
            changes: Vec::new(),
            compacted: 0,
            alarms: Vec::new(),
            snapshot: vec![vec![1; 40], vec![2; 30]],
        };
        state.elect();
        Self {
            state: Mutex::new(state),
            at_snapshot: Mutex::default(),
        }
    }

    /// Sets the parts of the snapshot that each member gives.
    pub fn set_snapshot(&self, parts: Vec<Vec<u8>>) {
        self.state().snapshot = parts;
    }

    /// Runs this when a member gives a snapshot.
    pub fn at_snapshot(&self, run: impl FnMut() + Send + 'static) {
        *self
            .at_snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Box::new(run));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the etcd of a host. It does not come up if the host is not a member.
    pub fn start(&self, host: &MemberHost) {
        let mut state = self.state();
        for own in &mut state.members {
            if own.member.is_at(&host.peer_url) {
                own.runs = true;
                own.member.name.clone_from(&host.name);
                own.member.client_urls = vec![format!("https://{}:2379", host.name)];
            }
        }
        state.elect();
    }

    /// Stops a member.
    pub fn stop(&self, name: &str) {
        let mut state = self.state();
        for own in &mut state.members {
            if own.member.name == name {
                own.runs = false;
            }
        }
        state.elect();
    }

    /// Writes entries; without a quorum nothing happens.
    pub fn write(&self, entries: u64) {
        let mut state = self.state();
        if !state.has_quorum() {
            return;
        }
        state.index += entries;
        let index = state.index;
        for own in &mut state.members {
            if own.runs && !own.member.is_learner {
                own.applied = index;
            }
        }
    }

    /// Sets the number of entries that a member catches up in one tick.
    pub fn set_rate(&self, rate: u64) {
        self.state().rate = rate;
    }

    /// Lets a moment pass: running members catch up.
    pub fn tick(&self) {
        let mut state = self.state();
        let (index, rate) = (state.index, state.rate);
        if state.has_quorum() {
            for own in &mut state.members {
                if own.runs {
                    own.applied = index.min(own.applied + rate);
                }
            }
        }
        state.elect();
    }

    /// The changes that happened: `add URL`, `promote NAME`, `lead NAME`, `remove NAME`, `compact`,
    /// `defragment NAME`, `disarm NAME`.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        self.state().changes.clone()
    }

    /// The name of the leader.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        let state = self.state();
        let leads = |own: &&FakeMember| Some(own.member.id) == state.leader;
        state
            .members
            .iter()
            .find(leads)
            .map(|own| own.member.title())
    }

    /// The members by address, each with its name and whether it votes: the final state of a
    /// change, however often it was interrupted.
    #[must_use]
    pub fn summary(&self) -> Vec<(String, String, bool)> {
        let state = self.state();
        let row = |own: &FakeMember| {
            let member = &own.member;
            (
                member.peer_urls.join(","),
                member.name.clone(),
                !member.is_learner,
            )
        };
        let mut rows: Vec<_> = state.members.iter().map(row).collect();
        rows.sort();
        rows
    }

    fn no_answer<T>(&self, action: &'static str) -> Result<T, EtcdError> {
        let state = self.state();
        let causes = state.members.iter().map(|own| {
            let cause = if own.answers() {
                NoAnswer::Unavailable(Refusal::Unavailable("etcdserver: no leader".into()))
            } else {
                NoAnswer::Stopped
            };
            (format!("https://{}:2379", own.member.title()), cause)
        });
        let source = Unanswered(causes.collect());
        Err(EtcdError::NoAnswer { action, source })
    }

    fn decided(
        &self,
        action: &'static str,
        change: impl FnOnce(&mut State) -> Outcome,
    ) -> Result<(), EtcdError> {
        if !self.answers_for_all() {
            return self.no_answer(action);
        }
        change(&mut self.state()).map_err(|source| EtcdError::Refused {
            action,
            endpoint: "https://fake:2379".to_owned(),
            source,
        })
    }

    fn runs(&self, member: &Member) -> bool {
        self.state().find(member.id).is_ok_and(|own| own.answers())
    }

    /// `true` while a member answers for a quorum.
    fn answers_for_all(&self) -> bool {
        let state = self.state();
        state.has_quorum() && state.members.iter().any(FakeMember::answers)
    }

    fn listed(&self) -> Vec<Member> {
        let state = self.state();
        state.members.iter().map(|own| own.member.clone()).collect()
    }
}

fn stopped(action: &'static str, member: &Member) -> EtcdError {
    EtcdError::NoAnswer {
        action,
        source: Unanswered(vec![(member.client_urls.join(","), NoAnswer::Stopped)]),
    }
}

fn ready<'a, T: Send + 'a>(answer: Result<T, EtcdError>) -> MembersFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl Members for FakeCluster {
    fn list(&self) -> MembersFuture<'_, Vec<Member>> {
        if self.answers_for_all() {
            return ready(Ok(self.listed()));
        }
        ready(self.no_answer("list the members of etcd"))
    }

    fn known(&self) -> MembersFuture<'_, Vec<Member>> {
        if self.state().members.iter().any(FakeMember::answers) {
            return ready(Ok(self.listed()));
        }
        ready(self.no_answer("list the members of etcd"))
    }

    fn status<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Status> {
        let mut state = self.state();
        let (leader, index) = (state.leader, state.index);
        let last_leader = state.last_leader;
        let status = match state.find(member.id) {
            Ok(own) if own.answers() => Status {
                member: member.id,
                cluster: 1,
                leader: if own.member.is_learner {
                    last_leader
                } else {
                    leader
                },
                raft_index: if own.member.is_learner {
                    own.applied
                } else {
                    index
                },
                applied: own.applied,
                revision: i64::try_from(index).unwrap_or(i64::MAX),
                db_size: own.database.size,
                db_in_use: own.database.in_use,
                db_quota: QUOTA,
                is_learner: own.member.is_learner,
                version: "3.6.0".to_owned(),
                errors: Vec::new(),
            },
            _ => {
                let url = member.client_urls.join(",");
                return ready(Err(EtcdError::NoAnswer {
                    action: "read the state of a member",
                    source: Unanswered(vec![(url, NoAnswer::Stopped)]),
                }));
            }
        };
        ready(Ok(status))
    }

    fn alarms(&self) -> MembersFuture<'_, Vec<Alarm>> {
        ready(Ok(self.state().alarms.clone()))
    }

    fn add_learner<'a>(&'a self, peer_url: &'a str) -> MembersFuture<'a, ()> {
        ready(self.decided("add a learner", |state| state.add(peer_url)))
    }

    fn promote(&self, id: MemberId) -> MembersFuture<'_, ()> {
        ready(self.decided("promote a learner", |state| state.promote(id)))
    }

    fn remove(&self, id: MemberId) -> MembersFuture<'_, ()> {
        ready(self.decided("remove a member", |state| state.remove(id)))
    }

    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> MembersFuture<'a, ()> {
        ready(self.decided("move the leader", |state| state.move_leader(leader.id, to)))
    }

    fn compact(&self, revision: i64) -> MembersFuture<'_, ()> {
        ready(self.decided("compact etcd", |state| state.compact(revision)))
    }

    fn defragment<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, ()> {
        let done = self.decided("defragment a member", |state| state.defragment(member.id));
        ready(done)
    }

    fn disarm(&self, alarm: Alarm) -> MembersFuture<'_, ()> {
        ready(self.decided("disarm an alarm", |state| state.disarm(alarm)))
    }

    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> MembersFuture<'a, Keys> {
        if !self.runs(member) {
            return ready(Err(stopped(KEYS, member)));
        }
        let newest = i64::try_from(self.state().index).unwrap_or(i64::MAX);
        let revision = if revision == 0 { newest } else { revision };
        // Each entry of its log has written one key.
        let count = u64::try_from(revision).unwrap_or(0);
        ready(Ok(Keys { revision, count }))
    }

    fn snapshot<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Snapshot> {
        if !self.runs(member) {
            return ready(Err(stopped(SNAPSHOT, member)));
        }
        let mut at_snapshot = self
            .at_snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = at_snapshot.as_mut() {
            run();
        }
        ready(Ok(Snapshot::of_parts(self.state().snapshot.clone())))
    }
}
