//! `ctl upgrade`: upgrades the cluster to another bundle, host by host.

use halite_api::UpgradePlan;
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use crate::FAILED;
use crate::cli::{Global, Upgrade};
use crate::client;
use crate::commands::again::CommandLine;
use crate::commands::node_drain::DrainOptions;
use crate::confirm::confirmed;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// Runs `ctl upgrade`.
///
/// # Errors
/// The master does not answer, or refuses the bundle.
pub async fn upgrade(global: &Global, args: &Upgrade, screen: &mut Screen) -> anyhow::Result<u8> {
    let plan: UpgradePlan = client::show(global, "upgrade", &args.version, Vec::new()).await?;
    screen.note(described(&plan));
    if !confirmed(&question(args, &plan), args.yes || args.test, screen)? {
        return Ok(FAILED);
    }
    let bundle = plan.bundle.as_str();
    let request = v1::OrchestrateRequest {
        sls: UPGRADE.to_owned(),
        pillar_json: pillar(args, bundle).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let label = format!("bundle {bundle}");
    let done = run_orchestration(global, request, &label, screen).await?;
    let success = format!("the cluster has the bundle {bundle}");
    let success = success_of(&success, args.test);
    print_outcome(&done, success, &again(args).text(), screen)
}

/// The question before an upgrade with the master's `plan`.
fn question(args: &Upgrade, plan: &UpgradePlan) -> String {
    let pods = match (plan.hosts.len(), args.no_drain) {
        (0, _) => "No host is changed",
        (_, true) => "No pods are evicted",
        (_, false) => "The pods of each host are evicted while it is upgraded",
    };
    format!("Upgrade the cluster to the bundle {}? {pods}.", plan.bundle)
}

/// The pillar of the orchestration. The content of an emptyDir is lost with its pod: an upgrade
/// does not stop in the middle to ask about it.
fn pillar(args: &Upgrade, bundle: &str) -> Value {
    let drain = (!args.no_drain).then_some(DrainOptions {
        delete_emptydir_data: true,
        force: args.force,
        timeout: args.drain_timeout.as_secs(),
        grace_period: None,
    });
    let (batch, backup) = (&args.batch, !args.no_backup);
    match drain {
        Some(drain) => json!({"bundle": bundle, "batch": batch, "backup": backup, "drain": drain}),
        None => json!({"bundle": bundle, "batch": batch, "backup": backup}),
    }
}

/// One line about the upgrade.
pub fn described(plan: &UpgradePlan) -> String {
    format!(
        "bundle {} with Kubernetes {} → {} with {}; {}",
        plan.before.bundle,
        plan.before.kubernetes,
        plan.bundle,
        plan.kubernetes,
        match plan.hosts.len() {
            0 => "each host has it".to_owned(),
            1 => "1 host does not have it yet".to_owned(),
            more => format!("{more} hosts do not have it yet"),
        }
    )
}

/// The command with the same words.
fn again(args: &Upgrade) -> CommandLine {
    let batch = Some(&args.batch).filter(|batch| *batch != "25%");
    CommandLine::new(format!("ctl upgrade {}", args.version))
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

    fn plan(hosts: &[&str]) -> UpgradePlan {
        UpgradePlan {
            bundle: "1.1".to_owned(),
            kubernetes: "v1.36.4".to_owned(),
            before: halite_api::BundleRelease {
                bundle: "1.0".to_owned(),
                kubernetes: "v1.36.3".to_owned(),
            },
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        }
    }

    #[test]
    fn an_upgrade_is_described_in_one_line() {
        assert_eq!(
            described(&plan(&["cp-1", "worker-1"])),
            "bundle 1.0 with Kubernetes v1.36.3 → 1.1 with v1.36.4; 2 hosts do not have it yet"
        );
    }

    #[test]
    fn the_question_names_the_bundle_and_what_happens_to_pods() {
        let of = |words: &str, hosts: &[&str]| question(&arguments(words), &plan(hosts));
        assert_eq!(
            of("1.1", &["a"]),
            "Upgrade the cluster to the bundle 1.1? The pods of each host are evicted while it is upgraded."
        );
        assert!(of("1.1 --no-drain", &["a"]).ends_with("No pods are evicted."));
        assert!(of("1.1", &[]).ends_with("No host is changed."));
    }

    fn arguments(words: &str) -> Upgrade {
        let line = format!("ctl upgrade {words}");
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
        match cli.command {
            Command::Upgrade(args) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn an_upgrade_backs_up_and_drains_unless_it_is_not_to() {
        let of = |words: &str| pillar(&arguments(words), "1.1");
        let drain = json!({"delete_emptydir_data": true, "force": false, "timeout": 900});
        assert_eq!(
            of("1.1"),
            json!({"bundle": "1.1", "batch": "25%", "backup": true, "drain": drain})
        );
        assert_eq!(
            of("1.1 --batch 3 --no-backup --no-drain"),
            json!({"bundle": "1.1", "batch": "3", "backup": false})
        );
        for words in [
            "1.1",
            "1.1 --batch 50% --no-backup --no-drain",
            "1.1 --force --drain-timeout 90s --yes --test",
        ] {
            let again = again(&arguments(words)).text();
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
}
