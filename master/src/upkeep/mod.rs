//! Work on the cluster that the master does by itself: renews certificates before they end, clears
//! a reached quota of etcd ([`Room`]), and defragments etcd at the declared time
//! ([`Defragmentation`]).
//!
//! A check asks the minions how long the certificates of their hosts are valid, and reads past
//! trials from the store. Both determine the next trial ([`schedule::next`]): one job, with the
//! states that renew certificates and load them. No state is kept in between, so a restarted master
//! resumes from the current state: a job started before the restart is awaited like any other.

pub(crate) mod calendar;
mod certificates;
mod defragmentation;
#[cfg(test)]
mod defragmentation_tests;
mod history;
mod room;
mod schedule;
#[cfg(test)]
mod tests;
mod trials;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use halite_core::board::{HostRenewal, Renewal, RenewalBoard};
use halite_core::clock::Steady;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::function::{Function, FunctionSite};
use halite_fleet::jobs::{Jobs, target};
use halite_pillar::certificates::Renewal as Declared;
use halite_proto::ids::{JobId, MinionId};
use halite_store::Millis;

use self::history::Last;
use self::schedule::{
    BUSY, DueRenewal, Members, RenewalBatch, SETTLE, SETTLING, SOON, START, Tried,
};

pub use self::defragmentation::Defragmentation;
pub use self::room::Room;

/// The timeout of a minion's answer.
const LIMIT: Duration = Duration::from_secs(3);

/// A random number below its argument.
type Random = Box<dyn Fn(Millis) -> Millis + Send + Sync>;

/// The upkeep of one master.
pub struct Upkeep {
    jobs: Arc<Jobs>,
    started: Steady,
    random: Random,
    /// Hosts for which no job could be made, which the store does not contain.
    refused: Mutex<BTreeMap<MinionId, Last>>,
}

/// The action after a check.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Another check: a trial has ended.
    Look,
    /// Another check at this time.
    LookAt(Millis),
}

impl Upkeep {
    /// Upkeep with the jobs of this master.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>) -> Self {
        Self::with_random(jobs, Box::new(random))
    }

    fn with_random(jobs: Arc<Jobs>, random: Random) -> Self {
        let started = jobs.app().clock.steady();
        Self {
            jobs,
            started,
            random,
            refused: Mutex::default(),
        }
    }

    /// Runs the maintenance loop; never returns.
    pub async fn run(&self) {
        sleep(START / 2 + (self.random)(START / 2)).await;
        loop {
            let now = self.jobs.app().clock.now();
            let next = self.step().await.unwrap_or_else(|error| {
                tracing::error!(%error, "cannot look at the certificates; trying again");
                Next::LookAt(now + SOON)
            });
            if let Next::LookAt(next) = next {
                self.jobs.app().upkeep.put_next(next);
                sleep(next - self.jobs.app().clock.now()).await;
            }
        }
    }

    /// One check, and the trial that follows from it, to its end.
    async fn step(&self) -> Result<Next, Refusal> {
        let look = self.look().await?;
        let app = self.jobs.app();
        let now = look.now;
        let mut rest = look.rest(&self.random);
        if !look.due.is_empty() {
            // An operator may renew them at any time, and must not read for hours afterwards that
            // they have expired.
            rest = rest.min(now + BUSY);
        }
        if !look.automatic {
            app.upkeep.put(look.seen(Some(rest), |_| Renewal::Operator));
            return Ok(Next::LookAt(rest));
        }
        let Some(trial) = schedule::next(&look.due, look.members, now) else {
            // Each was tried recently.
            app.upkeep.put(look.seen(Some(rest), |_| waits(AGAIN)));
            return Ok(Next::LookAt(rest));
        };
        let settling = look.away && app.clock.steady() - self.started < SETTLE;
        let busy = match busy(&self.jobs).await? {
            Some(what) => Some((what, now + BUSY)),
            None => settling.then(|| (AWAY.to_owned(), now + SETTLING)),
        };
        if let Some((what, next)) = busy {
            app.upkeep.put(look.seen(Some(next), |_| waits(&what)));
            return Ok(Next::LookAt(next));
        }
        let job_id = self.jobs.next_job_id();
        app.upkeep.put(
            look.seen(None, |host| match trial.hosts.contains(&host.host) {
                true => Renewal::Runs(job_id.clone()),
                false => waits(&format!(
                    "job {job_id} renews the certificates of other hosts first"
                )),
            }),
        );
        if self.begin(&job_id, &trial).await? {
            self.jobs.wait(&job_id).await?;
        }
        Ok(Next::Look)
    }

    /// Checks the hosts and the past trials.
    async fn look(&self) -> Result<Look, Refusal> {
        let app = self.jobs.app();
        let trials = history::ended(app).await?;
        history::note_outcomes(app, &trials).await?;
        let snapshot = self.jobs.declarations().load().await?;
        let declaration = snapshot.declaration();
        let accepted = target::accepted(app).await?;
        let answers = self.jobs.host_health(declaration.nodes.keys(), LIMIT).await;
        let now = app.clock.now();
        let mut due = certificates::due(declaration, &answers, &accepted, now);
        let names: Vec<MinionId> = due.iter().map(|host| host.host.clone()).collect();
        let last = self.last(history::last(app, &trials, &names).await?);
        for host in &mut due {
            host.tried = last.get(&host.host).map(|last| last.tried.clone());
        }
        let declared = |id: &&MinionId| declaration.nodes.contains_key(id.as_str());
        let mut declared = accepted.iter().filter(declared);
        Ok(Look {
            now,
            automatic: declaration.cluster.certificates.renew == Declared::Automatic,
            members: certificates::members(declaration, &answers, now),
            away: declared.any(|id| !answers.contains_key(id.as_str())),
            due,
            last,
        })
    }

    /// The last trials, including trials for which no job could be made.
    fn last(&self, mut stored: BTreeMap<MinionId, Last>) -> BTreeMap<MinionId, Last> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for (host, last) in refused.iter() {
            let is_newer = |known: &Last| known.tried.ended < last.tried.ended;
            if stored.get(host).is_none_or(is_newer) {
                stored.insert(host.clone(), last.clone());
            }
        }
        stored
    }

    /// Makes the job of a trial; returns `false`, and records a failed trial, if it cannot be made.
    async fn begin(&self, job_id: &JobId, trial: &RenewalBatch) -> Result<bool, Refusal> {
        let app = self.jobs.app();
        history::begins(app, job_id, &trial.hosts).await?;
        let new = history::job(job_id.clone(), trial.hosts.clone(), trial.order.clone());
        let Err(refusal) = self.jobs.create(new).await else {
            return Ok(true);
        };
        let last = Last {
            tried: Tried {
                ended: app.clock.now(),
                failed: true,
            },
            why: Some(refusal.message.clone()),
        };
        {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.extend(trial.hosts.iter().map(|host| (host.clone(), last.clone())));
        }
        history::refused(app, job_id, &trial.hosts, &refusal.message).await?;
        Ok(false)
    }
}

/// The work that must end first: no two jobs may apply states at the same time, and none may while
/// hosts come, leave or change their bundle.
async fn busy(jobs: &Jobs) -> Result<Option<String>, Refusal> {
    let store = &jobs.app().store;
    if let Some(run) = store.open_runs().await?.first() {
        return Ok(Some(format!("run {} ({}) has not ended", run.id, run.sls)));
    }
    let jobs = store.open_jobs().await?;
    let applies = |function: &str| {
        Function::find(function).is_ok_and(|function| function.place == FunctionSite::States)
    };
    let open = jobs.iter().find(|job| applies(&job.function));
    Ok(open.map(|job| format!("job {} ({}) has not ended", job.job_id, job.function)))
}

/// The findings of a check.
struct Look {
    now: Millis,
    automatic: bool,
    due: Vec<DueRenewal>,
    last: BTreeMap<MinionId, Last>,
    members: Members,
    /// `true` if a declared and accepted host has not answered.
    away: bool,
}

impl Look {
    /// The time of the next check, if there is no work before it.
    fn rest(&self, random: &Random) -> Millis {
        let due: &[DueRenewal] = if self.automatic { &self.due } else { &[] };
        schedule::rest(due, self.away, self.now, random)
    }

    /// The state of each host: recently tried, or else `renewal`.
    fn seen(&self, next: Option<Millis>, renewal: impl Fn(&DueRenewal) -> Renewal) -> RenewalBoard {
        let note = |host: &DueRenewal| {
            let trial = host.from(self.now);
            let last = self.last.get(&host.host);
            let last = last.filter(|_| self.automatic && trial > self.now);
            let why = |last: &Last| last.why.clone().unwrap_or_else(|| UNCHANGED.to_owned());
            HostRenewal {
                host: host.host.clone(),
                ends: host.ends,
                renewal: match last {
                    Some(last) => Renewal::Failed {
                        why: why(last),
                        next: trial,
                    },
                    None => renewal(host),
                },
            }
        };
        RenewalBoard {
            looked: Some(self.now),
            next,
            automatic: self.automatic,
            hosts: self.due.iter().map(note).collect(),
        }
    }
}

fn waits(what: &str) -> Renewal {
    Renewal::Waits(what.to_owned())
}

/// The reason why a renewal waits, or was not made.
const AGAIN: &str = "the last trial was a short time ago";
const AWAY: &str =
    "the master has just started, and hosts that are away have a few minutes to come back";
const UNCHANGED: &str =
    "the states succeeded, and the certificate is unchanged; `ctl highstate` shows what they make";

async fn sleep(millis: Millis) {
    let millis = u64::try_from(millis).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// The system's randomness; without any, work starts a little earlier.
fn random(below: Millis) -> Millis {
    let bytes = halite_proto::pki::random::<8>().unwrap_or_default();
    let below = u64::try_from(below).unwrap_or_default().max(1);
    Millis::try_from(u64::from_ne_bytes(bytes) % below).unwrap_or_default()
}
