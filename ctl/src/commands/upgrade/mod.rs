//! `ctl upgrade`: upgrades the cluster to another bundle, host by host.

mod plan;
mod progress;

use std::collections::BTreeMap;

use anyhow::bail;
use halite_api::{RunOutcome, UpgradePlan, UpgradeSeverity, to_value};
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde::Serialize;
use serde_json::{Value, json};

use crate::FAILED;
use crate::cli::{Global, LastUpgrade, NewUpgrade, RunOptions, Upgrade};
use crate::client;
use crate::commands::again::CommandLine;
use crate::commands::node_drain::DrainOptions;
use crate::confirm::confirmed;
use crate::finished_run::FinishedRun;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::{Screen, count};

#[cfg(test)]
pub use self::plan::whole as plan_text;
#[cfg(test)]
pub use self::progress::text as progress_text;

/// The place of a pause in the pillar and on the command line.
const CONTROL_PLANE: &str = "control-plane";

/// Runs `ctl upgrade`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn run(global: &Global, args: &Upgrade, screen: &mut Screen) -> anyhow::Result<u8> {
    match (&args.last, &args.new) {
        (Some(LastUpgrade::Status), _) => progress::status(global, screen).await,
        (Some(LastUpgrade::Pause), _) => progress::pause(global, screen).await,
        (Some(LastUpgrade::Back(options)), _) => back(global, options, screen).await,
        (Some(LastUpgrade::Resume { yes }), _) => progress::resume(global, *yes, screen).await,
        (None, Some(new)) => upgrade(global, (new, &args.run), screen).await,
        (None, None) => {
            bail!("name a bundle or a Kubernetes version, or `status`, `pause`, `resume` or `back`")
        }
    }
}

async fn upgrade(
    global: &Global,
    (args, run): (&NewUpgrade, &RunOptions),
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let mut pillar = new_pillar(args, run, &args.version);
    let plan = client::upgrade_plan(global, &args.version, json!(pillar).to_string()).await?;
    let paint = screen.paint();
    screen.note(plan::whole(&plan, &paint).trim_end());
    if let Some(wanted) = &args.plan {
        still_holds(wanted, &plan)?;
    }
    let bundle = plan.bundle.clone();
    pillar.bundle = &bundle;
    let again = again(args, run).text();
    carry_out(global, (run, pillar), plan, &again, screen).await
}

/// Refuses a plan that is not the one that the operator has read, and of which `wanted` is the start
/// of the id.
fn still_holds(wanted: &str, plan: &UpgradePlan) -> anyhow::Result<()> {
    if !plan.id.starts_with(wanted) {
        bail!(
            "the plan {wanted} no longer holds: documents, states, the bundle or the options have changed since it was shown; \
             nothing was changed; read the plan above, then start it with --plan {}",
            plan::short(&plan.id)
        );
    }
    Ok(())
}

/// Runs `ctl upgrade back`.
async fn back(global: &Global, args: &RunOptions, screen: &mut Screen) -> anyhow::Result<u8> {
    let plan = client::return_plan(global, json!(pillar(args, "")).to_string()).await?;
    let paint = screen.paint();
    screen.note(plan::whole(&plan, &paint).trim_end());
    let bundle = plan.bundle.clone();
    let mut pillar = pillar(args, &bundle);
    pillar.back = true;
    let again = with_options(CommandLine::new("ctl upgrade back"), args).text();
    carry_out(global, (args, pillar), plan, &again, screen).await
}

/// Asks, runs what was planned, and prints how it ended.
async fn carry_out(
    global: &Global,
    (args, pillar): (&RunOptions, UpgradePillar<'_>),
    plan: UpgradePlan,
    again: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    // A run that is open already is judged by its own steps.
    let is_refused = plan.run.is_none() && !errors(&plan).is_empty();
    if is_refused && !args.test {
        return refused(again, plan, screen);
    }
    if !confirmed(&question(args, &plan), args.yes || args.test, screen)? {
        return Ok(FAILED);
    }
    // A test has no plan to compare, but must know the hosts that a stopped upgrade had begun.
    let is_planned = !args.test && !plan.id.is_empty();
    let mut pillar = pillar;
    pillar.plan = (is_planned || !plan.begun.is_empty() || plan.back).then(|| ConfirmedPlan {
        id: &plan.id,
        planned_by: &plan.planned_by,
        states: is_planned.then_some(&plan.states),
        begun: &plan.begun,
    });
    let bundle = &plan.bundle;
    let mut done = start(global, &json!(pillar), args.test, bundle, screen).await?;
    let success = match plan.back {
        true => format!("all hosts have the bundle {bundle} again"),
        false => format!("the cluster has the bundle {bundle}"),
    };
    done.plan = args.test.then_some(plan);
    let success = success_of(&success, args.test);
    let code = print_outcome(&done, success, again, screen)?;
    Ok(if is_refused { FAILED } else { code })
}

/// Starts the orchestration with this pillar, or joins it, and waits for its end.
async fn start(
    global: &Global,
    pillar: &Value,
    test: bool,
    bundle: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    let request = v1::OrchestrateRequest {
        sls: UPGRADE.to_owned(),
        pillar_json: pillar.to_string(),
        test,
        request_id: String::new(),
    };
    run_orchestration(global, request, &format!("bundle {bundle}"), screen).await
}

/// The findings that would stop the run.
fn errors(plan: &UpgradePlan) -> Vec<String> {
    let errors = plan.findings.iter();
    let errors = errors.filter(|finding| finding.severity == UpgradeSeverity::Error);
    errors.map(|finding| finding.message.clone()).collect()
}

/// Prints that what was planned does not start.
fn refused(again: &str, plan: UpgradePlan, screen: &mut Screen) -> anyhow::Result<u8> {
    let (bundle, failures) = (plan.bundle.clone(), errors(&plan));
    let what = if plan.back { "return" } else { "upgrade" };
    let number = count(failures.len(), "finding");
    let outcome = RunOutcome {
        retcode: i32::from(FAILED),
        failures,
        plan: Some(plan),
        ..RunOutcome::default()
    };
    screen.answer(&to_value(&outcome), |paint| {
        format!(
            "{} cannot {what} to the bundle {bundle}: {number} would stop the run; nothing was changed. Remove the causes, then run \
             the same command again: {again}\n",
            paint.bad("✗")
        )
    })?;
    Ok(FAILED)
}

/// The question before a run with the master's `plan`.
fn question(args: &RunOptions, plan: &UpgradePlan) -> String {
    let pods = match (plan.hosts.len(), args.no_drain) {
        (0, _) => "No host is changed",
        (_, true) => "No pods are evicted",
        (_, false) if plan.back => "The pods of each host are evicted while it changes",
        (_, false) => "The pods of each host are evicted while it is upgraded",
    };
    let what = match plan.back {
        true => format!("Return to the bundle {}", plan.bundle),
        false => format!("Upgrade the cluster to the bundle {}", plan.bundle),
    };
    format!("{what}? {pods}.")
}

/// The pillar of the orchestration.
#[derive(Debug, Serialize)]
struct UpgradePillar<'a> {
    bundle: &'a str,
    batch: &'a str,
    backup: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<DrainOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_after: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<ConfirmedPlan<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    back: bool,
}

/// The plan in the pillar, with which each turn is compared.
#[derive(Debug, Serialize)]
struct ConfirmedPlan<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    planned_by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<&'a BTreeMap<String, BTreeMap<String, String>>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    begun: &'a [String],
}

/// The pillar of an upgrade, without a plan.
fn new_pillar<'a>(args: &'a NewUpgrade, run: &'a RunOptions, bundle: &'a str) -> UpgradePillar<'a> {
    UpgradePillar {
        pause_after: args.pause_after.map(|_| CONTROL_PLANE),
        ..pillar(run, bundle)
    }
}

/// The pillar without a plan. The content of an emptyDir is lost with its pod: a run does not stop in
/// the middle to ask about it.
fn pillar<'a>(args: &'a RunOptions, bundle: &'a str) -> UpgradePillar<'a> {
    UpgradePillar {
        bundle,
        batch: &args.batch,
        backup: !args.no_backup,
        drain: (!args.no_drain).then_some(DrainOptions {
            delete_emptydir_data: true,
            force: args.force,
            timeout: args.drain_timeout.as_secs(),
            grace_period: None,
        }),
        pause_after: None,
        plan: None,
        back: false,
    }
}

/// The command with the same words.
fn again(args: &NewUpgrade, run: &RunOptions) -> CommandLine {
    let command = CommandLine::new(format!("ctl upgrade {}", args.version))
        .option("pause-after", args.pause_after.map(|_| CONTROL_PLANE));
    with_options(command, run)
}

fn with_options(command: CommandLine, args: &RunOptions) -> CommandLine {
    let batch = Some(&args.batch).filter(|batch| *batch != "25%");
    command
        .option("batch", batch)
        .flag(args.no_backup, "no-backup")
        .flag(args.no_drain, "no-drain")
        .flag(args.force, "force")
        .drain_limit("drain-timeout", args.drain_timeout)
        .flag(args.yes, "yes")
        .flag(args.test, "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    pub(super) fn plan(hosts: &[&str]) -> UpgradePlan {
        UpgradePlan {
            bundle: "1.1".to_owned(),
            kubernetes: "v1.36.4".to_owned(),
            before: halite_api::BundleRelease {
                bundle: "1.0".to_owned(),
                kubernetes: "v1.36.3".to_owned(),
            },
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..UpgradePlan::default()
        }
    }

    #[test]
    fn the_question_names_the_bundle_and_what_happens_to_pods() {
        let of = |words: &str, hosts: &[&str]| question(&arguments(words).1, &plan(hosts));
        assert_eq!(
            of("1.1", &["a"]),
            "Upgrade the cluster to the bundle 1.1? The pods of each host are evicted while it is upgraded."
        );
        assert!(of("1.1 --no-drain", &["a"]).ends_with("No pods are evicted."));
        assert!(of("1.1", &[]).ends_with("No host is changed."));
        let mut back = plan(&["a"]);
        back.back = true;
        assert_eq!(
            question(&arguments("1.1").1, &back),
            "Return to the bundle 1.1? The pods of each host are evicted while it changes."
        );
    }

    fn arguments(words: &str) -> (NewUpgrade, RunOptions) {
        let line = format!("ctl upgrade {words}");
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
        match cli.command {
            Command::Upgrade(args) => (args.new.expect("an upgrade"), args.run),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn an_upgrade_backs_up_and_drains_unless_it_is_not_to() {
        let of = |words: &str| {
            let (new, run) = arguments(words);
            json!(new_pillar(&new, &run, "1.1"))
        };
        let drain = json!({"delete_emptydir_data": true, "force": false, "timeout": 900});
        assert_eq!(
            of("1.1"),
            json!({"bundle": "1.1", "batch": "25%", "backup": true, "drain": drain})
        );
        assert_eq!(
            of("1.1 --batch 3 --no-backup --no-drain"),
            json!({"bundle": "1.1", "batch": "3", "backup": false})
        );
        assert_eq!(
            of("1.1 --no-drain --pause-after control-plane"),
            json!({"bundle": "1.1", "batch": "25%", "backup": true, "pause_after": "control-plane"})
        );
        for words in [
            "1.1",
            "1.1 --batch 50% --no-backup --no-drain",
            "1.1 --force --drain-timeout 90s --yes --test",
            "1.1 --pause-after control-plane",
        ] {
            let again = {
                let (new, run) = arguments(words);
                again(&new, &run).text()
            };
            assert_eq!(again, format!("ctl upgrade {words}"));
        }
        for wrong in ["0", "0%", "half", "-1"] {
            let line = ["ctl", "upgrade", "1.1", &format!("--batch={wrong}")];
            assert!(
                <Cli as clap::Parser>::try_parse_from(line).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_last_upgrade_has_commands_of_its_own() {
        let parse = |line: &str| <Cli as clap::Parser>::try_parse_from(line.split(' '));
        for line in [
            "ctl upgrade status",
            "ctl upgrade pause",
            "ctl upgrade resume --yes",
            "ctl upgrade back --no-backup --test",
        ] {
            let cli = parse(line).unwrap();
            let Command::Upgrade(args) = cli.command else {
                panic!("another command");
            };
            assert!(args.last.is_some() && args.new.is_none(), "{line}");
        }
        for wrong in [
            "ctl upgrade --batch 2",
            "ctl upgrade 1.1 --pause-after workers",
            "ctl upgrade back 1.0",
            "ctl upgrade 1.1 --plan 12ab",
            "ctl upgrade 1.1 --plan 0123456789ab --test",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("ctl upgrade 1.1 --plan 0123456789ab").is_ok());
    }

    #[test]
    fn a_plan_that_was_read_starts_and_another_one_does_not() {
        let mut plan = plan(&["a"]);
        plan.id = "0123456789abcdef0123".to_owned();
        for read in ["0123456789ab", "0123456789abcdef0123"] {
            assert!(still_holds(read, &plan).is_ok(), "{read}");
        }
        let error = still_holds("0123456789ac", &plan).unwrap_err().to_string();
        assert!(error.contains("0123456789ac no longer holds"), "{error}");
        assert!(error.ends_with("--plan 0123456789ab"), "{error}");
    }

    #[test]
    fn only_errors_keep_an_upgrade_from_its_start() {
        let finding = |severity| halite_api::UpgradeFinding {
            severity,
            check: halite_api::UpgradeCheck::Pods,
            host: None,
            message: "a pod".to_owned(),
            remedy: String::new(),
        };
        let mut plan = plan(&["a"]);
        plan.findings = vec![finding(UpgradeSeverity::Warning)];
        assert!(errors(&plan).is_empty());
        plan.findings.push(finding(UpgradeSeverity::Error));
        assert_eq!(errors(&plan), ["a pod"]);
    }
}
