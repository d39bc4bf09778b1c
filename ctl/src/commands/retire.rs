//! `ctl master retire`: moves the master to a standby, and removes its old host.

mod stage;

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use halite_api::{ClusterStatus, FailedHandOver, MasterMove, to_value};
use halite_names::NodeName;
use halite_proto::v1;
use serde_json::json;
use tokio::time::Instant;

use self::stage::{Stage, Stages};
use crate::FAILED;
use crate::again::CommandLine;
use crate::cli::{Global, MasterRetire, NodeRemove};
use crate::client;
use crate::client::document;
use crate::commands::{node_remove, promotion};
use crate::confirm::confirmed;
use crate::event_stream::is_passing;
use crate::job_watch::run_job;
use crate::orchestration_watch::{FinishedRun, print_outcome};
use crate::output::Screen;
use crate::paths::STATE_DIR;
use crate::waiting::Waiting;

/// The longest time for which another host's refusal may mean that it hands the master over.
/// Afterwards it admits operators again or reports that the master has moved, or the next master
/// serves.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// The longest time that the old master takes to stop.
const STOPS: Duration = Duration::from_secs(60);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(500);
/// Seconds within which a standby must answer whether it has the bundle.
const ANSWER: u32 = 20;

/// Runs `ctl master retire`.
///
/// # Errors
/// There are obstacles, no master answers, or the standby did not take the master.
pub async fn retire(
    global: &Global,
    args: &MasterRetire,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let plan = plan(global, args, screen).await?;
    let from: NodeName = plan.from.parse()?;
    let (from, to) = (&from, plan.to.as_deref().unwrap_or_default());
    let again = again(args, from).text();
    let mut problems = plan.problems.clone();
    if !plan.moved && !to.is_empty() {
        problems.extend(bundle_problem(global, to, screen).await?);
    }
    if !problems.is_empty() {
        bail!("cannot retire {from}:\n  {}", problems.join("\n  "));
    }
    if plan.left && !args.keep {
        let note = format!("{from} has left the cluster already; the master is on {to}.");
        return node_remove::has_left(note, screen);
    }
    let next = global.with_master(plan.address.clone());
    for loss in &plan.losses {
        screen.note(format!("{from} takes with it: {loss}"));
    }
    if args.test {
        screen.answer(&to_value(&plan), |_| {
            format!("{to} would take the master; nothing was changed\n")
        })?;
        return Ok(0);
    }
    if !plan.moved {
        let question = format!("Move the master from {from} to {to}? No master serves until then.");
        if !confirmed(&question, args.yes || args.force, screen)? {
            return Ok(FAILED);
        }
        let before = client::status(global).await?;
        begin(global, args, &plan, screen).await?;
        wait_for_move(&next, &plan, &before, screen).await?;
    } else {
        screen.note(format!(
            "{from} does not have the master: continuing on {to}"
        ));
    }
    let done = match plan.followed {
        // The master moved before this command was repeated. Its host may be half removed.
        true => FinishedRun::default(),
        false => promotion::bring(&next, None, screen).await?,
    };
    if done.retcode != 0 || args.keep {
        let success = format!("{to} has the master, and serves the bundles");
        return print_outcome(&done, &success, &again, screen);
    }
    leave(&next, args, (from, to), &again, screen).await
}

/// Has the next master remove the host from the cluster.
async fn leave(
    next: &Global,
    args: &MasterRetire,
    (from, to): (&NodeName, &str),
    again: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let success = format!("{to} has the master, and {from} has left the cluster");
    match node_remove::take_out(next, &removal(args, from), screen).await? {
        Some(done) => print_outcome(&done, &success, again, screen),
        None => node_remove::own_has_left(&success, screen),
    }
}

fn request(args: &MasterRetire, host: &str, to: &str, check_only: bool) -> v1::HandOverRequest {
    v1::HandOverRequest {
        host: host.to_owned(),
        to: to.to_owned(),
        leaves: !args.keep,
        force: args.force,
        cluster: args.cluster.clone(),
        check_only,
    }
}

/// The master's plan of the move, with its obstacles. While this host hands over, waits for the
/// next master.
async fn plan(
    global: &Global,
    args: &MasterRetire,
    screen: &mut Screen,
) -> anyhow::Result<MasterMove> {
    let named = |name: &Option<halite_names::NodeName>| {
        name.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    let request = request(args, &named(&args.host), &named(&args.to), true);
    let directory = Path::new(STATE_DIR);
    let mut stages: Option<Stages> = None;
    loop {
        let error = match client::operator(global).await {
            Ok(mut operator) => match operator.hand_over(request.clone()).await {
                // It may be stopping at this moment.
                Err(status) if is_passing(&status) => client::refused(&status),
                answer => return document(answer),
            },
            Err(error) => error,
        };
        let Some(stage) = Stage::on(directory, &error) else {
            return Err(error);
        };
        let waits = match &mut stages {
            Some(waits) => waits,
            none => {
                screen.note(format!("waiting for the next master: {error:#}"));
                none.insert(Stages::new(stage.clone()))
            }
        };
        waits.enter(stage.clone());
        if waits.is_over() {
            return Err(error.context(stage.late()));
        }
        waits.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The standby to which this host currently hands the master over.
pub fn moving_to(directory: &Path) -> Option<String> {
    stage::note(directory).map(|note| note.to)
}

/// The problem of a standby that lacks the bundle in use and could not serve it as the master.
async fn bundle_problem(
    global: &Global,
    to: &str,
    screen: &mut Screen,
) -> anyhow::Result<Option<String>> {
    let status = client::status(global).await?;
    let Some(version) = status.bundle.map(|bundle| bundle.version) else {
        return Ok(Some(
            "the master has no bundle in use: `ctl status` says why".to_owned(),
        ));
    };
    let manifest = format!("/var/lib/halite/bundles/{version}/manifest.json");
    let request = v1::RunRequest {
        target: to.to_owned(),
        function: "cmd.run".to_owned(),
        args_json: json!({"cmd": format!("test -s {manifest}")}).to_string(),
        timeout_seconds: ANSWER,
        ..v1::RunRequest::default()
    };
    let done = run_job(global, request, screen).await?;
    let has_it = done.returns.get(to).is_some_and(|answer| answer.success);
    Ok((!has_it).then(|| {
        format!(
            "the standby {to} has no copy of the bundle {version}, or does not answer: `ctl highstate {to}` copies it"
        )
    }))
}

/// Has the master start the move as soon as nothing runs.
async fn begin(
    global: &Global,
    args: &MasterRetire,
    plan: &MasterMove,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let (from, to) = (plan.from.as_str(), plan.to.as_deref().unwrap_or_default());
    let mut said = Vec::new();
    let mut waiting = Waiting::without_limit(
        String::new(),
        "`ctl job cancel` and `ctl orchestrate cancel` end what runs; Ctrl-C ends the wait, and the master stays",
    );
    loop {
        let mut operator = client::operator(global).await?;
        let answer = operator.hand_over(request(args, from, to, false)).await;
        if answer.as_ref().is_err_and(is_passing) {
            // It has started the move, and stopped before it could answer; or the wait for the next
            // master ends soon.
            return Ok(());
        }
        let answer: MasterMove = document(answer)?;
        if answer.begun {
            screen.note(format!("the master moves from {from} to {to}"));
            return Ok(());
        }
        let waits = answer.waits;
        if waits.is_empty() {
            bail!(
                "cannot move the master off {from}: it is on {} now",
                answer.to.unwrap_or_default()
            );
        }
        if waits != said {
            screen.note(format!("waiting for the end of {}", waits.join(", ")));
            waiting.until(format!("{} has ended", waits.join(", ")));
            said = waits;
        }
        waiting.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The reason for a hand-over that has failed since the status `before`.
fn failure<'a>(
    now: Option<&'a FailedHandOver>,
    before: Option<&FailedHandOver>,
) -> Option<&'a str> {
    now.filter(|_| now != before)
        .map(|failed| failed.reason.as_str())
}

/// Waits until the next master serves, or the previous one, whose status was `before`, continues.
async fn wait_for_move(
    next: &Global,
    plan: &MasterMove,
    before: &ClusterStatus,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let (from, to) = (plan.from.as_str(), plan.to.as_deref().unwrap_or_default());
    let old = next.with_master(plan.own.clone());
    let begin = Instant::now();
    let mut stages = Stages::new(Stage::Takes(to.to_owned()));
    let mut serves_since: Option<Instant> = None;
    while !stages.is_over() {
        screen.progress(&format!("waiting for the master on {to}"));
        if let Ok(now) = client::status(next).await
            && now.masters.epoch >= plan.epoch
        {
            screen.clear();
            return Ok(());
        }
        let now = client::status(&old).await;
        let failed = now.as_ref().ok();
        let failed = failed.and_then(|now| now.masters.hand_over.as_ref());
        if let Some(reason) = failure(failed, before.masters.hand_over.as_ref()) {
            bail!("cannot hand the master over to {to}: {reason}; {from} has the master still");
        }
        let (is_recent, error) = (begin.elapsed() < LONGEST, now.as_ref().err());
        let directory = Path::new(STATE_DIR);
        stages.enter(Stage::of_move(directory, (from, to), error, is_recent));
        serves_since = now
            .ok()
            .and(Some(*serves_since.get_or_insert_with(Instant::now)));
        if serves_since.is_some_and(|since| since.elapsed() > STOPS) {
            bail!("the master on {from} did not start to move; run the same command again");
        }
        stages.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
    bail!(
        "the master of {from} was handed over, and the one on {to} does not serve: `journalctl -u halite-master` there says \
         why; then run the same command again; if {to} is dead, `ctl master promote --force --cluster NAME` on {from} takes \
         the master back"
    )
}

/// The command with the same words, and the host: without it, a late repetition would retire the
/// next master.
fn again(args: &MasterRetire, from: &NodeName) -> CommandLine {
    CommandLine::new(format!("ctl master retire {from}"))
        .option("to", args.to.as_ref())
        .flag(args.keep, "keep")
        .flag(args.yes, "yes")
        .departure(&removal(args, from))
}

/// The removal of the host, once another one has the master.
fn removal(args: &MasterRetire, from: &NodeName) -> NodeRemove {
    NodeRemove {
        name: from.clone(),
        yes: true,
        test: false,
        dead: false,
        force: args.force,
        cluster: args.cluster.clone(),
        pods: args.pods.clone(),
        packages: args.packages,
        wipe_data: args.wipe_data,
    }
}

#[cfg(test)]
mod tests {
    use halite_api::{HandOver, HandOverPhase};
    use halite_pillar::masters::STANDBY_OF;

    use super::*;
    use crate::cli::{Cli, Command, Master};
    use crate::reply_contract_tests::hand_over;

    fn arguments(line: &str) -> Result<MasterRetire, clap::Error> {
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' '))?;
        match cli.command {
            Command::Master(Master::Retire(args)) => Ok(args),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn the_command_to_repeat_names_the_host() {
        for (given, again) in [
            (
                "ctl master retire --keep --yes",
                "ctl master retire cp-1 --keep --yes",
            ),
            (
                "ctl master retire cp-1 --to cp-2 --packages --wipe-data --force --cluster prod",
                "ctl master retire cp-1 --to cp-2 --force --cluster prod --packages --wipe-data",
            ),
            // With other drain options, the removal would be a different run.
            (
                "ctl master retire --force --cluster prod --grace-period 5s --timeout 20m",
                "ctl master retire cp-1 --force --cluster prod --grace-period 5s --timeout 20m",
            ),
        ] {
            let from = "cp-1".parse().unwrap();
            assert_eq!(
                super::again(&arguments(given).unwrap(), &from).text(),
                again
            );
        }
    }

    #[test]
    fn the_failure_of_an_earlier_move_is_not_that_of_this_one() {
        let failed = |since: i64| FailedHandOver {
            from: "cp-1".to_owned(),
            to: "cp-2".to_owned(),
            leaves: false,
            since: halite_api::Time::from_millis(since),
            reason: "it was off".to_owned(),
        };
        let (first, second) = (failed(1), failed(2));
        assert_eq!(failure(Some(&first), None), Some("it was off"));
        assert_eq!(failure(Some(&first), Some(&failed(1))), None);
        assert_eq!(failure(Some(&second), Some(&first)), Some("it was off"));
        assert_eq!(failure(None, Some(&first)), None);
    }

    #[test]
    fn a_host_leaves_only_with_the_clusters_name() {
        for line in [
            "ctl master retire",
            "ctl master retire --force",
            "ctl master retire --keep --force --cluster prod",
            "ctl master retire --keep --wipe-data",
        ] {
            assert!(arguments(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_host_that_hands_over_waits_for_the_next_master() {
        let directory = tempfile::tempdir().unwrap();
        let write = |phase: HandOverPhase| {
            let note = HandOver {
                phase,
                ..hand_over()
            };
            let text = serde_json::to_string(&note).unwrap();
            std::fs::write(directory.path().join(HandOver::FILE), text).unwrap();
        };
        assert_eq!(moving_to(directory.path()), None);
        for phase in [HandOverPhase::Offered, HandOverPhase::Decided] {
            write(phase);
            assert_eq!(moving_to(directory.path()).as_deref(), Some("cp-2"));
        }
        write(HandOverPhase::Failed);
        assert_eq!(moving_to(directory.path()), None);
        write(HandOverPhase::Decided);
        std::fs::write(directory.path().join(STANDBY_OF), "").unwrap();
        assert_eq!(moving_to(directory.path()), None);
    }
}
