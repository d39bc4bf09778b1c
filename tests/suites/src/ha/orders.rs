//! A client that writes to a master: tokens, jobs and operators. The tests of cuts compare the
//! acknowledged ones with what the acting master has afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use halite_api::{JobList, JobOutcome, NewToken, OperatorList, OperatorState, TokenList};
use halite_lab::host::Host;

use crate::ctl_answer;

/// The pause between two rounds, so that the lists stay short.
const PAUSE: Duration = Duration::from_millis(500);
/// An operator is created in one of so many rounds. The others make a token and a job.
const OPERATOR: u32 = 5;
/// The start of the names of operators.
const NAME: &str = "written";
/// The most jobs that are listed, more than one test makes.
const LIMIT: &str = "1000";

/// Acknowledged orders: the ids of tokens and jobs, and the names of operators.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    tokens: BTreeSet<String>,
    jobs: BTreeSet<String>,
    operators: BTreeSet<String>,
}

impl Acknowledged {
    /// Gives the orders of a round. An order that fails is not acknowledged: a master that does not
    /// carry it out says why.
    fn order(&mut self, master: &Host, round: u32) {
        if let Ok(made) = ctl_answer::of::<NewToken>(master, &["token", "create"])
            && let Some((id, _)) = made.token.split_once('.')
        {
            self.tokens.insert(id.to_owned());
        }
        let own = master.spec.name.as_str();
        if let Ok(done) = ctl_answer::of::<JobOutcome>(master, &["cmd", own, "--", "true"])
            && let Some(job) = done.job
        {
            self.jobs.insert(job.to_string());
        }
        if round.is_multiple_of(OPERATOR) {
            let name = format!("{NAME}-{round}");
            let line = format!(
                "rm -f /root/{NAME}.pem; ctl operator create {name} --role viewer --out /root/{NAME}.pem"
            );
            if master.sh(&line).is_ok() {
                self.operators.insert(name);
            }
        }
    }

    /// The number of orders.
    fn count(&self) -> usize {
        self.tokens.len() + self.jobs.len() + self.operators.len()
    }

    /// Fails unless the master has all of these orders, and each kind was ordered.
    pub(super) fn are_on(&self, master: &Host) -> Result<()> {
        self.display();
        let lost = lost(&self.tokens, &tokens(master)?, "token");
        let lost = [lost, self.missing_after_promotion(master)?].concat();
        ensure!(lost.is_empty(), "acknowledged but missing: {lost:?}");
        ensure!(
            self.tokens.len() > 3 && self.jobs.len() > 3 && !self.operators.is_empty(),
            "too few: {self:?}"
        );
        Ok(())
    }

    /// Fails if a promoted master lacks an order.
    pub(super) fn are_on_promoted(&self, master: &Host) -> Result<()> {
        self.display();
        let lost = self.missing_after_promotion(master)?;
        ensure!(lost.is_empty(), "acknowledged but missing: {lost:?}");
        Ok(())
    }

    /// The orders that a promoted master does not have. A promotion voids all tokens, so they do
    /// not count.
    pub(super) fn missing_after_promotion(&self, master: &Host) -> Result<Vec<String>> {
        let list: JobList = ctl_answer::of(master, &["job", "list", "--limit", LIMIT])?;
        let jobs: BTreeSet<String> = (list.jobs.iter()).map(|job| job.job.to_string()).collect();
        Ok([
            lost(&self.jobs, &jobs, "job"),
            lost(&self.operators, &valid_operators(master)?, "operator"),
        ]
        .concat())
    }

    fn display(&self) {
        println!(
            "  acknowledged: {} tokens, {} jobs, {} operators",
            self.tokens.len(),
            self.jobs.len(),
            self.operators.len()
        );
    }

    /// Revokes the tokens that the master has, and all operators of any orders.
    pub(super) fn revoke(&self, master: &Host) -> Result<()> {
        for token in self.tokens.intersection(&tokens(master)?) {
            master.run(&["ctl", "token", "revoke", token])?;
        }
        let operators = valid_operators(master)?;
        for name in operators.iter().filter(|name| name.starts_with(NAME)) {
            master.run(&["ctl", "operator", "revoke", name, "--yes"])?;
        }
        Ok(())
    }
}

/// The acknowledged orders of a kind that are not known.
fn lost(made: &BTreeSet<String>, known: &BTreeSet<String>, kind: &str) -> Vec<String> {
    let lost = made.difference(known);
    lost.map(|id| format!("{kind} {id}")).collect()
}

fn tokens(master: &Host) -> Result<BTreeSet<String>> {
    let list: TokenList = ctl_answer::of(master, &["token", "list"])?;
    let tokens = list.tokens.into_iter();
    Ok(tokens.map(|token| token.token).collect())
}

fn valid_operators(master: &Host) -> Result<BTreeSet<String>> {
    let list: OperatorList = ctl_answer::of(master, &["operator", "list"])?;
    let valid = list.operators.into_iter();
    let valid = valid.filter(|operator| operator.state == OperatorState::Valid);
    Ok(valid.map(|operator| operator.name).collect())
}

/// Gives the orders of some rounds, which must all succeed.
pub(super) fn ordered(master: &Host) -> Result<Acknowledged> {
    let (mut made, rounds) = (Acknowledged::default(), 2 * OPERATOR);
    for round in 0..rounds {
        made.order(master, round);
    }
    let all = usize::try_from(2 * rounds + 2)?;
    ensure!(made.count() == all, "{all} orders, and only {made:?}");
    Ok(made)
}

/// Gives orders, one after the other, while something is done; returns the acknowledged ones.
pub(super) fn while_ordered(
    master: &Host,
    act: impl FnOnce() -> Result<()>,
) -> Result<Acknowledged> {
    let ended = AtomicBool::new(false);
    let (done, made) = thread::scope(|scope| {
        let orders = scope.spawn(|| {
            let mut made = Acknowledged::default();
            // The first rounds have names of their own: `ordered` may have come before.
            for round in 10 * OPERATOR.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                made.order(master, round);
                thread::sleep(PAUSE);
            }
            made
        });
        let done = act();
        ended.store(true, Ordering::Relaxed);
        (done, orders.join())
    });
    done?;
    made.map_err(|_| anyhow!("the orders panicked"))
}
