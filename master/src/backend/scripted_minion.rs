//! Scripted minions for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_core::names::minion;
use halite_proto::ids::MinionId;
use halite_proto::pki;
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body as ToMaster;
use halite_states::low::{LowState, RunReturn, StateReturn};
use serde_json::Value;

use crate::backend::Backend;

/// The entry of a job in a minion's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    Started,
    Returned,
    Done,
}

#[derive(Default)]
pub(crate) struct Journal {
    pub entries: BTreeMap<String, JournalEntry>,
    pub answers: BTreeMap<String, v1::JobReturn>,
    /// The ids of the applied states, in order.
    pub applied: Vec<String>,
    /// The jobs that came over the wire.
    pub received: Vec<v1::Job>,
    /// The states that fail.
    pub failing: BTreeSet<String>,
    /// The next job with states or a command is killed while it runs: it returns as interrupted.
    pub interrupt_next: bool,
    /// The CAs of identities (PEM) that it has trusted since its enrolment, in order.
    pub cas: Vec<String>,
}

/// Answers a job in place of the script.
pub(crate) type Answering = dyn Fn(&v1::Job) -> Option<Value> + Send + Sync;

/// A minion that follows the protocol; its journal outlives each connection.
#[derive(Clone)]
pub(crate) struct ScriptedMinion {
    pub id: MinionId,
    pub journal: Arc<Mutex<Journal>>,
    /// The host, if a test has one: it sees each job, and answers some.
    pub host: Arc<Answering>,
    /// A function that it lacks.
    pub unknown: Option<&'static str>,
    /// `true` for an earlier version, which trusts the CA of its enrolment only.
    pub keeps_its_ca: bool,
}

impl ScriptedMinion {
    pub fn new(id: &str) -> Self {
        Self {
            id: minion(id),
            journal: Arc::default(),
            host: Arc::new(|_| None),
            unknown: None,
            keeps_its_ca: false,
        }
    }

    /// The same minion on this host.
    pub fn on(self, host: impl Fn(&v1::Job) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self {
            host: Arc::new(host),
            ..self
        }
    }

    pub(super) async fn hand_in(&self, backend: &Backend) {
        let unacknowledged: Vec<v1::JobReturn> = {
            let journal = self.journal.lock().unwrap();
            let open = journal
                .entries
                .iter()
                .filter(|(_, entry)| **entry == JournalEntry::Returned);
            open.filter_map(|(job_id, _)| journal.answers.get(job_id).cloned())
                .collect()
        };
        for answer in unacknowledged {
            self.say(backend, ToMaster::Returned(answer)).await;
        }
    }

    async fn say(&self, backend: &Backend, body: ToMaster) {
        // A minion whose master cannot store a return reconnects, and sends it again. A master that
        // is being killed answers nothing, and drops this task at the pause.
        let message = v1::MinionMessage { body: Some(body) };
        while let Err(error) = backend.on_message(&self.id, message.clone()).await {
            eprintln!("{}: {error:?}", self.id);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn hear(&self, backend: &Backend, message: v1::MasterMessage) {
        match message.body {
            Some(ToMinion::Job(job)) => {
                let known = self.journal.lock().unwrap().entries.get(&job.job).copied();
                match known {
                    None => {}
                    Some(JournalEntry::Returned) => return self.hand_in(backend).await,
                    Some(_) => return,
                }
                let answer = self.work(&job);
                self.say(
                    backend,
                    ToMaster::Started(v1::JobStarted {
                        job: job.job.clone(),
                    }),
                )
                .await;
                self.say(backend, ToMaster::Returned(answer)).await;
            }
            Some(ToMinion::Stored(stored)) => {
                self.journal
                    .lock()
                    .unwrap()
                    .entries
                    .insert(stored.job, JournalEntry::Done);
            }
            Some(ToMinion::Hello(hello)) if !self.keeps_its_ca => {
                self.trust(backend, hello.ca_pem);
            }
            _ => {}
        }
    }

    /// Records the CAs of identities, gets a certificate, and connects again.
    fn trust(&self, backend: &Backend, ca_pem: String) {
        let all = pki::certificates(&ca_pem).unwrap();
        let cas: Vec<String> = all.iter().map(|ca| pki::sha256_hex(ca)).collect();
        let trust = v1::MinionTrust {
            signed_by: cas[0].clone(),
            cas,
        };
        let mut journal = self.journal.lock().unwrap();
        if journal.cas.last() != Some(&ca_pem) {
            journal.cas.push(ca_pem);
        }
        drop(journal);
        let connections = &backend.jobs().app().connections;
        connections.shows(&self.id, Some(trust));
    }

    fn work(&self, job: &v1::Job) -> v1::JobReturn {
        let answered = (self.host)(job);
        let mut journal = self.journal.lock().unwrap();
        let interrupted = matches!(job.function.as_str(), "state.apply" | "cmd.run")
            && std::mem::take(&mut journal.interrupt_next);
        let (retcode, value, error) = match job.function.as_str() {
            _ if interrupted => (2, Value::Null, "interrupted".to_owned()),
            fun if self.unknown == Some(fun) => {
                let error = format!("this minion has no function `{fun}`");
                (1, Value::Null, error)
            }
            _ if answered.is_some() => (0, answered.unwrap_or_default(), String::new()),
            "state.apply" => {
                let low: LowState = serde_json::from_str(&job.low_json).unwrap();
                let mut run = RunReturn::default();
                for (index, chunk) in low.chunks.iter().enumerate() {
                    journal.applied.push(chunk.id.clone());
                    let good = !journal.failing.contains(&chunk.id);
                    run.states.push(StateReturn {
                        index,
                        id: chunk.id.clone(),
                        name: chunk.name.clone(),
                        function: chunk.function(),
                        sls: chunk.sls.clone(),
                        result: Some(good),
                        // A careless module: its return contains everything that it was given.
                        changes: chunk.args.clone(),
                        comment: if good {
                            "done".into()
                        } else {
                            "it broke".into()
                        },
                        start_time: "2026-01-01T00:00:00Z".into(),
                        duration: 1.0,
                        run_num: index,
                        ran: true,
                        fail_run: true,
                    });
                }
                (
                    i32::from(!run.succeeded()),
                    serde_json::to_value(&run).unwrap(),
                    String::new(),
                )
            }
            "test.ping" => (0, Value::Bool(true), String::new()),
            _ => (0, job.args_json.parse().unwrap_or_default(), String::new()),
        };
        let answer = v1::JobReturn {
            job: job.job.clone(),
            retcode,
            return_json: value.to_string(),
            error,
        };
        journal.received.push(job.clone());
        journal
            .entries
            .insert(job.job.clone(), JournalEntry::Returned);
        journal.answers.insert(job.job.clone(), answer.clone());
        answer
    }
}

/// The jobs of a minion's journal with this entry.
pub(super) fn named(minion: &ScriptedMinion, wanted: JournalEntry) -> Vec<String> {
    let journal = minion.journal.lock().unwrap();
    let named = journal.entries.iter().filter(|(_, e)| **e == wanted);
    named.map(|(job_id, _)| job_id.clone()).collect()
}
