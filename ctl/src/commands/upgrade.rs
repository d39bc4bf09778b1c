//! `ctl upgrade`: the cluster gets another bundle, host by host.

use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use crate::cli::{Global, Upgrade};
use crate::client;
use crate::client::document;
use crate::orchestration_watch::{print_outcome, run_orchestration};
use crate::output::Screen;

/// Runs `ctl upgrade`.
///
/// # Errors
/// The master does not answer, or refuses the bundle.
pub async fn upgrade(global: &Global, args: &Upgrade, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let request = v1::ShowRequest {
        what: "upgrade".to_owned(),
        target: args.version.clone(),
        ..v1::ShowRequest::default()
    };
    let plan = document(operator.show(request).await)?;
    screen.note(described(&plan));
    let bundle = &plan["bundle"];
    let request = v1::OrchestrateRequest {
        sls: UPGRADE.to_owned(),
        pillar_json: json!({"bundle": bundle, "batch": args.batch}).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let label = format!("bundle {}", text(bundle));
    let done = run_orchestration(global, request, &label, screen).await?;
    let success = if args.test {
        "nothing was changed".to_owned()
    } else {
        format!("the cluster has the bundle {}", text(bundle))
    };
    print_outcome(&done, &success, &same_words(args), screen)
}

/// One line about the upgrade.
fn described(plan: &Value) -> String {
    let hosts = plan["hosts"].as_array().map_or(0, Vec::len);
    format!(
        "bundle {} with Kubernetes {} → {} with {}; {}",
        text(&plan["before"]["bundle"]),
        text(&plan["before"]["kubernetes"]),
        text(&plan["bundle"]),
        text(&plan["kubernetes"]),
        match hosts {
            0 => "each host has it".to_owned(),
            1 => "1 host does not have it yet".to_owned(),
            more => format!("{more} hosts do not have it yet"),
        }
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The command with the same words: the master then joins the same run.
fn same_words(args: &Upgrade) -> String {
    let mut words = format!("ctl upgrade {}", args.version);
    if args.batch != "25%" {
        words.push_str(&format!(" --batch {}", args.batch));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_described_in_one_line() {
        let plan = json!({"bundle": "1.1", "kubernetes": "v1.36.4",
            "before": {"bundle": "1.0", "kubernetes": "v1.36.3"}, "hosts": ["cp-1", "worker-1"]});
        assert_eq!(
            described(&plan),
            "bundle 1.0 with Kubernetes v1.36.3 → 1.1 with v1.36.4; 2 hosts do not have it yet"
        );
    }
}
