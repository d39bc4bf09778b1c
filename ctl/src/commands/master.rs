//! `ctl master`: which host is the master's, and which stand by.

use std::path::Path;

use halite_pillar::masters::STANDBY_OF;
use halite_proto::v1;
use serde_json::{Value, json};

use crate::cli::{Global, Master};
use crate::client;
use crate::client::document;
use crate::commands::again::Again;
use crate::commands::{promotion, retire};
use crate::output::{Paint, Screen, table};
use crate::paths::STATE_DIR;

/// Runs `ctl master`.
///
/// # Errors
/// The master does not answer, this host cannot be promoted, or the master's cannot be retired.
pub async fn run(global: &Global, command: Master, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Master::List => list(global, screen).await,
        Master::Promote(args) => promotion::promote(global, &args, screen).await,
        Master::Retire(args) => retire::retire(global, &args, screen).await,
    }
}

/// Shows the masters, by the master or, on a standby without one, by what is on this host.
async fn list(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let asked = async {
        let mut operator = client::operator(global).await?;
        document(operator.status(v1::StatusRequest {}).await)
    };
    let masters = match asked.await {
        Ok(status) => masters(&status),
        Err(error) => match local(Path::new(STATE_DIR)) {
            Some(local) => local,
            None => return Err(error),
        },
    };
    screen.answer(&masters, |paint| overview(&masters, paint))?;
    Ok(u8::from(
        !masters["problems"].as_array().is_some_and(Vec::is_empty),
    ))
}

/// The masters in the answer of `Status`.
fn masters(status: &Value) -> Value {
    let mut problems = Vec::new();
    if let Some(reason) = status["masters"]["isolated"].as_str() {
        problems.push(format!("the master begins nothing: {reason}"));
    } else if let Some(since) = status["masters"]["alone_since"].as_str() {
        problems.push(format!(
            "the master is alone since {since}: what it does is on no other host"
        ));
    }
    problems.extend(failed(status));
    json!({
        "master": status["master"],
        "epoch": status["masters"]["epoch"],
        "standbys": status["masters"]["standbys"],
        "problems": problems,
    })
}

/// The text about a hand-over that failed, with what to do.
fn failed(status: &Value) -> Option<String> {
    let note = &status["masters"]["hand_over"];
    let text = |key: &str| note[key].as_str();
    let (from, to, reason) = (text("from")?, text("to")?, text("reason")?);
    let since = text("since").unwrap_or_default();
    let (leaves, cluster) = (note["leaves"] == true, status["cluster"].as_str());
    let again = Again::new(format!("ctl master retire {from}"))
        .option("to", Some(to))
        .flag(!leaves, "keep")
        .flag(leaves, "force")
        .option("cluster", cluster.filter(|_| leaves))
        .text();
    Some(format!(
        "the master was not handed over to {to} at {since}: {reason}; it goes on here. `{again}` tries again; this line \
         is gone then, or after a day"
    ))
}

/// What a standby, or a host that hands the master over, knows while no master answers; none on another
/// host.
fn local(state_dir: &Path) -> Option<Value> {
    if let Some(to) = retire::moving_to(state_dir) {
        let problem = format!(
            "this host hands the master over to {to}, which takes it as soon as it has everything; if {to} is dead, `ctl \
             master promote --force --cluster NAME` on this host takes the master back"
        );
        return Some(json!({"master": null, "epoch": null, "standbys": [], "problems": [problem]}));
    }
    let of = std::fs::read_to_string(state_dir.join(STANDBY_OF)).ok()?;
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(state_dir.join("standby").join(name));
        text.ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    };
    let report = read("report.json");
    let problem = match (&report["since"], &report["following"]) {
        (Value::String(since), Value::Bool(false)) => format!(
            "no master answers; this host is a standby and had all of {} until {since}{}: `ctl master promote` makes it the \
             master's, if that one is dead",
            table::cell(&report["master"]),
            missed(&report["missed"])
        ),
        (Value::String(_), _) => format!(
            "no master answers, but this host follows {}: name it with --master",
            table::cell(&report["master"])
        ),
        _ => "no master answers; this host is to be a standby and has no copy of the master yet"
            .to_owned(),
    };
    Some(json!({
        "master": of.lines().collect::<Vec<_>>(),
        "epoch": read("epoch"),
        "standbys": [],
        "problems": [problem],
    }))
}

/// The reason why a standby may lack something that the master has answered, as the end of a sentence; empty
/// when there is none.
fn missed(missed: &Value) -> String {
    let time = |reason: &str, key: &str| table::cell(&missed[reason][key]);
    if missed["off"].is_object() {
        let (from, to) = (time("off", "from"), time("off", "to"));
        return format!(
            ", and may lack what came after that, because halite-master did not run here from {from} to {to}"
        );
    }
    if missed["answered"].is_object() {
        let at = time("answered", "at");
        return format!(
            ", and may lack what came after that, because the master answered at {at} and this host has not taken all of it"
        );
    }
    String::new()
}

fn overview(masters: &Value, paint: &Paint) -> String {
    let mut text = format!(
        "master  {}\nepoch   {}\n",
        table::cell(&masters["master"]),
        table::cell(&masters["epoch"])
    );
    let standbys = masters["standbys"].as_array().into_iter().flatten();
    let row = |standby: &Value| {
        vec![
            table::cell(&standby["name"]),
            table::cell(&standby["state"]),
            table::cell(&standby["since"]),
            table::cell(&standby["lag"]),
            table::cell(&standby["reason"]),
        ]
    };
    let rows: Vec<Vec<String>> = standbys.map(row).collect();
    if !rows.is_empty() {
        let heading = ["standby", "state", "since", "lag", "reason"];
        text.push_str(&format!("\n{}", table::rows(&heading, rows)));
    }
    for problem in masters["problems"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n{} {}\n", paint.bad("✗"), table::cell(problem)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_its_standbys_and_what_is_wrong_are_shown() {
        let status = json!({"master": ["10.0.0.1:4550"], "masters": {
            "epoch": 3,
            "alone_since": "2026-11-23T10:00:00Z",
            "standbys": [
                {"name": "cp-2", "state": "gone", "since": "2026-11-23T10:00:00Z", "lag": 0, "reason": "cut off"},
                {"name": "cp-3", "state": "missing"},
            ],
        }});
        let text = overview(&masters(&status), &Paint { colour: false });
        let expected = "\
master  10.0.0.1:4550
epoch   3

STANDBY  STATE    SINCE                 LAG  REASON
cp-2     gone     2026-11-23T10:00:00Z  0    cut off
cp-3     missing  -                     -    -

✗ the master is alone since 2026-11-23T10:00:00Z: what it does is on no other host
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_host_that_hands_over_names_the_next_master() {
        let directory = tempfile::tempdir().unwrap();
        let note = json!({"to": "cp-2", "phase": "decided"}).to_string();
        std::fs::write(directory.path().join("hand-over.json"), note).unwrap();
        let found = local(directory.path()).unwrap();
        let text = found["problems"][0].as_str().unwrap();
        assert!(text.contains("hands the master over to cp-2"), "{text}");
        for (leaves, again) in [
            (false, "`ctl master retire cp-1 --to cp-2 --keep`"),
            (
                true,
                "`ctl master retire cp-1 --to cp-2 --force --cluster prod`",
            ),
        ] {
            let failed = json!({"from": "cp-1", "to": "cp-2", "leaves": leaves, "since": "T1", "reason": "it was off"});
            let status = json!({"cluster": "prod", "masters": {"hand_over": failed}});
            let text = masters(&status)["problems"].to_string();
            for part in ["not handed over to cp-2 at T1: it was off", again] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn a_standby_without_its_master_says_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(local(directory.path()), None);
        std::fs::write(directory.path().join(STANDBY_OF), "10.0.0.1:4550\n").unwrap();
        std::fs::create_dir(directory.path().join("standby")).unwrap();
        let problem = |local: Value| local["problems"][0].as_str().unwrap().to_owned();
        let text = problem(local(directory.path()).unwrap());
        assert!(text.contains("no copy"), "{text}");
        std::fs::write(directory.path().join("standby/epoch"), "4").unwrap();
        let report =
            r#"{"master": "10.0.0.1:4550", "since": "2026-11-23T10:00:00Z", "following": false}"#;
        std::fs::write(directory.path().join("standby/report.json"), report).unwrap();
        let found = local(directory.path()).unwrap();
        assert_eq!(found["epoch"], 4);
        let text = problem(found);
        assert!(text.contains("until 2026-11-23T10:00:00Z:"), "{text}");
        for (missed, expected) in [
            (
                r#"{"off": {"from": "T1", "to": "T2"}}"#,
                "did not run here from T1 to T2",
            ),
            (r#"{"answered": {"at": "T3"}}"#, "the master answered at T3"),
        ] {
            let report = format!("{}, \"missed\": {missed}}}", report.trim_end_matches('}'));
            std::fs::write(directory.path().join("standby/report.json"), report).unwrap();
            let text = problem(local(directory.path()).unwrap());
            assert!(text.contains(expected), "{text}");
        }
    }
}
