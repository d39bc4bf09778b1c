//! `ctl destroy`: removes Halite from every host.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use halite_proto::identity::{is_root_of_host, root_of};
use halite_proto::pki::Inspected;
use halite_proto::v1;
use halite_states::shipped::DESTROY;
use serde_json::{Value, json};

use crate::again::CommandLine;
use crate::cli::{DestroyCluster, Global};
use crate::client;
use crate::identity;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;
use crate::waiting::Waiting;

/// The unit that removes the rest of Halite from a host, itself at the end.
const UNIT: &str = "/etc/systemd/system/halite-leave.service";
/// Time for that unit: the minion finishes its work first.
const LIMIT: Duration = Duration::from_secs(180);
/// The interval between two checks of it.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs `ctl destroy`.
///
/// # Errors
/// The identity is a host's, the master does not answer or refuses, or this host is not bare in
/// time.
pub async fn run(
    global: &Global,
    args: &DestroyCluster,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let path = &global.access()?.identity;
    let own = identity::read(path)?;
    let own = Inspected::from_pem(&own.client.certificate_pem).and_then(|own| own.identity());
    let own = own.with_context(|| format!("cannot use {}", path.display()))?;
    if is_root_of_host(own.id()) {
        let masters = client::status(global).await?.masters;
        check_access(own.id(), masters.host.as_deref())?;
    }
    let request = v1::OrchestrateRequest {
        sls: DESTROY.to_owned(),
        pillar_json: pillar(args).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let mut done = run_orchestration(global, request, &args.cluster, screen).await?;
    // The remark of the step `allowed` says what stays there; its hint at the next highstate is
    // wrong here, because none follows.
    let whole = !done.forget_left_out();
    if done.retcode == 0 && !args.test {
        wait_until_bare(screen).await?;
    }
    let success = success(&args.cluster, whole);
    let success = success_of(&success, args.test);
    print_outcome(&done, success, &again(args).text(), screen)
}

/// Fails if `own` is root's identity on a host other than the master's: that host leaves first.
/// `master` is the name of the master's host.
fn check_access(own: &str, master: Option<&str>) -> anyhow::Result<()> {
    if master.is_some_and(|master| own == root_of(master)) {
        return Ok(());
    }
    let host = master.unwrap_or("the master's host (ctl master list)");
    bail!(
        "cannot destroy the cluster as {own}: this access ends with its host, before the cluster does; run the same command as \
         root on {host}, or with an administrator's file (--identity)"
    );
}

/// Waits until the unit has removed itself, if this host leaves.
///
/// # Errors
/// The unit has not removed itself in time.
pub async fn wait_until_bare(screen: &mut Screen) -> anyhow::Result<()> {
    let mut waiting = Waiting::new(
        "halite-leave.service has removed the rest of Halite from this host",
        LIMIT,
        "`journalctl -u halite-leave` shows its work",
    );
    while Path::new(UNIT).exists() {
        screen.progress("halite-leave.service is removing the rest of Halite from this host …");
        if waiting.is_over() {
            bail!(
                "cannot remove the rest of Halite from this host in {} s: the journal of halite-leave.service shows the reason \
                (journalctl -u halite-leave); remove the cause, then: systemctl start halite-leave",
                LIMIT.as_secs()
            );
        }
        waiting.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The text for a success; `whole` if no host was left out.
fn success(cluster: &str, whole: bool) -> String {
    let other = if whole { "" } else { "other " };
    format!("Halite is completely removed from the {other}hosts of {cluster}")
}

fn pillar(args: &DestroyCluster) -> Value {
    json!({
        "force": args.force,
        "cluster": args.cluster,
        "packages": args.packages,
        "skip_offline": args.skip_offline,
        "wipe_data": args.wipe_data,
    })
}

/// The command with the same words.
fn again(args: &DestroyCluster) -> CommandLine {
    CommandLine::new("ctl destroy")
        .flag(args.force, "force")
        .option("cluster", Some(&args.cluster))
        .flag(args.packages, "packages")
        .flag(args.skip_offline, "skip-offline")
        .flag(args.test, "test")
        .flag(args.wipe_data, "wipe-data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::orchestration_watch::FinishedRun;

    #[test]
    fn a_host_that_was_left_out_is_not_said_to_be_bare() {
        let remark =
            "allowed: cp-3 is not connected: what Halite put there stays, until its disk is erased";
        let mut done = FinishedRun {
            notes: vec![
                remark.to_owned(),
                "not connected, so left out of `control-planes`: cp-3. The next `ctl highstate` applies the missing changes."
                    .to_owned(),
            ],
            ..FinishedRun::default()
        };
        let whole = !done.forget_left_out();
        assert_eq!(done.notes, [remark]);
        assert_eq!(
            success("prod", whole),
            "Halite is completely removed from the other hosts of prod"
        );
        let whole = !FinishedRun::default().forget_left_out();
        assert_eq!(
            success("prod", whole),
            "Halite is completely removed from the hosts of prod"
        );
    }

    #[test]
    fn only_root_on_the_masters_host_destroys_the_cluster() {
        check_access("root@cp-1", Some("cp-1")).unwrap();
        for (own, master) in [
            ("root@cp-2", Some("cp-1")),
            ("root@cp-1", Some("cp-11")),
            ("root@cp-1", None),
        ] {
            let refused = check_access(own, master).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("cannot destroy the cluster as {own}")));
        }
    }

    #[test]
    fn the_command_to_repeat_has_the_same_words() {
        for words in [
            "ctl destroy --force --cluster prod",
            "ctl destroy --force --cluster prod --packages --skip-offline --wipe-data",
        ] {
            let cli = <Cli as clap::Parser>::try_parse_from(words.split(' ')).unwrap();
            let Command::Destroy(args) = cli.command else {
                panic!("another command");
            };
            assert_eq!(again(&args).text(), words);
            let all = words.contains("--packages");
            assert_eq!(
                pillar(&args),
                json!({"force": true, "cluster": "prod", "packages": all, "skip_offline": all, "wipe_data": all})
            );
        }
    }
}
