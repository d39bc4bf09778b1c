//! Creates jobs: everything is compiled and stored before anything is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use halite_api::EventData;
use halite_core::declared::{BundlePart, Direction, Snapshot, in_background};
use halite_core::names::some_of;
use halite_core::refusal::Refusal;
use halite_names::BundleVersion;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{Created, Job, JobRow, JobStatus, StoredAnswer, StoredPart};
use serde_json::Value;

use super::batch::Batch;
use super::function::{Function, FunctionSite, RENEW, renews_at_once, sls_of};
use super::open_job::{JobTime, OpenJob};
use super::returns::created;
use super::{CONCURRENT, Jobs, target};
use crate::compile;
use crate::compile::RequestedStates;

/// A request for a new job.
#[derive(Debug, Clone, Default)]
pub struct NewJob {
    /// `state.apply`, `test.ping`, …
    pub function: String,
    /// The arguments of the function.
    pub args: Value,
    /// `true` for test mode, in which the minions only predict.
    pub test: bool,
    /// The name of the operator.
    pub operator: String,
    /// The target as the operator wrote it.
    pub target: String,
    /// The minions that the target resolved to.
    pub minions: Vec<MinionId>,
    /// Groups of minions that run one after the other; if empty, all run at once.
    pub order: Vec<Vec<MinionId>>,
    /// The site's bundle from which the minions are compiled; `None` for each minion's own bundle.
    pub bundle: Option<BundleVersion>,
    /// The direction of that change: to a newer bundle, or to the previous one.
    pub direction: Direction,
    /// The timeout in seconds; 0 for the function's default.
    pub timeout: u32,
    /// The caller's id of this request.
    pub request_id: Option<String>,
    /// The id of the job, if the caller must know it beforehand ([`Jobs::next_job_id`]).
    pub job_id: Option<JobId>,
    /// `true` for a step of a shipped orchestration, which may apply the SLS that are reserved for
    /// it.
    pub is_shipped_step: bool,
}

impl Jobs {
    /// Returns an id for a future job.
    #[must_use]
    pub fn next_job_id(&self) -> JobId {
        self.job_ids.next(self.app.clock.now())
    }

    /// Creates a job and sends it; returns its id. For a repeated `request_id` it returns the
    /// existing job.
    ///
    /// # Errors
    /// The job does not compile for one of the minions (then nothing is stored or sent), or the
    /// store failed.
    pub async fn create(self: &Arc<Self>, new: NewJob) -> Result<JobId, Refusal> {
        // A separate task: a caller that disconnects must not interrupt it between store and
        // dispatch.
        let jobs = Arc::clone(self);
        let made = tokio::spawn(async move { jobs.create_now(new).await });
        made.await
            .map_err(|error| Refusal::internal(format!("cannot make the job: {error}")))?
    }

    /// Compiles a job that applies states without creating it.
    ///
    /// # Errors
    /// The job cannot be created now: the same refusal as from [`Jobs::create`].
    pub async fn check(&self, new: &NewJob) -> Result<(), Refusal> {
        let function = Function::find(&new.function)?;
        self.check_may_act(function.name).await?;
        self.declarations.load().await?.bundle()?;
        let job_id = self.next_job_id();
        self.compiled_rows(new, function, &job_id).await.map(drop)
    }

    async fn create_now(self: &Arc<Self>, new: NewJob) -> Result<JobId, Refusal> {
        let function = Function::find(&new.function)?;
        if new.test && !function.has_test_mode() {
            return Err(Refusal::invalid(format!(
                "cannot test {}: it has no test mode and would run",
                function.name
            )));
        }
        Batch::of_args(&new.args)
            .map_err(|error| Refusal::invalid(format!("cannot make the job: batch: {error}")))?;
        if function.changes() && !new.test {
            self.check_may_act(function.name).await?;
        }
        let job_id = new.job_id.clone().unwrap_or_else(|| self.next_job_id());
        let (rows, bundle) = match function.place {
            FunctionSite::States => {
                // Report problems once, not for each minion.
                let snapshot = self.declarations.load().await?;
                let version = match &new.bundle {
                    None => snapshot.bundle()?.version.clone(),
                    Some(bundle) => {
                        let allowed = self.declarations.allowed(&snapshot, bundle, new.direction);
                        allowed.await?.bundle
                    }
                };
                (
                    self.compiled_rows(&new, function, &job_id).await?,
                    Some(version),
                )
            }
            FunctionSite::Minion | FunctionSite::Here => {
                if function.place == FunctionSite::Here {
                    // Inspect the files once, not for each minion.
                    self.declarations.load().await?;
                } else if !function.is_query() {
                    // The output may contain secrets of the host, which must be known.
                    self.declarations.in_force().await?;
                }
                let rows = new
                    .minions
                    .iter()
                    .map(|minion| JobRow::queued(&job_id, minion, None));
                (rows.collect(), None)
            }
        };
        let seconds = if new.timeout == 0 {
            function.timeout
        } else {
            new.timeout
        };
        let args_json = if new.args.is_null() {
            "{}".to_owned()
        } else {
            new.args.to_string()
        };
        let time = JobTime::from_now(self.app.clock.as_ref(), seconds);
        let job = Arc::new(Job {
            job_id: job_id.clone(),
            function: function.name.to_owned(),
            args_json,
            test: new.test,
            operator: new.operator.clone(),
            target: new.target.clone(),
            minions: new.minions.clone(),
            order: new.order.clone(),
            created: time.created,
            deadline: Some(time.deadline),
            steady_deadline: Some(time.steady_deadline),
            request_id: new.request_id.clone(),
            status: JobStatus::Running,
            retcode: None,
            finished: None,
            bundle,
        });
        if let Created::Existing(job) = self.app.store.create_job(&job, &rows).await? {
            return Ok(job.job_id);
        }
        self.app.metrics.jobs.inc();
        tracing::info!(job = %job_id, function = function.name, operator = %job.operator, minions = %some_of(&job.minions), test = job.test, "job made");
        let gates = self.gates(&job).await;
        let ready = {
            let parts: Vec<StoredPart> = rows.iter().map(StoredPart::from).collect();
            let open = OpenJob::new(function, &job, &parts, gates, self.app.clock.as_ref());
            let ready: Vec<MinionId> = open.ready_since.keys().cloned().collect();
            self.open_jobs().insert(job_id.clone(), open);
            ready
        };
        let created = EventData::JobCreated(created(&job));
        // The job is stored, so it is sent anyway, and its watchers read the store.
        if let Err(error) = self.publish(function, &created, None).await {
            tracing::error!(job = %job_id, %error, "cannot store the event of a job");
        }
        // In parallel: one minion that does not read must not keep the job from the others.
        let (jobs, id) = (self, &job_id);
        let sent: Vec<Result<(), Refusal>> = stream::iter(ready)
            .map(|minion| async move {
                match function.place {
                    FunctionSite::Here => jobs.answer_here(id, &minion).await,
                    FunctionSite::Minion if function.is_query() => jobs.dispatch_query(id, &minion).await,
                    FunctionSite::States | FunctionSite::Minion => {
                        // The job is stored; a part that the store did not allow to be sent is sent
                        // later.
                        if let Err(error) = jobs.dispatch(&minion).await {
                            tracing::error!(job = %id, %minion, %error, "cannot send a part; trying again");
                        }
                        Ok(())
                    }
                }
            })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        self.guard(&job_id);
        sent.into_iter().collect::<Result<(), Refusal>>()?;
        Ok(job_id)
    }

    /// Compiles the rows of all minions; one refusal contains the problems of all.
    async fn compiled_rows(
        &self,
        new: &NewJob,
        function: &Function,
        job_id: &JobId,
    ) -> Result<Vec<JobRow>, Refusal> {
        let wanted = match function.name {
            "state.highstate" => RequestedStates::Highstate,
            RENEW => RequestedStates::Certificates {
                at_once: renews_at_once(&new.args)?,
            },
            _ if new.is_shipped_step => RequestedStates::Step(sls_of(&new.args)?),
            _ => RequestedStates::Sls(sls_of(&new.args)?),
        };
        let mut rows = Vec::with_capacity(new.minions.len());
        let mut blobs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut problems: Vec<String> = Vec::new();
        let mut hosts = Vec::with_capacity(new.minions.len());
        for minion in &new.minions {
            let grains = self.grains_for_compile(minion).await?;
            let peer = self.app.connections.address(minion);
            let chosen = self.declarations.record_addresses(minion, &grains, peer);
            match chosen.await {
                Ok(()) => hosts.push((minion, grains)),
                Err(refusal) => problems.push(refusal.message),
            }
        }
        // One version for all: documents and own states may change while they are compiled.
        let common = match &new.bundle {
            None => self.declarations.current().await?,
            Some(_) => self.declarations.load().await?,
        };
        let reader = Arc::clone(&common);
        let own = Arc::new(in_background(move || reader.read_own_states()).await?);
        for (minion, grains) in hosts {
            let wanted = wanted.clone();
            let snapshot = match &new.bundle {
                None => Arc::clone(&common),
                Some(bundle) => {
                    // In a test no other host gets the bundle first.
                    let part = if wanted == RequestedStates::Highstate && !new.test {
                        BundlePart::Whole
                    } else {
                        BundlePart::Some
                    };
                    self.declarations
                        .with_bundle(&common, minion, (bundle, new.direction), part)
                        .await?
                }
            };
            let snapshot = Arc::new(snapshot.with_own_states(&own));
            let bundle = snapshot
                .bundle_for(minion)
                .map(|facts| facts.version.clone());
            match compile::in_background(snapshot, minion.clone(), grains, wanted).await {
                Ok(compiled) => {
                    // Most minions have the same files.
                    blobs.extend(compiled.blobs);
                    let low = serde_json::to_string(&compiled.low).map_err(|error| {
                        Refusal::internal(format!("cannot store the low state: {error}"))
                    })?;
                    rows.push(JobRow {
                        bundle: bundle.ok(),
                        ..JobRow::queued(job_id, minion, Some(low))
                    });
                }
                Err(refusal) => problems.push(format!("{minion}: {}", refusal.message)),
            }
        }
        if problems.is_empty() {
            let now = self.app.clock.now();
            self.app.store.put_blobs(&blobs, now).await?;
            Ok(rows)
        } else {
            // Minions of one role have the same problem.
            Err(Refusal::invalid(format!(
                "nothing was sent: {}",
                problems.join("\n")
            )))
        }
    }

    /// The grains of a minion, which templates need: without them, the result would not fit the
    /// host.
    async fn grains_for_compile(&self, minion: &MinionId) -> Result<Value, Refusal> {
        let grains = target::grains(&self.app, minion).await?;
        let known = grains.as_object().is_some_and(|grains| !grains.is_empty());
        if minion.is_master() || known {
            return Ok(grains);
        }
        Err(Refusal::new(
            halite_core::refusal::RefusalKind::Unavailable,
            format!(
                "cannot compile for {minion}: it has never connected; start halite-minion there"
            ),
        ))
    }

    /// Answers `pillar.items` with the minion's pillar, with references instead of secrets.
    async fn answer_here(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
    ) -> Result<(), Refusal> {
        let snapshot: Arc<Snapshot> = self.declarations.current().await?;
        let when = self.app.clock.now();
        let answer = match snapshot.pillar(minion) {
            Ok(pillar) => StoredAnswer {
                retcode: 0,
                return_json: pillar.to_string(),
                error: String::new(),
                when,
            },
            Err(refusal) => StoredAnswer {
                retcode: 1,
                return_json: "null".into(),
                error: refusal.message,
                when,
            },
        };
        self.returned(job_id, minion, answer).await
    }
}
