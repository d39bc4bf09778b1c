//! Manifests of the operator, as the guide describes them: applied, repaired, moved to another
//! file, and removed with it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster};

use super::guide;
use super::repair::{highstate, quiet};
use crate::declare::declare;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "operator: own manifests are applied, repaired, moved and removed",
    run: manifests,
}];

const PAGE: &str = "own-states.md";
const HEADING: &str = "## Kubernetes manifests";
/// The guide's file, and the namespaces that it makes.
const FILE: &str = "teams.yaml.j2";
const TEAMS: [&str; 2] = ["team-blue", "team-red"];
/// A manifest that names an object of Halite.
const FOREIGN: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {a: b}\n";

fn manifests(cluster: &Cluster) -> Result<Counts> {
    let text = guide::block(PAGE, HEADING, FILE)?;
    let declared = guide::block(PAGE, HEADING, "\ncustom:")?;
    let custom = declared
        .lines()
        .find_map(|line| line.strip_prefix("custom: "));
    declare(
        cluster,
        "custom",
        custom.context("no `custom` in the guide")?,
    )?;
    guide::own_manifest(cluster, FILE, &text)?;
    let result = in_turn(cluster);
    let folder = folder(cluster);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    // The last test of the folder: without it, all is removed.
    let removed = highstate(cluster, &["master"]);
    guide::no_own_states(cluster)?;
    declare(cluster, "custom", "")?;
    result?;
    removed?;
    let left = teams(cluster)?;
    ensure!(left.is_empty(), "{left:?} are left");
    quiet(cluster)?;
    Ok(Counts {
        passed: 5,
        failed: 0,
    })
}

fn folder(cluster: &Cluster) -> PathBuf {
    cluster.bootstrap.file("/etc/halite/custom/manifests")
}

/// The namespaces of the teams.
fn teams(cluster: &Cluster) -> Result<Vec<String>> {
    let all = cluster.kubectl(&["get", "namespaces", "-o", "name"])?;
    let names = all
        .lines()
        .filter_map(|line| line.strip_prefix("namespace/"));
    let teams = names.filter(|name| name.starts_with("team-"));
    Ok(teams.map(str::to_owned).collect())
}

/// The identifier of a team's object, which changes if the object is created again.
fn uid(cluster: &Cluster, team: &str) -> Result<String> {
    cluster.kubectl(&[
        "-n",
        team,
        "get",
        "resourcequota",
        "team",
        "-o",
        "jsonpath={.metadata.uid}",
    ])
}

fn in_turn(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    // The commands of the guide.
    for begin in [
        "ctl render",
        "ctl apply master halite.addons.manifests --test",
    ] {
        let said = host.run(&guide::command(PAGE, HEADING, begin)?)?;
        ensure!(said.contains("team-red"), "{begin}: {said}");
        ensure!(teams(cluster)?.is_empty(), "{begin} changed the cluster");
    }
    let changed = highstate(cluster, &[])?.changed;
    ensure!(changed.len() == 1, "{changed:#?}");
    ensure!(teams(cluster)? == TEAMS, "{:?}", teams(cluster)?);
    quiet(cluster)?;

    // A change of another program is shown with its name, and repaired.
    let quota = [
        "-n",
        TEAMS[0],
        "patch",
        "resourcequota",
        "team",
        "--type=merge",
    ];
    let patch = [
        "--field-manager=a-person",
        "-p",
        r#"{"spec":{"hard":{"pods":"1"}}}"#,
    ];
    cluster.kubectl(&[quota.as_slice(), &patch].concat())?;
    let shown = host.run(&[CTL, "highstate", "master", "--test", "-o", "json"])?;
    ensure!(
        shown.contains("takes .spec.hard.pods from a-person"),
        "{shown}"
    );
    highstate(cluster, &["master"])?;
    let pods = [
        "-n",
        TEAMS[0],
        "get",
        "resourcequota",
        "team",
        "-o",
        "jsonpath={.spec.hard.pods}",
    ];
    let pods = cluster.kubectl(&pods)?;
    ensure!(pods == "50", "{pods}");

    // Under another name, and in another folder, the objects stay.
    let before = uid(cluster, TEAMS[1])?;
    let folder = folder(cluster);
    fs::create_dir(folder.join("all"))?;
    fs::rename(folder.join(FILE), folder.join("all/groups.yaml.j2"))?;
    highstate(cluster, &["master"])?;
    ensure!(
        uid(cluster, TEAMS[1])? == before,
        "the objects were made again"
    );
    quiet(cluster)?;

    // Only objects that are no longer declared are removed.
    declare(cluster, "custom", "{teams: [red]}")?;
    highstate(cluster, &["master"])?;
    ensure!(teams(cluster)? == [TEAMS[1]], "{:?}", teams(cluster)?);
    ensure!(
        uid(cluster, TEAMS[1])? == before,
        "the objects were made again"
    );

    // An object of Halite's is refused; the other file is applied all the same.
    fs::write(folder.join("foreign.yaml"), FOREIGN)?;
    declare(cluster, "custom", "{teams: [red, blue]}")?;
    let output = host.output(&[CTL, "highstate", "master", "-o", "json"])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && said.contains("Halite itself applies it"),
        "{said}"
    );
    ensure!(teams(cluster)? == TEAMS, "{:?}", teams(cluster)?);
    fs::remove_file(folder.join("foreign.yaml")).map_err(Into::into)
}
