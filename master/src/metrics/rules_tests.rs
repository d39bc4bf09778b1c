//! The alert rules of the bundle name metrics and labels that exist. `promtool` checks them too, in
//! the lab.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

use super::tests::{Family, families, full};

const RULES: &str = include_str!("../../../bundle/builder/src/alerts.yaml");

/// The tests of the rules, for `promtool`.
const TESTS: &str = include_str!("../../../bundle/builder/tests/alerts.yaml");

/// Metrics that only inform: dashboards and operators' own rules use them.
const WITHOUT_ALERT: [&str; 11] = [
    "halite_etcd_database_in_use_bytes",
    "halite_health_check_state",
    "halite_health_round_duration_seconds",
    "halite_healthy",
    "halite_master_connected_minions",
    "halite_master_job_duration_seconds",
    "halite_master_jobs",
    "halite_master_refusals",
    "halite_master_returns",
    "halite_master_signed_certificates",
    "halite_open_jobs",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(default, rename = "for")]
    lasts: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TestFile {
    tests: Vec<RuleTest>,
}

#[derive(Deserialize)]
struct RuleTest {
    #[serde(rename = "alert_rule_test")]
    expected: Vec<ExpectedAlerts>,
}

#[derive(Deserialize)]
struct ExpectedAlerts {
    alertname: String,
    #[serde(rename = "exp_alerts")]
    alerts: Vec<serde_json::Value>,
}

fn rules() -> Vec<Rule> {
    let file: File = serde_saphyr::from_str(RULES).unwrap();
    let names: Vec<&str> = file
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!(names, ["halite"]);
    file.groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// The words of an expression.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(ends).filter(|word| !word.is_empty())
}

/// The metrics that an expression names, and the labels of all of them.
fn used<'a>(
    expr: &str,
    known: &'a BTreeMap<String, Family>,
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let (mut metrics, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for word in words(expr).filter(|word| word.starts_with("halite_")) {
        let family = known
            .iter()
            .find(|(_, family)| family.samples.iter().any(|name| name == word));
        let Some((name, family)) = family else {
            panic!("no metric has the sample {word}: {expr}");
        };
        metrics.insert(name.as_str());
        labels.extend(family.labels.iter().map(String::as_str));
    }
    (metrics, labels)
}

/// The labels in selectors, and those by which a rule aggregates.
fn selected(expr: &str) -> Vec<&str> {
    let between = |open: &str, close: char| -> Vec<&str> {
        let parts = expr.split(open).skip(1);
        parts
            .filter_map(|part| part.split_once(close).map(|(inside, _)| inside))
            .collect()
    };
    let selectors = between("{", '}')
        .into_iter()
        .flat_map(|inside| inside.split(','));
    let selectors = selectors.filter_map(|matcher| words(matcher).next());
    let groups = between("by (", ')')
        .into_iter()
        .flat_map(|inside| inside.split(", "));
    selectors.chain(groups).collect()
}

/// The labels in the texts of an alert.
fn displayed(text: &str) -> impl Iterator<Item = &str> {
    text.split("$labels.")
        .skip(1)
        .filter_map(|part| words(part).next())
}

#[test]
fn each_rule_names_metrics_and_labels_that_exist() {
    let text = full();
    let known = families(&text);
    for rule in rules() {
        let (metrics, labels) = used(&rule.expr, &known);
        assert!(!metrics.is_empty(), "{}", rule.alert);
        for label in selected(&rule.expr) {
            // Prometheus adds the label of its own job.
            let is_known = label == "job" || labels.contains(label);
            assert!(is_known, "{}: {label}", rule.alert);
        }
        for label in rule.annotations.values().flat_map(|text| displayed(text)) {
            assert!(
                label == "instance" || labels.contains(label),
                "{}: {label}",
                rule.alert
            );
        }
    }
}

#[test]
fn each_rule_has_a_severity_a_summary_and_a_command() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        assert!(rule.alert.starts_with("Halite"), "{}", rule.alert);
        let severity = rule.labels.get("severity").map(String::as_str);
        assert!(
            matches!(severity, Some("critical" | "warning")),
            "{}",
            rule.alert
        );
        assert!(rule.annotations.contains_key("summary"), "{}", rule.alert);
        assert!(
            rule.annotations["remedy"].contains('`'),
            "{}: no command",
            rule.alert
        );
        // An increase over a time, or an end that is certain, needs no further wait.
        let is_certain =
            rule.expr.contains("increase(") || rule.alert == "HaliteCertificateExpired";
        assert_eq!(rule.lasts.is_some(), !is_certain, "{}", rule.alert);
        assert!(
            names.insert(rule.alert.clone()),
            "{} is there twice",
            rule.alert
        );
    }
}

#[test]
fn each_metric_has_an_alert_or_only_informs() {
    let text = full();
    let known = families(&text);
    let rules = rules();
    let alerting: BTreeSet<&str> = rules
        .iter()
        .flat_map(|rule| used(&rule.expr, &known).0)
        .collect();
    for name in known.keys().map(String::as_str) {
        assert_ne!(
            alerting.contains(name),
            WITHOUT_ALERT.contains(&name),
            "{name}: write a rule, or list it here"
        );
    }
}

#[test]
fn each_rule_has_a_test_in_which_it_fires_and_a_moment_in_which_it_does_not() {
    let file: TestFile = serde_saphyr::from_str(TESTS).unwrap();
    let expected = file.tests.into_iter().flat_map(|test| test.expected);
    let (firing, silent): (Vec<_>, Vec<_>) = expected.partition(|one| !one.alerts.is_empty());
    for expected in [firing, silent] {
        let tested: BTreeSet<String> = expected.into_iter().map(|one| one.alertname).collect();
        let rules: BTreeSet<String> = rules().into_iter().map(|rule| rule.alert).collect();
        assert_eq!(tested, rules);
    }
}

/// `cargo lab test --full source:` builds the program and runs this test.
#[test]
#[ignore = "needs HALITE_PROMTOOL, the path of promtool"]
fn promtool_accepts_the_rules_and_they_fire_and_resolve() {
    let program = std::env::var_os("HALITE_PROMTOOL").expect("HALITE_PROMTOOL names the program");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bundle/builder");
    for words in [
        ["check", "rules", "src/alerts.yaml"],
        ["test", "rules", "tests/alerts.yaml"],
    ] {
        let output = Command::new(&program)
            .args(words)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}
