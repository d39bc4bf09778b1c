//! `ctl orchestrate`: an orchestration by its name, and the runs of all.

use anyhow::{Context as _, bail};
use halite_proto::v1;
use serde_json::{Map, Value};

use crate::cli::{Global, NewRun, Orchestrate, Runs};
use crate::client;
use crate::client::document;
use crate::orchestration_watch::{print_outcome, run_orchestration};
use crate::output::{Screen, table};

/// Runs `ctl orchestrate`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn run(global: &Global, args: &Orchestrate, screen: &mut Screen) -> anyhow::Result<u8> {
    match (&args.runs, &args.new) {
        (Some(Runs::List), _) => {
            let request = v1::ShowRequest {
                what: "runs".to_owned(),
                ..v1::ShowRequest::default()
            };
            let mut operator = client::operator(global).await?;
            let runs = document(operator.show(request).await)?;
            screen.answer(&runs, |_| list(&runs))?;
            Ok(0)
        }
        (Some(Runs::Cancel { run }), _) => {
            let request = v1::CancelRunRequest {
                run: run.to_string(),
            };
            let mut operator = client::operator(global).await?;
            let cancelled = document(operator.cancel_run(request).await)?;
            screen.answer(&cancelled, |_| cancelled_text(&cancelled))?;
            Ok(0)
        }
        (None, Some(new)) => start(global, new, screen).await,
        (None, None) => bail!("name an orchestration, or `list` or `cancel`"),
    }
}

async fn start(global: &Global, new: &NewRun, screen: &mut Screen) -> anyhow::Result<u8> {
    let request = v1::OrchestrateRequest {
        sls: new.sls.clone(),
        pillar_json: pillar(&new.pillar)?.to_string(),
        test: new.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, &new.sls, screen).await?;
    let again = format!("ctl orchestrate {}", new.sls);
    print_outcome(&done, "done", &again, screen)
}

fn list(runs: &Value) -> String {
    const COLUMNS: [&str; 7] = ["run", "created", "sls", "on", "operator", "status", "step"];
    let runs = runs.as_array().cloned().unwrap_or_default();
    table::rows(
        &COLUMNS,
        runs.iter()
            .map(|run| COLUMNS.map(|name| table::cell(&run[name])).to_vec()),
    )
}

/// Says how far a cancelled run is with its end.
fn cancelled_text(answer: &Value) -> String {
    let text = |key: &str| table::cell(&answer[key]);
    let (run, sls, by) = (text("run"), text("sls"), text("cancelledBy"));
    match answer["status"].as_str() {
        Some("cancelled") => format!(
            "the run {run} ({sls}) was cancelled by {by}, and its locks are free; what it has done stays, and the command that \
             started it goes on from there\n"
        ),
        Some("running") => {
            let jobs = answer["jobs"].as_array().into_iter().flatten();
            let jobs: String = jobs
                .map(|job| {
                    let job = table::cell(job);
                    format!("; `ctl job cancel {job} --force` ends a package transaction of it")
                })
                .collect();
            format!(
                "the run {run} ({sls}) was cancelled by {by}, and ends with its step {}: `ctl job show {run}` shows it{jobs}\n",
                text("step")
            )
        }
        _ => format!(
            "the run {run} ({sls}) ended before that: {}\n",
            text("status")
        ),
    }
}

/// Merges texts `KEY=VALUE`, with a YAML value, and JSON mappings. Later ones replace earlier ones.
fn pillar(texts: &[String]) -> anyhow::Result<Value> {
    let mut out = Map::new();
    for text in texts {
        if text.trim_start().starts_with('{') {
            let map: Map<String, Value> =
                serde_json::from_str(text).with_context(|| format!("--pillar {text}"))?;
            out.extend(map);
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            bail!("--pillar {text}: write KEY=VALUE or a JSON mapping");
        };
        let value = halite_secrets::yaml::parse("--pillar", value)
            .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        out.insert(key.to_owned(), value.to_json());
    }
    Ok(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pillar_values_keep_their_type() {
        let texts = ["node=worker-1", "n=3", r#"{"a": [1]}"#, "on=true"].map(str::to_owned);
        assert_eq!(
            pillar(&texts).unwrap(),
            json!({"node": "worker-1", "n": 3, "a": [1], "on": true})
        );
        assert!(pillar(&["node".to_owned()]).is_err());
    }

    #[test]
    fn the_answer_to_the_end_of_a_run_says_how_far_it_is() {
        let mut answer = json!({"run": "1", "sls": "custom.roll", "status": "cancelled", "cancelledBy": "alice"});
        assert!(
            cancelled_text(&answer).starts_with(
                "the run 1 (custom.roll) was cancelled by alice, and its locks are free"
            )
        );
        answer["status"] = json!("running");
        answer["step"] = json!("images");
        answer["jobs"] = json!(["2"]);
        assert_eq!(
            cancelled_text(&answer),
            "the run 1 (custom.roll) was cancelled by alice, and ends with its step images: `ctl job show 1` shows it; \
             `ctl job cancel 2 --force` ends a package transaction of it\n"
        );
        answer["status"] = json!("succeeded");
        assert!(cancelled_text(&answer).contains("ended before that: succeeded"));
    }

    #[test]
    fn runs_are_listed_with_host_and_step() {
        let runs = json!([{"run": "1", "created": "T", "sls": "halite.orchestrate.add_node", "on": "w", "operator": "root",
            "status": "running", "step": "turn"}]);
        let text = list(&runs);
        let last = text.lines().last().unwrap_or_default();
        let cells: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "1",
                "T",
                "halite.orchestrate.add_node",
                "w",
                "root",
                "running",
                "turn"
            ]
        );
    }
}
