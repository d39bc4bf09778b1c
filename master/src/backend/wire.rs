//! Test minions whose side of the protocol the test itself plays.

use std::net::IpAddr;

use halite_core::connections::ConnectionGuard;
use halite_core::names::minion;
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body as ToMaster;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::fixture::{Life, WATCHDOG};

/// A minion whose messages the test itself reads and writes.
pub(crate) struct Wire<'l> {
    life: &'l Life,
    id: &'static str,
    pub messages: Receiver<v1::MasterMessage>,
    _connection: ConnectionGuard,
}

impl<'l> Wire<'l> {
    /// The minion at the end of an existing connection.
    pub fn at(
        life: &'l Life,
        id: &'static str,
        connection: ConnectionGuard,
        messages: Receiver<v1::MasterMessage>,
    ) -> Self {
        Self {
            life,
            id,
            messages,
            _connection: connection,
        }
    }

    /// Connects a minion that does nothing.
    pub fn connect(life: &'l Life, id: &'static str) -> Self {
        Self::with_jobs(life, id, &[], &[])
    }

    /// Connects with the minion's running jobs, and those whose returns it will send.
    pub fn with_jobs(
        life: &'l Life,
        id: &'static str,
        running: &[&str],
        unstored: &[&str],
    ) -> Self {
        let list = |jobs: &[&str]| jobs.iter().map(|job| (*job).to_owned()).collect();
        life.accept(id);
        let (connection, messages) = life
            .app
            .connections
            .join(&minion(id), IpAddr::from([10, 10, 1, 12]));
        let hello = v1::MinionHello {
            protocol: 1,
            version: "0.1.0".into(),
            grains_json: json!({"id": id, "ip4_interfaces": {"host0": ["10.10.1.12"]}}).to_string(),
            running_jobs: list(running),
            unstored: Some(v1::JobList {
                jobs: list(unstored),
            }),
            epoch: None,
            obeyed: None,
            trust: None,
        };
        life.runtime
            .block_on(life.backend.on_connected(&minion(id), &hello))
            .unwrap();
        Self {
            life,
            id,
            messages,
            _connection: connection,
        }
    }

    /// The next message of this kind.
    fn next<T>(&mut self, kind: impl Fn(ToMinion) -> Option<T>) -> T {
        let messages = &mut self.messages;
        let found = async {
            loop {
                let message = messages.recv().await.expect("the stream ended");
                if let Some(found) = message.body.and_then(&kind) {
                    return found;
                }
            }
        };
        let limited = async { tokio::time::timeout(WATCHDOG, found).await };
        self.life
            .runtime
            .block_on(limited)
            .expect("the message must come")
    }

    /// Returns the next job, which starts.
    pub fn job(&mut self) -> String {
        let job = self.next(|body| match body {
            ToMinion::Job(job) => Some(job.job),
            _ => None,
        });
        self.say(ToMaster::Started(v1::JobStarted { job: job.clone() }));
        job
    }

    /// The next request to end a job.
    pub fn cancel(&mut self) -> v1::Cancel {
        self.next(|body| match body {
            ToMinion::Cancel(cancel) => Some(cancel),
            _ => None,
        })
    }

    /// Returns a failed job.
    pub fn returns(&self, job: &str, error: &str) {
        self.say(ToMaster::Returned(v1::JobReturn {
            job: job.to_owned(),
            retcode: 1,
            return_json: "null".into(),
            error: error.to_owned(),
        }));
    }

    /// Sends the master a message.
    pub fn say(&self, body: ToMaster) {
        let message = v1::MinionMessage { body: Some(body) };
        let said = async {
            self.life
                .backend
                .on_message(&minion(self.id), message)
                .await
        };
        self.life.runtime.block_on(said).unwrap();
    }
}
