//! `ctl orchestrate`: starts an orchestration by its name, and shows the runs of all.

use anyhow::{Context as _, bail};
use halite_api::{RunCancellation, RunList, RunStatus, RunSummary, to_value};
use halite_proto::v1;
use serde_json::{Map, Value};

use super::events;
use crate::again::orchestration;
use crate::cli::{Global, NewRun, Orchestrate, Runs};
use crate::client;
use crate::client::document;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::{Screen, or_dash, table};

/// Runs `ctl orchestrate`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn run(global: &Global, args: &Orchestrate, screen: &mut Screen) -> anyhow::Result<u8> {
    match (&args.runs, &args.new) {
        (Some(Runs::List), _) => {
            let runs: RunList = client::show(global, "runs", "", Vec::new()).await?;
            screen.answer(&to_value(&runs), |_| list(&runs))?;
            Ok(0)
        }
        (Some(Runs::Follow { run }), _) => events::follow_run(global, run, screen).await,
        (Some(Runs::Cancel { run }), _) => {
            let request = v1::CancelRunRequest {
                run: run.to_string(),
                pause: false,
            };
            let mut operator = client::operator(global).await?;
            let cancelled: RunCancellation = document(operator.cancel_run(request).await)?;
            screen.answer(&to_value(&cancelled), |_| cancelled_text(&cancelled))?;
            Ok(0)
        }
        (None, Some(new)) => start(global, new, screen).await,
        (None, None) => bail!("name an orchestration, or `list`, `follow` or `cancel`"),
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
    let again = orchestration(&new.sls, &new.pillar, new.test);
    print_outcome(&done, success_of("done", new.test), &again.text(), screen)
}

/// Formats runs as a table.
pub fn list(runs: &RunList) -> String {
    let heading = ["run", "created", "sls", "on", "operator", "status", "step"];
    let row = |run: &RunSummary| {
        vec![
            run.run.to_string(),
            run.created.to_string(),
            run.sls.clone(),
            or_dash(run.on.as_ref()),
            run.operator.clone(),
            run.status.to_string(),
            or_dash(run.step.as_ref()),
        ]
    };
    table::rows(&heading, runs.runs.iter().map(row))
}

/// Describes how far the cancellation of a run is.
pub fn cancelled_text(answer: &RunCancellation) -> String {
    let RunCancellation { run, sls, .. } = answer;
    let by = or_dash(answer.cancelled_by.as_ref());
    match &answer.status {
        RunStatus::Cancelled => format!(
            "the run {run} ({sls}) was cancelled by {by}, and its locks are free; finished steps are kept, and the command \
             that started it continues from there\n"
        ),
        RunStatus::Running => {
            let jobs = answer.jobs.iter().map(|job| {
                format!("; `ctl job cancel {job} --force` also ends its package transaction")
            });
            let (step, jobs) = (or_dash(answer.step.as_ref()), jobs.collect::<String>());
            format!(
                "the run {run} ({sls}) was cancelled by {by}, and ends with its step {step}: `ctl job show {run}` shows it{jobs}\n"
            )
        }
        status => format!("the run {run} ({sls}) ended before that: {status}\n"),
    }
}

/// Merges `KEY=VALUE` texts, with YAML values, and JSON mappings. Later ones replace earlier ones.
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
    use halite_proto::ids::JobId;
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
        let mut answer = RunCancellation {
            run: JobId::from_number(1),
            sls: "custom.roll".to_owned(),
            status: RunStatus::Cancelled,
            cancelled_by: Some("alice".to_owned()),
            step: None,
            jobs: Vec::new(),
        };
        let run = answer.run.clone();
        assert!(cancelled_text(&answer).starts_with(&format!(
            "the run {run} (custom.roll) was cancelled by alice, and its locks are free"
        )));
        answer.status = RunStatus::Running;
        answer.step = Some("images".to_owned());
        answer.jobs = vec![JobId::from_number(2)];
        let job = &answer.jobs[0];
        assert_eq!(
            cancelled_text(&answer),
            format!(
                "the run {run} (custom.roll) was cancelled by alice, and ends with its step images: `ctl job show {run}` shows it; \
                 `ctl job cancel {job} --force` also ends its package transaction\n"
            )
        );
        answer.status = RunStatus::Succeeded;
        assert!(cancelled_text(&answer).contains("ended before that: succeeded"));
    }
}
