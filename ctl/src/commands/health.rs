//! `ctl health`: the checks of the master, each finding with its remedy.

use std::time::{Duration, Instant};

use halite_api::{CheckResult, CheckState, Health, to_value};

use crate::cli;
use crate::cli::Global;
use crate::output::{Paint, Screen, count, table};
use crate::waiting::Waiting;
use crate::{FAILED, client};

/// The interval between two queries while the command waits.
const PAUSE: Duration = Duration::from_secs(2);

/// Runs `ctl health`.
///
/// # Errors
/// The master does not answer or refuses; with `--wait`, it still does so when the time is over.
pub async fn run(global: &Global, args: &cli::Health, screen: &mut Screen) -> anyhow::Result<u8> {
    let start = Instant::now();
    let mut said = String::new();
    let mut waiting = Waiting::new(
        "every check succeeds",
        args.wait.unwrap_or_default(),
        "`ctl health` shows the remedy for each that does not",
    );
    loop {
        let asked = ask(global).await;
        let waits_until = args.wait.filter(|wait| start.elapsed() < *wait);
        let healthy = asked.as_ref().is_ok_and(|health| health.healthy);
        if healthy || waits_until.is_none() {
            let health = asked?;
            screen.answer(&to_value(&health), |paint| report(&health, paint))?;
            return Ok(if healthy { 0 } else { FAILED });
        }
        let waits = match &asked {
            Ok(health) => format!("waiting for {}", failing(health).join(", ")),
            Err(error) => format!("waiting for the master: {error:#}"),
        };
        if screen.is_live() {
            screen.progress(&waits);
        } else if waits != said {
            screen.note(&waits);
        }
        said = waits;
        waiting.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(global: &Global) -> anyhow::Result<Health> {
    Ok(client::status(global).await?.health)
}

/// The names of the checks that failed.
fn failing(health: &Health) -> Vec<&str> {
    let failed = |check: &&CheckResult| check.state == CheckState::Failure;
    let checks = health.checks.iter().filter(failed);
    checks.map(|check| check.name.as_str()).collect()
}

/// Formats all findings, and the number of successful checks.
pub fn report(health: &Health, paint: &Paint) -> String {
    let all = health.checks.len();
    let good = |check: &&CheckResult| check.state == CheckState::Good;
    let good = health.checks.iter().filter(good).count();
    let mark = if health.healthy {
        paint.good("✓")
    } else {
        paint.bad("✗")
    };
    let number = match good == all {
        true => count(all, "check"),
        false => format!("{good} of {}", count(all, "check")),
    };
    format!("{}{mark} {number}\n", findings_of(health, paint, |_| true))
}

/// Formats each finding of the checks whose names pass the filter on one line, and its remedy on
/// the next.
pub fn findings_of(health: &Health, paint: &Paint, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for check in health.checks.iter().filter(|check| wanted(&check.name)) {
        let mark = match &check.state {
            CheckState::Failure => paint.bad("✗"),
            CheckState::Warning | CheckState::Good => paint.notable("!"),
            CheckState::Other(word) => paint.notable(&table::line(word)),
        };
        for finding in &check.findings {
            let name = table::line(&check.name);
            let message = finding.message.replace('\n', "\n    ");
            text.push_str(&format!("{mark} {name}: {message}\n"));
            if let Some(remedy) = &finding.remedy {
                text.push_str(&format!("    {remedy}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use halite_api::HealthFinding;

    use super::*;

    const PLAIN: Paint = Paint { colour: false };

    #[test]
    fn each_finding_has_its_name_and_remedy() {
        let check = |name: &str, state: CheckState, found: Option<(&str, Option<&str>)>| {
            let findings = found.into_iter().map(|(message, remedy)| HealthFinding {
                message: message.to_owned(),
                host: None,
                remedy: remedy.map(str::to_owned),
            });
            CheckResult {
                name: name.to_owned(),
                title: String::new(),
                state,
                findings: findings.collect(),
            }
        };
        let good = check("api", CheckState::Good, None);
        let health = Health {
            healthy: true,
            checks: vec![good.clone()],
        };
        assert_eq!(report(&health, &PLAIN), "✓ 1 check\n");
        let nodes = Some(("a is not Ready", Some("look there")));
        let health = Health {
            healthy: false,
            checks: vec![
                good,
                check("nodes", CheckState::Failure, nodes),
                check(
                    "bundle-applied",
                    CheckState::Warning,
                    Some(("b is behind", None)),
                ),
                check(
                    "dns",
                    CheckState::Other("unknown".to_owned()),
                    Some(("no answer", None)),
                ),
            ],
        };
        assert_eq!(
            report(&health, &PLAIN),
            "✗ nodes: a is not Ready\n    look there\n! bundle-applied: b is behind\n\
             unknown dns: no answer\n✗ 1 of 4 checks\n"
        );
        assert_eq!(failing(&health), ["nodes"]);
    }
}
