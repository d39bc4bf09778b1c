//! `ctl upgrade status`, `pause` and `resume`: the last upgrade.

use std::time::Duration;

use anyhow::bail;
use halite_api::{UpgradeOptions, UpgradeState, UpgradeStatus, to_value};
use halite_proto::v1;

use super::start;
use crate::FAILED;
use crate::again::CommandLine;
use crate::cli::Global;
use crate::client;
use crate::client::document;
use crate::confirm::confirmed;
use crate::orchestration_watch::print_outcome;
use crate::output::{Screen, list, or_dash};

async fn last(global: &Global) -> anyhow::Result<UpgradeStatus> {
    client::show(global, "upgrade-status", "", Vec::new()).await
}

/// Runs `ctl upgrade status`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn status(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let status = last(global).await?;
    screen.answer(&to_value(&status), |_| text(&status))?;
    Ok(0)
}

/// Runs `ctl upgrade pause`.
///
/// # Errors
/// No upgrade is running, or the master does not answer or refuses.
pub async fn pause(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let before = last(global).await?;
    let run = match (&before.state, &before.run) {
        (UpgradeState::Running | UpgradeState::Pausing, Some(run)) => run.to_string(),
        (state, _) => bail!(
            "cannot pause the upgrade: none is running (the state of the last one is `{state}`); `ctl upgrade status` shows it"
        ),
    };
    let mut operator = client::operator(global).await?;
    let request = v1::CancelRunRequest { run, pause: true };
    let status: UpgradeStatus = document(operator.cancel_run(request).await)?;
    screen.answer(&to_value(&status), |_| text(&status))?;
    Ok(0)
}

/// Runs `ctl upgrade resume`.
///
/// # Errors
/// No upgrade is paused, or the master does not answer or refuses.
pub async fn resume(global: &Global, yes: bool, screen: &mut Screen) -> anyhow::Result<u8> {
    let status = last(global).await?;
    let (UpgradeState::Paused, Some(bundle), Some(options)) =
        (&status.state, &status.bundle, &status.options)
    else {
        let advice = match status.state {
            UpgradeState::Stopped | UpgradeState::Incomplete => {
                format!("{} continues it", command_of(&status))
            }
            UpgradeState::Pausing => {
                "it has not reached the next host yet; run this again when it is paused".to_owned()
            }
            _ => "`ctl upgrade status` shows it".to_owned(),
        };
        bail!(
            "cannot resume the upgrade: none is paused (the state of the last one is `{}`); {advice}",
            status.state
        );
    };
    screen.note(text(&status).trim_end());
    let pods = match options.drain {
        Some(_) => "The pods of each host are evicted while it is upgraded",
        None => "No pods are evicted",
    };
    let what = if status.back { "return" } else { "upgrade" };
    let question = format!("Continue the {what} to the bundle {bundle}? {pods}.");
    if !confirmed(&question, yes, screen)? {
        return Ok(FAILED);
    }
    let pillar = options.to_pillar(bundle);
    let done = start(global, &pillar, false, bundle, screen).await?;
    let success = format!("the cluster has the bundle {bundle}");
    let again = again(bundle, options);
    print_outcome(&done, &success, &again, screen)
}

/// The command that continues an upgrade with its options, if the master names them.
fn command_of(status: &UpgradeStatus) -> String {
    match (&status.bundle, &status.options) {
        (Some(bundle), Some(options)) => format!("`{}`", again(bundle, options)),
        _ => "`ctl upgrade` with the same bundle and options".to_owned(),
    }
}

/// The command of a run with these options.
pub fn again(bundle: &str, options: &UpgradeOptions) -> String {
    let drain = options.drain.as_ref();
    let target = if options.back { "back" } else { bundle };
    let command = CommandLine::new(format!("ctl upgrade {target}"))
        .option("batch", options.batch.as_deref())
        .flag(!options.backup, "no-backup")
        .flag(drain.is_none(), "no-drain")
        .flag(drain.is_some_and(|drain| drain.force), "force");
    let command = match drain.and_then(|drain| drain.timeout) {
        Some(seconds) => command.drain_limit("drain-timeout", Duration::from_secs(seconds)),
        None => command,
    };
    let pause = options.pause_after.as_deref();
    command.option("pause-after", pause).text()
}

/// The other way out of an upgrade that has not ended.
fn or_back(status: &UpgradeStatus) -> &'static str {
    match status.back {
        true => "",
        false => "; `ctl upgrade back --test` shows the way back",
    }
}

/// Describes the last upgrade, with the next step.
pub fn text(status: &UpgradeStatus) -> String {
    let Some(bundle) = &status.bundle else {
        return "there was no upgrade\n".to_owned();
    };
    let by = or_dash(status.paused_by.as_ref());
    let (state, next) = match &status.state {
        UpgradeState::Running => (
            "is running".to_owned(),
            "`ctl upgrade pause` pauses it before the next host".to_owned(),
        ),
        UpgradeState::Pausing => (
            format!("is running, and pauses before the next host (by {by})"),
            "`ctl upgrade resume` continues it then".to_owned(),
        ),
        UpgradeState::Paused => (
            format!("is paused (by {by})"),
            format!("`ctl upgrade resume` continues it{}", or_back(status)),
        ),
        UpgradeState::Stopped => (
            "has stopped".to_owned(),
            format!(
                "fix the cause; {} continues it{}",
                command_of(status),
                or_back(status)
            ),
        ),
        UpgradeState::Incomplete => (
            "has ended without the hosts that were not connected".to_owned(),
            format!("{} upgrades them when they are", command_of(status)),
        ),
        UpgradeState::Done => ("has ended".to_owned(), String::new()),
        other => (other.to_string(), String::new()),
    };
    let mut text = format!(
        "{:<12}to the bundle {bundle} {state}\nrun         {}, by {}\nchanged     {}\n",
        if status.back { "return" } else { "upgrade" },
        or_dash(status.run.as_ref()),
        or_dash(status.operator.as_ref()),
        or_dash(status.changed.as_ref()),
    );
    if let Some(step) = &status.step {
        text.push_str(&format!("step        {step}\n"));
    }
    if let Some(error) = &status.error {
        text.push_str(&format!(
            "error       {}\n",
            error.replace('\n', "\n            ")
        ));
    }
    text.push_str(&format!(
        "done        {}\nleft        {}\n",
        list(&status.done),
        list(&status.left)
    ));
    if !next.is_empty() {
        text.push_str(&format!("{next}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use halite_api::UpgradeDrain;

    use super::*;

    #[test]
    fn the_last_upgrade_is_described_with_the_next_step() {
        let mut status = UpgradeStatus {
            state: UpgradeState::Paused,
            run: Some(halite_proto::ids::JobId::from_number(1)),
            bundle: Some("1.1".to_owned()),
            back: false,
            operator: Some("root".to_owned()),
            created: None,
            changed: None,
            step: Some("cp-2-turn".to_owned()),
            error: None,
            paused_by: Some("alice".to_owned()),
            done: vec!["cp-1".parse().unwrap()],
            left: vec!["cp-2".parse().unwrap(), "worker-1".parse().unwrap()],
            options: None,
        };
        let paused = text(&status);
        for part in [
            "upgrade     to the bundle 1.1 is paused (by alice)\n",
            "step        cp-2-turn\n",
            "done        cp-1\nleft        cp-2,worker-1\n",
            "`ctl upgrade resume` continues it; `ctl upgrade back --test` shows the way back\n",
        ] {
            assert!(paused.contains(part), "{part:?}: {paused}");
        }
        status.state = UpgradeState::Stopped;
        status.error = Some("one\ntwo".to_owned());
        let stopped = text(&status);
        assert!(
            stopped.contains("error       one\n            two\n"),
            "{stopped}"
        );
        let same = "`ctl upgrade` with the same bundle and options continues it; `ctl upgrade back --test` shows the way back\n";
        assert!(stopped.contains(same), "{stopped}");
        let drain = UpgradeDrain {
            force: true,
            timeout: Some(90),
            ..UpgradeDrain::default()
        };
        status.options = Some(UpgradeOptions {
            batch: Some("3".to_owned()),
            backup: true,
            drain: Some(drain.clone()),
            ..UpgradeOptions::default()
        });
        let stopped = text(&status);
        let command = "`ctl upgrade 1.1 --batch 3 --force --drain-timeout 90s` continues it; `ctl upgrade back";
        assert!(stopped.contains(command), "{stopped}");
        let plain = UpgradeOptions {
            pause_after: Some("control-plane".to_owned()),
            ..UpgradeOptions::default()
        };
        assert_eq!(
            again("1.1", &plain),
            "ctl upgrade 1.1 --no-backup --no-drain --pause-after control-plane"
        );
        status.back = true;
        status.options = Some(UpgradeOptions {
            backup: true,
            back: true,
            drain: Some(UpgradeDrain {
                force: false,
                timeout: Some(900),
                ..drain
            }),
            ..UpgradeOptions::default()
        });
        let stopped = text(&status);
        assert!(
            stopped.starts_with("return      to the bundle 1.1 has stopped\n")
                && stopped.ends_with("fix the cause; `ctl upgrade back` continues it\n"),
            "{stopped}"
        );
        status.bundle = None;
        assert_eq!(text(&status), "there was no upgrade\n");
    }
}
