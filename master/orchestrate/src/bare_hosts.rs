//! Hosts that are still bare: they have enrolled, and their own run has not installed their
//! packages. The run of another host changes nothing there (`bare: skip`), so that a preflight that
//! refuses a host finds it unchanged. The host itself is asked: its answer is current, and does not
//! depend on state that a kill could lose.

use std::time::Duration;

use futures_util::future::join_all;
use halite_errors::chain;
use halite_fleet::jobs::Unanswered;
use halite_fleet::jobs::failure::succeeded;
use halite_host_reports::health;
use halite_host_reports::health::HostHealth;
use halite_proto::ids::MinionId;
use halite_states::engine::Failure;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::step_options::StepOptions;
use super::step_runner::StepRunner;

/// The time for an answer, and for a restarted minion to reconnect. It forgets the question, so it
/// is asked again.
const ANSWER: Duration = Duration::from_secs(10);
const RECONNECT: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 3;
/// The characters of an answer that an error quotes.
const REPEATED: usize = 200;

/// Minions, by the condition of their hosts.
#[derive(Default)]
pub(super) struct Parted {
    /// They have had a run of their own.
    pub(super) in_use: Vec<MinionId>,
    /// Bare ones.
    pub(super) bare: Vec<MinionId>,
    /// They do not answer, so their condition is unknown.
    pub(super) silent: Vec<MinionId>,
}

enum Found {
    InUse,
    Bare,
    Silent,
}

impl StepRunner<'_> {
    /// Separates the bare hosts from the others, if the step leaves them out; otherwise all count
    /// as in use.
    ///
    /// # Errors
    /// A host's answer cannot be parsed: a bare host must not be changed by mistake.
    pub(super) async fn without_bare(
        &self,
        options: &StepOptions,
        minions: Vec<MinionId>,
    ) -> Result<Parted, Failure> {
        let mut parted = Parted::default();
        if !options.skips_bare {
            parted.in_use = minions;
            return Ok(parted);
        }
        let asked = minions.into_iter().map(|minion| async move {
            let found = self.found(&minion).await;
            (minion, found)
        });
        let mut wrong = Vec::new();
        for (minion, found) in join_all(asked).await {
            match found {
                Ok(Found::InUse) => parted.in_use.push(minion),
                Ok(Found::Bare) => parted.bare.push(minion),
                Ok(Found::Silent) => parted.silent.push(minion),
                Err(failure) => wrong.push(failure.text()),
            }
        }
        if wrong.is_empty() {
            Ok(parted)
        } else {
            Err(Failure::new(wrong.join("\n")))
        }
    }

    async fn found(&self, minion: &MinionId) -> Result<Found, Failure> {
        if minion.is_master() {
            return Ok(Found::InUse);
        }
        let connections = &self.jobs.app().connections;
        let question = json!({});
        for _ in 0..ATTEMPTS {
            let asked = self.jobs.ask(minion, health::FUNCTION, &question, ANSWER);
            match asked.await {
                Ok(answer) => return understood(minion, &answer),
                // A minion of an earlier version, so its host is in use: a new host gets the
                // present version.
                Err(Unanswered::Refused(answer)) => {
                    tracing::info!(%minion, answer, "the minion does not know whether its host is bare, so the host is in use");
                    return Ok(Found::InUse);
                }
                Err(error @ Unanswered::Malformed(_)) => {
                    return Err(not_understood(minion, &chain(&error)));
                }
                Err(Unanswered::NotConnected(_) | Unanswered::Late(_)) => {
                    connections.wait_connected(minion, RECONNECT).await;
                }
            }
        }
        Ok(Found::Silent)
    }

    /// The minions on which the step `but_done_by` has not succeeded; all minions without such an
    /// argument.
    pub(super) async fn but_done(
        &self,
        options: &StepOptions,
        mut minions: Vec<MinionId>,
    ) -> Result<Vec<MinionId>, Failure> {
        let Some(step) = &options.but_done_by else {
            return Ok(minions);
        };
        let index = self.position(step).ok_or_else(|| {
            Failure::new(format!(
                "but_done_by: {step:?} is not a step of this orchestration; name an earlier `halite.state` by its id"
            ))
        })?;
        let rows = self.rows(index).await?;
        minions.retain(|minion| {
            let mut its = rows.iter().filter(|row| row.minion == *minion);
            !its.any(succeeded)
        });
        Ok(minions)
    }
}

/// Parses a minion's answer about its host.
fn understood(minion: &MinionId, answer: &Value) -> Result<Found, Failure> {
    match HostHealth::deserialize(answer) {
        Ok(health) if health.bare => Ok(Found::Bare),
        Ok(_) => Ok(Found::InUse),
        Err(error) => {
            let answer: String = answer.to_string().chars().take(REPEATED).collect();
            Err(not_understood(minion, &format!("{error} in {answer}")))
        }
    }
}

fn not_understood(minion: &MinionId, reason: &str) -> Failure {
    Failure::new(format!(
        "cannot determine whether the host of {minion} is bare: {reason}; `halite-minion --version` there must not be newer than \
         `halite-master --version`; then run this again"
    ))
}
