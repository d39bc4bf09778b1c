//! Commands that run a job on minions.

use std::time::Duration;

use halite_api::{JobOutcome, MinionAnswer, to_value};
use halite_proto::ids::MinionId;
use halite_proto::v1;
use serde_json::{Value, json};

use crate::cli::{
    Apply, Applying, Cmd, Global, Grains, Highstate, HostBudget, OnTarget, StatesLimit, TargetKind,
};
use crate::job_watch::{FinishedJob, MinionReturn, job_outcome, run_job, run_job_with};
use crate::output::returns::View;
use crate::output::{Paint, Screen, count, or_dash, returns, table, yaml};
use crate::{FAILED, WOULD_CHANGE};

/// Runs `ctl highstate`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn highstate(
    global: &Global,
    args: Highstate,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let request = states(
        "state.highstate",
        &within(&args.budget, json!({})),
        args.target,
        &args.kind,
        (&args.applying, &args.limit),
    );
    run_states(global, request, &args.applying, screen).await
}

/// Runs `ctl apply`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn apply(global: &Global, args: Apply, screen: &mut Screen) -> anyhow::Result<u8> {
    let request = states(
        "state.apply",
        &within(&args.budget, json!({"sls": args.sls})),
        args.target,
        &args.kind,
        (&args.applying, &args.limit),
    );
    run_states(global, request, &args.applying, screen).await
}

/// Adds a budget of hosts out to the arguments of a function.
pub(super) fn within(budget: &HostBudget, mut arguments: Value) -> Value {
    if let (Some(batch), Value::Object(all)) = (&budget.batch, &mut arguments) {
        all.insert("batch".to_owned(), json!(batch));
    }
    arguments
}

pub(super) fn states(
    function: &str,
    arguments: &Value,
    target: String,
    kind: &TargetKind,
    (applying, limit): (&Applying, &StatesLimit),
) -> v1::RunRequest {
    v1::RunRequest {
        target,
        target_kind: kind.name().to_owned(),
        function: function.to_owned(),
        args_json: arguments.to_string(),
        test: applying.test,
        timeout_seconds: seconds_of(limit.timeout),
        request_id: String::new(),
    }
}

/// The seconds of a timeout for the master, for which 0 means the function's own timeout.
fn seconds_of(limit: Option<Duration>) -> u32 {
    limit.map_or(0, |limit| {
        u32::try_from(limit.as_secs()).unwrap_or(u32::MAX)
    })
}

pub(super) async fn run_states(
    global: &Global,
    request: v1::RunRequest,
    applying: &Applying,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let view = View {
        test: applying.test,
        verbose: applying.verbose,
    };
    let done = run_job_with(global, request, screen, |minion, returned, screen| {
        show_return(minion, returned, view, screen);
    });
    report(&done.await?, view, applying, screen)
}

/// Prints the end of a state run; returns the exit code.
fn report(
    done: &FinishedJob,
    view: View,
    applying: &Applying,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let outcome = job_outcome(done, true);
    screen.answer(&to_value(&outcome), |paint| {
        people(done, &outcome, view, paint)
    })?;
    let changed = outcome.changed.unwrap_or_default();
    Ok(exit_code(done.retcode, changed, applying))
}

/// The exit code of a state run.
pub fn exit_code(retcode: i32, changed: usize, applying: &Applying) -> u8 {
    if retcode != 0 {
        FAILED
    } else if applying.exit_code && changed > 0 {
        WOULD_CHANGE
    } else {
        0
    }
}

/// Prints the return of a minion as it arrives. A failure is only named: it is printed in full at
/// the end, where it does not scroll away.
fn show_return(minion: &MinionId, returned: &MinionReturn, view: View, screen: &mut Screen) {
    let paint = screen.paint();
    if returned.success {
        screen.line(one(minion, returned, view, &paint).trim_end());
    } else if screen.is_live() {
        let mark = paint.bad("✗");
        screen.note(format!("{mark} {minion} failed; the others continue"));
    }
}

/// Formats the return of a minion in full.
fn one(minion: &MinionId, returned: &MinionReturn, view: View, paint: &Paint) -> String {
    let Some(run) = &returned.run else {
        return format!("{minion}: {}\n", mark(returned, paint));
    };
    let mut text = returns::run(minion, run, view, paint);
    if let Some(error) = &returned.error {
        text.push_str(&format!("  {} {error}\n", paint.bad("✗")));
    }
    text
}

/// Formats the failures, and the summary of all minions.
pub fn people(done: &FinishedJob, outcome: &JobOutcome, view: View, paint: &Paint) -> String {
    let mut text = String::new();
    for (minion, returned) in done
        .returns
        .iter()
        .filter(|(_, returned)| !returned.success)
    {
        text.push_str(&one(minion, returned, view, paint));
    }
    let changed = outcome.changed.unwrap_or_default();
    let changed = if view.test {
        format!("{changed} to change")
    } else {
        count(changed, "change")
    };
    let failed = match outcome.failed.unwrap_or_default() {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let minions = count(done.returns.len(), "minion");
    let states = count(outcome.states.unwrap_or_default(), "state");
    text.push_str(&format!(
        "\n{minions}, {states}, {changed}{failed}   (job {})\n",
        or_dash(done.job.as_ref())
    ));
    text
}

/// Formats a success as ✓, and a failure as ✗ with its reason.
fn mark(returned: &MinionReturn, paint: &Paint) -> String {
    match (returned.success, &returned.error) {
        (true, _) => paint.good("✓"),
        (false, None) => format!("{} failed", paint.bad("✗")),
        (false, Some(error)) => format!("{} {error}", paint.bad("✗")),
    }
}

/// Runs `ctl ping`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn ping(global: &Global, args: OnTarget, screen: &mut Screen) -> anyhow::Result<u8> {
    let done = run_job(global, asking("test.ping", &json!({}), args), screen).await?;
    show(&done, screen, |done, paint| {
        let line = |(minion, returned): (&MinionId, &MinionReturn)| {
            vec![minion.to_string(), mark(returned, paint)]
        };
        table::rows(&["minion", "answer"], done.returns.iter().map(line))
    })
}

/// Runs `ctl grains`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn grains(global: &Global, args: Grains, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut done = run_job(global, asking("grains.items", &json!({}), args.on), screen).await?;
    for returned in done.returns.values_mut() {
        let grains = returned.answer.as_mut().and_then(MinionAnswer::mapping_mut);
        if let Some(map) = grains {
            map.retain(|key, _| args.items.is_empty() || args.items.contains(key));
        }
    }
    show(&done, screen, |done, paint| {
        each(done, |returned| match &returned.answer {
            Some(grains) if returned.success => yaml(&grains.0).unwrap_or_default(),
            _ => mark(returned, paint),
        })
    })
}

/// Runs `ctl cmd`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn cmd(global: &Global, args: Cmd, screen: &mut Screen) -> anyhow::Result<u8> {
    let line = shell_line(&args.command);
    let on = OnTarget {
        target: args.target,
        kind: args.kind,
        timeout: args.timeout,
    };
    let done = run_job(global, asking("cmd.run", &json!({"cmd": line}), on), screen).await?;
    show(&done, screen, |done, paint| {
        each(done, |returned| {
            let failed = if returned.success {
                String::new()
            } else {
                mark(returned, paint)
            };
            let output = returned.answer.as_ref().map(MinionAnswer::command_output);
            format!("{}{failed}", ended(&output.unwrap_or_default()))
        })
    })
}

/// Formats each minion's name above its indented text.
fn each(done: &FinishedJob, show: impl Fn(&MinionReturn) -> String) -> String {
    let mut text = String::new();
    for (minion, returned) in &done.returns {
        text.push_str(&format!("{minion}\n"));
        show(returned)
            .lines()
            .for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

/// Makes a shell command line: one argument is taken literally, several are quoted.
fn shell_line(command: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c))
    };
    let quote = |word: &String| {
        if plain(word) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    match command {
        [line] => line.clone(),
        words => words.iter().map(quote).collect::<Vec<_>>().join(" "),
    }
}

fn asking(function: &str, arguments: &Value, on: OnTarget) -> v1::RunRequest {
    v1::RunRequest {
        target: on.target,
        target_kind: on.kind.name().to_owned(),
        function: function.to_owned(),
        args_json: arguments.to_string(),
        timeout_seconds: seconds_of(on.timeout),
        ..v1::RunRequest::default()
    }
}

fn show(
    done: &FinishedJob,
    screen: &mut Screen,
    people: impl FnOnce(&FinishedJob, &Paint) -> String,
) -> anyhow::Result<u8> {
    let outcome = to_value(&job_outcome(done, false));
    screen.answer(&outcome, |paint| people(done, paint))?;
    Ok(if done.retcode == 0 { 0 } else { FAILED })
}

#[cfg(test)]
#[path = "highstate_tests.rs"]
mod highstate_tests;

#[cfg(test)]
mod tests {
    use halite_proto::ids::JobId;
    use halite_states::low::{RunReturn, StateReturn};
    use halite_testkit::pty::Pty;
    use serde_json::Map;

    use super::*;
    use crate::output::Format;

    #[test]
    fn several_words_are_quoted_for_the_shell() {
        let words = |text: &[&str]| text.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shell_line(&words(&["ls -l | wc"])), "ls -l | wc");
        assert_eq!(
            shell_line(&words(&["echo", "it's", "a b", ""])),
            r"echo 'it'\''s' 'a b' ''"
        );
        assert_eq!(shell_line(&words(&["ls", "-l", "/etc"])), "ls -l /etc");
    }

    #[test]
    fn a_budget_is_an_argument_of_the_job_only_if_it_is_given() {
        let of = |batch: Option<&str>| {
            let batch = batch.map(str::to_owned);
            within(&HostBudget { batch }, json!({"sls": ["a"]}))
        };
        assert_eq!(of(None), json!({"sls": ["a"]}));
        assert_eq!(of(Some("50%")), json!({"sls": ["a"], "batch": "50%"}));
    }

    #[test]
    fn only_a_prediction_exits_with_two() {
        let asked = Applying {
            test: true,
            exit_code: true,
            ..Applying::default()
        };
        assert_eq!(exit_code(0, 3, &asked), WOULD_CHANGE);
        assert_eq!(exit_code(0, 0, &asked), 0);
        assert_eq!(exit_code(1, 3, &asked), FAILED);
        assert_eq!(exit_code(0, 3, &Applying::default()), 0);
    }

    #[test]
    fn a_handled_failure_does_not_count_and_one_that_is_not_does() {
        for (fail_run, failed) in [(false, 0), (true, 1)] {
            let state = StateReturn {
                index: 0,
                id: "a".to_owned(),
                name: "a".to_owned(),
                function: "test.fail_without_changes".to_owned(),
                sls: "custom".to_owned(),
                result: Some(false),
                changes: Map::new(),
                comment: "Failure!".to_owned(),
                start_time: String::new(),
                duration: 1.0,
                run_num: 0,
                ran: true,
                fail_run,
            };
            let returned = MinionReturn {
                success: !fail_run,
                run: Some(RunReturn {
                    states: vec![state],
                }),
                ..MinionReturn::default()
            };
            let done = FinishedJob {
                retcode: i32::from(fail_run),
                returns: [("a".parse().unwrap(), returned)].into(),
                ..FinishedJob::default()
            };
            assert_eq!(job_outcome(&done, true).failed, Some(failed));
        }
    }

    #[test]
    fn a_host_is_shown_when_it_ends_and_a_failure_last() {
        for columns in [80, 120] {
            let mut pty = Pty::new(columns, 24);
            let mut screen = Screen::on(Format::Table, pty.terminal(), pty.terminal());
            screen.live().set("c", "c  12/36  file.managed /etc/x");
            let good = MinionReturn {
                success: true,
                run: Some(RunReturn::default()),
                ..MinionReturn::default()
            };
            let bad = MinionReturn {
                error: Some("not connected".to_owned()),
                ..MinionReturn::default()
            };
            let [a, b] = ["a", "b"].map(|name| name.parse::<MinionId>().unwrap());
            show_return(&b, &bad, View::default(), &mut screen);
            show_return(&a, &good, View::default(), &mut screen);
            let running = [
                "✗ b failed; the others continue",
                "a: 0 states, 0 changes (0.0 s)",
                "c  12/36  file.managed /etc/x",
            ];
            assert_eq!(pty.lines(), running);
            let done = FinishedJob {
                job: Some(JobId::from_number(1)),
                retcode: 1,
                returns: [(a, good), (b, bad)].into(),
                ..FinishedJob::default()
            };
            let outcome = job_outcome(&done, true);
            let text = |paint: &Paint| people(&done, &outcome, View::default(), paint);
            screen.answer(&to_value(&outcome), text).unwrap();
            let end = [
                "b: ✗ not connected",
                "",
                "2 minions, 0 states, 0 changes   (job 00000000000000000001)",
            ];
            assert_eq!(pty.lines()[2..], end);
        }
    }

    #[test]
    fn the_summary_counts_all_minions() {
        let mut done = FinishedJob {
            job: Some(JobId::from_number(1)),
            retcode: 1,
            ..FinishedJob::default()
        };
        let good = MinionReturn {
            success: true,
            run: Some(RunReturn::default()),
            ..MinionReturn::default()
        };
        done.returns.insert("a".parse().unwrap(), good);
        done.returns.insert(
            "b".parse().unwrap(),
            MinionReturn {
                error: Some("not connected".to_owned()),
                ..MinionReturn::default()
            },
        );
        let text = people(
            &done,
            &job_outcome(&done, true),
            View::default(),
            &Paint { colour: false },
        );
        assert_eq!(
            text,
            "b: ✗ not connected\n\n2 minions, 0 states, 0 changes   (job 00000000000000000001)\n"
        );
    }
}
