//! The plan of an upgrade, as text for people.

use halite_api::{UpgradeFinding, UpgradePlan, UpgradeSeverity, UpgradeTurn};
use halite_names::MASTER;
use halite_proto::ids::MinionId;

use crate::output::{Paint, table};

/// The characters of a plan's id that are shown.
const SHOWN: usize = 12;

/// The start of a plan's id, which is enough for `--plan`.
pub fn short(id: &str) -> &str {
    id.get(..SHOWN).unwrap_or(id)
}

/// The bundles in one line, then the order, the time and the findings.
pub fn whole(plan: &UpgradePlan, paint: &Paint) -> String {
    let mut text = format!("{}\n", described(plan));
    if plan.hosts.is_empty() {
        return text;
    }
    if let Some(run) = &plan.run {
        text.push_str(&format!(
            "run         {run} is in progress, and is joined\n"
        ));
    }
    if !plan.id.is_empty() {
        text.push_str(&format!("plan        {}\n", short(&plan.id)));
    }
    if !plan.turns.is_empty() {
        let turns: Vec<String> = plan.turns.iter().map(turn).collect();
        text.push_str(&format!("order       {}\n", turns.join("\n            ")));
    }
    text.push_str(&format!("time        {}\n", time(plan)));
    for finding in &plan.findings {
        text.push_str(&one(finding, paint));
    }
    text
}

/// One line about the upgrade.
fn described(plan: &UpgradePlan) -> String {
    let (start, hosts) = match (plan.back, plan.hosts.len()) {
        (true, 1) => ("back from ", "1 host changes".to_owned()),
        (true, more) => ("back from ", format!("{more} hosts change")),
        (false, 0) => ("", "each host has it".to_owned()),
        (false, 1) => ("", "1 host does not have it yet".to_owned()),
        (false, more) => ("", format!("{more} hosts do not have it yet")),
    };
    format!(
        "{start}bundle {} with Kubernetes {} → {} with {}; {hosts}",
        plan.before.bundle, plan.before.kubernetes, plan.bundle, plan.kubernetes,
    )
}

/// The hosts of a turn, those that are drained, and its usual time.
fn turn(turn: &UpgradeTurn) -> String {
    let name = |host: &MinionId| match host.as_str() {
        MASTER => "the Kubernetes objects".to_owned(),
        host if turn.drained.iter().any(|drained| drained == host) => {
            format!("{} (drained)", table::line(host))
        }
        host => table::line(host).to_string(),
    };
    let hosts: Vec<String> = turn.hosts.iter().map(name).collect();
    let time = turn.estimate.map(|seconds| format!("  {}", about(seconds)));
    format!("{}{}", hosts.join(", "), time.unwrap_or_default())
}

fn time(plan: &UpgradePlan) -> String {
    match (plan.estimate, plan.unknown_steps) {
        (None, _) => "not known: no upgrade is recorded here".to_owned(),
        (Some(seconds), 0) => format!("{}, by earlier upgrades", about(seconds)),
        (Some(seconds), unknown) => format!(
            "{}, by earlier upgrades, without {unknown} of {} steps that none of them had",
            about(seconds),
            plan.steps
        ),
    }
}

/// A time that is a median of others.
fn about(seconds: u64) -> String {
    match seconds {
        0..120 => format!("about {seconds} s"),
        _ => format!("about {} min", seconds.div_ceil(60)),
    }
}

fn one(finding: &UpgradeFinding, paint: &Paint) -> String {
    let mark = match &finding.severity {
        UpgradeSeverity::Error => paint.bad("✗"),
        UpgradeSeverity::Warning => paint.notable("!"),
        UpgradeSeverity::Info => "·".to_owned(),
        UpgradeSeverity::Other(word) => paint.notable(&table::line(word)),
    };
    let message = finding.message.replace('\n', "\n    ");
    let remedy = match finding.remedy.as_str() {
        "" => String::new(),
        remedy => format!("; {remedy}"),
    };
    format!("{mark} {message}{remedy}\n")
}

#[cfg(test)]
mod tests {
    use halite_api::UpgradeCheck;

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn an_upgrade_is_described_in_one_line() {
        assert_eq!(
            described(&plan(&["cp-1", "worker-1"])),
            "bundle 1.0 with Kubernetes v1.36.3 → 1.1 with v1.36.4; 2 hosts do not have it yet"
        );
    }

    #[test]
    fn a_return_is_described_in_one_line() {
        let mut back = plan(&["cp-1"]);
        back.back = true;
        assert_eq!(
            described(&back),
            "back from bundle 1.0 with Kubernetes v1.36.3 → 1.1 with v1.36.4; 1 host changes"
        );
    }

    #[test]
    fn a_plan_has_the_order_the_time_and_the_findings() {
        let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let mut plan = plan(&["cp-1", "worker-1", "worker-2"]);
        plan.id = "0123456789abcdef".to_owned();
        plan.steps = 12;
        plan.turns = vec![
            UpgradeTurn {
                hosts: names(&["cp-1"]),
                drained: names(&["cp-1"]),
                estimate: Some(90),
            },
            UpgradeTurn {
                hosts: names(&["master"]),
                ..UpgradeTurn::default()
            },
            UpgradeTurn {
                hosts: names(&["worker-1", "worker-2"]),
                drained: names(&["worker-2"]),
                estimate: None,
            },
        ];
        let finding = |severity: &str, message: &str, remedy: &str| UpgradeFinding {
            severity: severity.into(),
            check: UpgradeCheck::Pods,
            host: None,
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        };
        plan.findings = vec![
            finding("error", "default/bare stops its drain", "delete the pod"),
            finding("warning", "little space", ""),
            finding("info", "an API is deprecated", ""),
            finding("grave", "of a later version", ""),
        ];
        let paint = Paint { colour: false };
        let text = whole(&plan, &paint);
        let (_, below) = text.split_once('\n').unwrap();
        assert_eq!(
            below,
            "plan        0123456789ab\n\
             order       cp-1 (drained)  about 90 s\n\
             \x20           the Kubernetes objects\n\
             \x20           worker-1, worker-2 (drained)\n\
             time        not known: no upgrade is recorded here\n\
             ✗ default/bare stops its drain; delete the pod\n\
             ! little space\n\
             · an API is deprecated\n\
             grave of a later version\n"
        );
        plan.estimate = Some(421);
        plan.unknown_steps = 2;
        let text = whole(&plan, &paint);
        let wanted = "time        about 8 min, by earlier upgrades, without 2 of 12 steps that none of them had\n";
        assert!(text.contains(wanted), "{text}");
    }
}
