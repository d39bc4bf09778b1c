//! The CIS Kubernetes Benchmark on a cluster with the profile: kube-bench fails the checks of the
//! guide's table, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_upstream::store;
use serde::Deserialize;

use crate::guide;
use crate::test::Counts;

/// The page, and the heading above its commands and its table.
const PAGE: &str = "hardening.md";
const HEADING: &str = "## The benchmark";
/// The largest number of checks in the table.
const MOST: usize = 10;
/// The directory of kube-bench on a host. A check expands `*etcd*` in the present directory, so it
/// has nothing else.
const DIRECTORY: &str = "/root/benchmark";

/// The part of kube-bench's report that is compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BenchmarkReport {
    controls: Vec<TargetReport>,
}

/// The checks of a target, such as `master` or `node`.
#[derive(Debug, Deserialize)]
struct TargetReport {
    node_type: String,
    tests: Vec<SectionReport>,
}

#[derive(Debug, Deserialize)]
struct SectionReport {
    results: Vec<CheckResult>,
}

/// The result of a check.
#[derive(Debug, Deserialize)]
struct CheckResult {
    #[serde(rename = "test_number")]
    id: String,
    #[serde(rename = "test_desc")]
    description: String,
    status: String,
    #[serde(rename = "actual_value")]
    actual: String,
    #[serde(default)]
    reason: String,
}

/// Runs the page's commands on a control plane and on a worker. Manual checks, which kube-bench
/// warns of, do not count.
///
/// # Errors
/// A check fails that is not in the page's table, or a check of the table passes.
pub(super) fn fails_as_listed(cluster: &Cluster) -> Result<Counts> {
    let listed = listed()?;
    let [control_plane, node] = commands()?;
    let mut report = |line: &str| println!("  {line}");
    let (program, benchmarks) = halite_upstream::kube_bench(&halite_lab::cache(), &mut report)?;
    let mut failed = BTreeMap::new();
    for (host, command) in [(&cluster.bootstrap, control_plane), (&cluster.worker, node)] {
        let to = |path: &str| host.file(&format!("{DIRECTORY}/{path}"));
        for file in store::files(&benchmarks)? {
            let file_name = file.strip_prefix(&benchmarks)?.to_string_lossy();
            let copy = to(&format!("cfg/{file_name}"));
            fs::create_dir_all(copy.parent().context("no directory")?)?;
            fs::copy(&file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        }
        fs::copy(&program, to("kube-bench"))
            .with_context(|| format!("cannot copy {}", program.display()))?;
        failed.extend(failures(host, &command)?);
        host.run(&["rm", "-r", DIRECTORY])?;
    }
    let unlisted: Vec<&String> = (failed.iter())
        .filter(|(id, _)| !listed.contains(*id))
        .map(|(_, failure)| failure)
        .collect();
    let passed: Vec<&String> = listed
        .iter()
        .filter(|id| !failed.contains_key(*id))
        .collect();
    ensure!(
        unlisted.is_empty() && passed.is_empty(),
        "failed and not in the table of {PAGE}: {unlisted:#?}; in the table, but passed: {passed:?}"
    );
    Ok(Counts::ONE)
}

/// The checks that a command of the page fails on a host: the id of each, and a line about it.
fn failures(host: &Host, command: &str) -> Result<BTreeMap<String, String>> {
    let name = &host.spec.name;
    let line = format!("cd {DIRECTORY} && PATH=$PWD:$PATH && {command} --json");
    let text = host.sh(&line)?;
    let report: BenchmarkReport = serde_json::from_str(&text).with_context(|| {
        format!("{name}: the report of kube-bench is not understood: {text:.300}")
    })?;
    let mut failed = BTreeMap::new();
    for target in report.controls {
        let results: Vec<CheckResult> = (target.tests.into_iter())
            .flat_map(|section| section.results)
            .collect();
        // A check that cannot run fails or warns.
        ensure!(
            results.iter().any(|result| result.status == "PASS"),
            "{name}: no check of {} has passed: {results:?}",
            target.node_type
        );
        for result in results.into_iter().filter(|one| one.status == "FAIL") {
            let CheckResult {
                id,
                description,
                actual,
                reason,
                ..
            } = result;
            let failure = format!("{name}: {id} {description}: {actual:.300} {reason:.300}");
            failed.insert(id, failure);
        }
    }
    Ok(failed)
}

/// The commands of the page, for a control plane and for another node.
fn commands() -> Result<[String; 2]> {
    let block = guide::block(PAGE, HEADING, "kube-bench run")?;
    let lines: Vec<String> = (block.lines())
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .collect();
    let lines = <[String; 2]>::try_from(lines);
    lines.map_err(|lines| anyhow::anyhow!("{PAGE} has other commands than two: {lines:?}"))
}

/// The ids of the checks in the page's table.
fn listed() -> Result<BTreeSet<String>> {
    let rows = guide::table(PAGE, HEADING)?;
    let ids: BTreeSet<String> = (rows.iter())
        .filter_map(|row| Some(row.first()?.split_once(':')?.0.to_owned()))
        .collect();
    ensure!(
        ids.len() == rows.len() && ids.len() <= MOST,
        "the table of {PAGE} must have at most {MOST} rows, each with its own check and a reason: {rows:?}"
    );
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use halite_upstream::versions::KUBE_BENCH;

    use super::*;

    #[test]
    fn the_page_has_the_commands_and_a_short_list_of_checks() {
        let [control_plane, node] = commands().unwrap();
        let begin = "kube-bench run --config-dir cfg --benchmark cis-1.12 --targets ";
        assert_eq!(
            control_plane,
            format!("{begin}master,etcd,controlplane,node")
        );
        assert_eq!(node, format!("{begin}node"));
        for id in listed().unwrap() {
            let mut parts = id.split('.');
            assert!(parts.all(|part| part.parse::<u32>().is_ok()), "{id}");
        }
        let row = guide::table(PAGE, HEADING).unwrap().remove(0);
        assert_eq!(row.len(), 2, "a check and its reason: {row:?}");
    }

    #[test]
    fn the_page_names_the_version_that_the_suite_runs() {
        let page = guide::read(PAGE).unwrap();
        let section = page.split_once(HEADING).unwrap().1;
        assert!(section.contains(KUBE_BENCH), "{KUBE_BENCH} is not in it");
    }

    #[test]
    fn a_report_is_understood() {
        let report = r#"{"Controls": [{"id": "4", "node_type": "node", "tests": [{"section": "4.1", "results": [
            {"test_number": "4.1.1", "test_desc": "Mode", "status": "FAIL", "actual_value": "permissions=644", "scored": true}
        ]}]}], "Totals": {}}"#;
        let report: BenchmarkReport = serde_json::from_str(report).unwrap();
        let result = &report.controls[0].tests[0].results[0];
        assert_eq!(
            (result.id.as_str(), result.status.as_str()),
            ("4.1.1", "FAIL")
        );
    }
}
