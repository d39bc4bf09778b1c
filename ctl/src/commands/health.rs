//! `ctl health`: the checks of the master, each with what to do.

use std::time::{Duration, Instant};

use halite_proto::v1;
use serde_json::{Value, json};

use crate::cli::{Global, Health};
use crate::client::document;
use crate::output::{Paint, Screen, count, table};
use crate::waiting::Waiting;
use crate::{FAILED, client};

/// The pause between two questions while the command waits.
const PAUSE: Duration = Duration::from_secs(2);

/// Runs `ctl health`.
///
/// # Errors
/// The master does not answer or refuses; while the command waits, only at the end of its time.
pub async fn run(global: &Global, args: &Health, screen: &mut Screen) -> anyhow::Result<u8> {
    let start = Instant::now();
    let mut said = String::new();
    let mut waiting = Waiting::new(
        "every check is good",
        args.wait.unwrap_or_default(),
        "`ctl health` shows what to do about each that is not",
    );
    loop {
        let asked = ask(global).await;
        let waits_until = args.wait.filter(|wait| start.elapsed() < *wait);
        let healthy = asked.as_ref().is_ok_and(is_healthy);
        if healthy || waits_until.is_none() {
            let health = asked?;
            screen.answer(&health, |paint| report(&health, paint))?;
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

async fn ask(global: &Global) -> anyhow::Result<Value> {
    let mut operator = client::operator(global).await?;
    let mut status = document(operator.status(v1::StatusRequest {}).await)?;
    match status["health"].take() {
        Value::Null => anyhow::bail!(
            "the master is older than this ctl and knows no checks; `ctl status` shows its problems"
        ),
        health => Ok(health),
    }
}

/// Returns whether no check of the master has failed.
pub fn is_healthy(health: &Value) -> bool {
    health["healthy"] == json!(true)
}

fn checks(health: &Value) -> impl Iterator<Item = &Value> {
    health["checks"].as_array().into_iter().flatten()
}

/// The names of the checks that failed.
fn failing(health: &Value) -> Vec<&str> {
    checks(health)
        .filter(|check| check["state"] == "failure")
        .filter_map(|check| check["name"].as_str())
        .collect()
}

/// Formats all findings, and the number of sound checks.
fn report(health: &Value, paint: &Paint) -> String {
    let all = checks(health).count();
    let good = checks(health)
        .filter(|check| check["state"] == "good")
        .count();
    let mark = if is_healthy(health) {
        paint.good("✓")
    } else {
        paint.bad("✗")
    };
    let number = match good == all {
        true => count(all, "check"),
        false => format!("{good} of {}", count(all, "check")),
    };
    format!("{}{mark} {number}\n", findings(health, paint))
}

/// Formats each finding as one line, and its remedy as another.
pub fn findings(health: &Value, paint: &Paint) -> String {
    findings_of(health, paint, |_| true)
}

/// As [`findings`], of the checks whose name is wanted.
pub fn findings_of(health: &Value, paint: &Paint, wanted: impl Fn(&Value) -> bool) -> String {
    let mut text = String::new();
    for check in checks(health).filter(|check| wanted(&check["name"])) {
        let mark = match check["state"].as_str() {
            Some("failure") => paint.bad("✗"),
            _ => paint.notable("!"),
        };
        for finding in check["findings"].as_array().into_iter().flatten() {
            let name = table::cell(&check["name"]);
            let message = finding["message"].as_str().unwrap_or_default();
            let message = message.replace('\n', "\n    ");
            text.push_str(&format!("{mark} {name}: {message}\n"));
            if let Some(remedy) = finding["remedy"].as_str() {
                text.push_str(&format!("    {remedy}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { colour: false };

    #[test]
    fn each_finding_has_its_name_and_remedy() {
        let check = |name: &str, state: &str, findings: Value| json!({"name": name, "state": state, "findings": findings});
        let good = check("api", "good", json!([]));
        let health = json!({"healthy": true, "checks": [good]});
        assert_eq!(report(&health, &PLAIN), "✓ 1 check\n");
        let health = json!({"healthy": false, "checks": [
            good,
            check("nodes", "failure", json!([{"message": "a is not Ready", "remedy": "look there"}])),
            check("bundle-applied", "warning", json!([{"message": "b is behind", "remedy": null}])),
        ]});
        assert_eq!(
            report(&health, &PLAIN),
            "✗ nodes: a is not Ready\n    look there\n! bundle-applied: b is behind\n✗ 1 of 3 checks\n"
        );
        assert_eq!(failing(&health), ["nodes"]);
        // An answer of another form is no good news.
        assert!(!is_healthy(&Value::Null));
    }
}
