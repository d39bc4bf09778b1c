//! `ctl upgrade`: upgrades the cluster to another bundle, host by host.

mod plan;
mod progress;

use anyhow::bail;
use halite_api::{
    ConfirmedPlan, RunOutcome, UpgradeDrain, UpgradeOptions, UpgradePlan, UpgradeSeverity, to_value,
};
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::Value;

use crate::FAILED;
use crate::again::CommandLine;
use crate::cli::{Global, LastUpgrade, NewUpgrade, RunOptions, Upgrade};
use crate::client;
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
    if let Some(id) = &args.plan {
        return apply_shown(global, (id, args.version.as_deref()), run, screen).await;
    }
    let version = args.version.as_deref().unwrap_or_default();
    let options = new_options(args, run);
    let pillar = options.to_pillar(version).to_string();
    let plan = client::upgrade_plan(global, version, pillar).await?;
    let paint = screen.paint();
    screen.note(plan::whole(&plan, &paint).trim_end());
    let again = again(version, args, run).text();
    carry_out(global, (run, options), plan, &again, screen).await
}

/// Starts the upgrade of a plan that was shown, with its options; `id` may be the start of the
/// plan's.
async fn apply_shown(
    global: &Global,
    (id, version): (&str, Option<&str>),
    run: &RunOptions,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let plan = client::shown_plan(global, id).await?;
    let again = progress::again(&plan.bundle, &plan.options);
    if let Some(version) = version {
        is_for(version, id, &plan)?;
    }
    let paint = screen.paint();
    screen.note(plan::whole(&plan, &paint).trim_end());
    let present = format!("{again} --test{}", global.access_options);
    still_holds(id, &plan, &present)?;
    let options = plan.options.clone();
    let again = CommandLine::new(again).flag(run.yes, "yes").text();
    carry_out(global, (run, options), plan, &again, screen).await
}

/// Refuses a version that the plan is not for.
fn is_for(version: &str, id: &str, plan: &UpgradePlan) -> anyhow::Result<()> {
    let is_kubernetes = plan.kubernetes.trim_start_matches('v') == version.trim_start_matches('v');
    if plan.bundle != version && !is_kubernetes {
        bail!(
            "cannot apply the plan {id} to {version}: it is for the bundle {} with Kubernetes {}; omit the version, or read the \
             plan that `ctl upgrade {version} --test` shows",
            plan.bundle,
            plan.kubernetes
        );
    }
    Ok(())
}

/// Refuses a plan that is not the one that the operator has read; `present` shows the present one.
fn still_holds(id: &str, plan: &UpgradePlan, present: &str) -> anyhow::Result<()> {
    if !plan.changed.is_empty() {
        bail!(
            "the plan {id} no longer holds, so nothing was changed: {}; `{present}` shows the present one",
            plan.changed.join("; ")
        );
    }
    Ok(())
}

/// Runs `ctl upgrade back`.
async fn back(global: &Global, args: &RunOptions, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut options = options(args);
    let plan = client::return_plan(global, options.to_pillar("").to_string()).await?;
    let paint = screen.paint();
    screen.note(plan::whole(&plan, &paint).trim_end());
    options.back = true;
    let again = with_options(CommandLine::new("ctl upgrade back"), args).text();
    carry_out(global, (args, options), plan, &again, screen).await
}

/// Asks, runs what was planned, and prints how it ended.
async fn carry_out(
    global: &Global,
    (args, options): (&RunOptions, UpgradeOptions),
    plan: UpgradePlan,
    again: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    // A run that is open already is judged by its own steps.
    let is_refused = plan.run.is_none() && !errors(&plan).is_empty();
    if is_refused && !args.test {
        return refused(&format!("{again}{}", global.access_options), plan, screen);
    }
    if !confirmed(&question(&plan), args.yes || args.test, screen)? {
        return Ok(FAILED);
    }
    let bundle = &plan.bundle;
    let pillar = with_plan(options, &plan).to_pillar(bundle);
    let mut done = start(global, &pillar, args.test, bundle, screen).await?;
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
fn question(plan: &UpgradePlan) -> String {
    let pods = match (plan.hosts.len(), &plan.options.drain) {
        (0, _) => "No host is changed",
        (_, None) => "No pods are evicted",
        (_, Some(_)) if plan.back => "The pods of each host are evicted while it changes",
        (_, Some(_)) => "The pods of each host are evicted while it is upgraded",
    };
    let what = match plan.back {
        true => format!("Return to the bundle {}", plan.bundle),
        false => format!("Upgrade the cluster to the bundle {}", plan.bundle),
    };
    format!("{what}? {pods}.")
}

/// The options of a run with a plan. That of a test is recorded for `--plan`.
fn with_plan(mut options: UpgradeOptions, plan: &UpgradePlan) -> UpgradeOptions {
    let has_id = !plan.id.is_empty();
    options.plan = (has_id || !plan.begun.is_empty() || plan.back).then(|| ConfirmedPlan {
        id: plan.id.clone(),
        planned_by: Some(plan.planned_by.clone()).filter(|version| !version.is_empty()),
        states: has_id.then(|| plan.states.clone()),
        begun: plan.begun.clone(),
        errors: errors(plan),
    });
    options
}

/// The options of an upgrade, without a plan.
fn new_options(args: &NewUpgrade, run: &RunOptions) -> UpgradeOptions {
    UpgradeOptions {
        pause_after: args.pause_after.map(|_| CONTROL_PLANE.to_owned()),
        ..options(run)
    }
}

/// The options without a plan. The content of an emptyDir is lost with its pod: a run does not stop
/// in the middle to ask about it.
fn options(args: &RunOptions) -> UpgradeOptions {
    UpgradeOptions {
        batch: args.batch.clone(),
        backup: !args.no_backup,
        drain: (!args.no_drain).then_some(UpgradeDrain {
            delete_emptydir_data: true,
            force: args.force,
            timeout: Some(args.drain_timeout.as_secs()),
            grace_period: None,
        }),
        ..UpgradeOptions::default()
    }
}

/// The command with the same words.
fn again(version: &str, args: &NewUpgrade, run: &RunOptions) -> CommandLine {
    let command = CommandLine::new(format!("ctl upgrade {version}"))
        .option("pause-after", args.pause_after.map(|_| CONTROL_PLANE));
    with_options(command, run)
}

fn with_options(command: CommandLine, args: &RunOptions) -> CommandLine {
    command
        .option("batch", args.batch.as_deref())
        .flag(args.no_backup, "no-backup")
        .flag(args.no_drain, "no-drain")
        .flag(args.force, "force")
        .drain_limit("drain-timeout", args.drain_timeout)
        .flag(args.yes, "yes")
        .flag(args.test, "test")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command};

    pub(super) fn plan(hosts: &[&str]) -> UpgradePlan {
        UpgradePlan {
            bundle: "1.1".parse().unwrap(),
            kubernetes: "v1.36.4".to_owned(),
            before: halite_api::BundleRelease {
                bundle: "1.0".parse().unwrap(),
                kubernetes: "v1.36.3".to_owned(),
            },
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            back: false,
            begun: Vec::new(),
            id: String::new(),
            planned_by: String::new(),
            turns: Vec::new(),
            estimate: None,
            steps: 0,
            unknown_steps: 0,
            findings: Vec::new(),
            run: None,
            states: BTreeMap::new(),
            options: UpgradeOptions::default(),
            changed: Vec::new(),
        }
    }

    #[test]
    fn the_question_names_the_bundle_and_what_happens_to_pods() {
        let of = |words: &str, hosts: &[&str]| {
            let mut plan = plan(hosts);
            plan.options = options(&arguments(words).1);
            question(&plan)
        };
        assert_eq!(
            of("1.1", &["a"]),
            "Upgrade the cluster to the bundle 1.1? The pods of each host are evicted while it is upgraded."
        );
        assert!(of("1.1 --no-drain", &["a"]).ends_with("No pods are evicted."));
        assert!(of("1.1", &[]).ends_with("No host is changed."));
        let mut back = plan(&["a"]);
        back.options = options(&arguments("1.1").1);
        back.back = true;
        assert_eq!(
            question(&back),
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
            new_options(&new, &run).to_pillar("1.1")
        };
        let drain = json!({"delete_emptydir_data": true, "force": false, "timeout": 900});
        assert_eq!(
            of("1.1"),
            json!({"bundle": "1.1", "backup": true, "drain": drain})
        );
        assert_eq!(
            of("1.1 --batch 3 --no-backup --no-drain"),
            json!({"bundle": "1.1", "batch": "3", "backup": false})
        );
        assert_eq!(
            of("1.1 --no-drain --pause-after control-plane"),
            json!({"bundle": "1.1", "backup": true, "pause_after": "control-plane"})
        );
        for words in [
            "1.1",
            "1.1 --batch 50% --no-backup --no-drain",
            "1.1 --force --drain-timeout 90s --yes --test",
            "1.1 --pause-after control-plane",
        ] {
            let again = {
                let (new, run) = arguments(words);
                again("1.1", &new, &run).text()
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
            "ctl upgrade --plan 0123456789ab --batch 25%",
            "ctl upgrade --plan 0123456789ab --drain-timeout 5m",
            "ctl upgrade --plan 0123456789ab --no-backup",
            "ctl upgrade --plan 0123456789ab --pause-after control-plane",
            "ctl upgrade --yes",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for version in [None, Some("1.1")] {
            let words = version.map_or_else(String::new, |version| format!("{version} "));
            let (new, run) = arguments(&format!("{words}--plan 0123456789ab --yes"));
            assert_eq!(new.plan.as_deref(), Some("0123456789ab"));
            assert_eq!(new.version.as_deref(), version);
            assert!(run.yes);
        }
    }

    #[test]
    fn a_plan_that_no_longer_holds_names_the_changes_and_the_way_to_the_present_one() {
        let id = "0123456789ab";
        let mut plan = plan(&["a"]);
        plan.options = new_options(&arguments("1.1 --batch 3").0, &arguments("1.1 --batch 3").1);
        let present = format!("{} --test", progress::again(&plan.bundle, &plan.options));
        assert!(still_holds(id, &plan, &present).is_ok());
        plan.changed = vec![
            "worker-1: changed motd".to_owned(),
            "cp-9: not part of it".to_owned(),
        ];
        let error = still_holds(id, &plan, &present).unwrap_err().to_string();
        assert_eq!(
            error,
            "the plan 0123456789ab no longer holds, so nothing was changed: worker-1: changed motd; cp-9: not part of it; \
             `ctl upgrade 1.1 --batch 3 --test` shows the present one"
        );
    }

    #[test]
    fn a_plan_is_applied_only_to_the_version_that_it_is_for() {
        let plan = plan(&["a"]);
        for version in ["1.1", "v1.36.4", "1.36.4"] {
            assert!(is_for(version, "0123456789ab", &plan).is_ok(), "{version}");
        }
        for version in ["1.2", "v1.36.3", "1.0"] {
            let error = is_for(version, "0123456789ab", &plan)
                .unwrap_err()
                .to_string();
            let start = format!(
                "cannot apply the plan 0123456789ab to {version}: it is for the bundle 1.1 with"
            );
            assert!(error.starts_with(&start), "{error}");
        }
    }

    #[test]
    fn a_run_has_the_plan_and_its_errors_and_a_test_is_recorded_with_it() {
        let mut plan = plan(&["a"]);
        let options = || options(&arguments("1.1").1);
        assert_eq!(with_plan(options(), &plan).plan, None, "an older master");
        plan.id = "0123456789abcdef".to_owned();
        plan.planned_by = "1.0".to_owned();
        plan.findings = vec![
            finding(UpgradeSeverity::Error),
            finding(UpgradeSeverity::Info),
        ];
        let own = with_plan(options(), &plan).plan.unwrap();
        assert_eq!((own.id, own.planned_by), (plan.id, Some("1.0".to_owned())));
        assert_eq!(
            (own.states, own.errors),
            (Some(plan.states), vec!["a pod".to_owned()])
        );
    }

    fn finding(severity: UpgradeSeverity) -> halite_api::UpgradeFinding {
        halite_api::UpgradeFinding {
            severity,
            check: halite_api::UpgradeCheck::Pods,
            host: None,
            message: "a pod".to_owned(),
            remedy: String::new(),
        }
    }

    #[test]
    fn only_errors_keep_an_upgrade_from_its_start() {
        let mut plan = plan(&["a"]);
        plan.findings = vec![finding(UpgradeSeverity::Warning)];
        assert!(errors(&plan).is_empty());
        plan.findings.push(finding(UpgradeSeverity::Error));
        assert_eq!(errors(&plan), ["a pod"]);
    }
}
