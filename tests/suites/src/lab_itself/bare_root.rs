//! Halite's programs in a root that contains only them: no libc, no shell, no `/proc`, three
//! devices. They work as a site of their own: master, enrolment with a token, states through the
//! master, states without it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{JobOutcome, LocalOutcome, NewNode, NewNodes};
use halite_lab::build::Programs;
use halite_lab::command::run;
use halite_lab::wait;
use halite_states::low::StateReturn;
use halite_states::tree::sha256;
use serde_json::json;

use super::root::{Root, succeeded};
use crate::shipped_tree;
use crate::test::Counts;

const MASTER: &str = "cluster: bare\nadvertise: [10.10.0.11]\nbundle: /media/halite\n";

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: bare}
networks:
  controlPlane: {cidrs: [10.10.0.0/24, 10.10.1.0/24]}
kubernetes: {version: \"1.36\"}
";

const MINION: &str = "id: worker-1\nmaster: 10.10.0.11:4550\n";

/// States that need only a file system.
const STATES: &str = "/srv/greeting:
  file.managed:
    - contents: '{{ grains.id }} of {{ pillar.halite.cluster.name }}'
    - mode: '0640'
    - makedirs: True
/srv/copy:
  file.managed:
    - source: salt://motd/copy.txt
    - require:
        - file: /srv/greeting
/srv/link:
  file.symlink:
    - target: /srv/copy
both-are-there:
  test.succeed_without_changes:
    - require:
        - file: /srv/link
";

const COPY: &str = "byte for byte\n";

/// Pillar for `ctl local`, which gets none from a master.
const LOCAL_PILLAR: &str = "halite: {cluster: {name: masterless}}\n";

/// Tests master, enrolment, and states in such a root.
pub(super) fn works((): &()) -> Result<Counts> {
    works_with(Programs::Dev)
}

/// The same with the programs as shipped.
pub(super) fn shipped_works((): &()) -> Result<Counts> {
    works_with(Programs::Shipped)
}

fn works_with(programs: Programs) -> Result<Counts> {
    let mut root = Root::new(programs)?;
    for program in ["ctl", "halite-master", "halite-minion"] {
        root.run(program, &["--version"])?;
    }
    bundle(&root)?;
    root.put("etc/halite/master.yaml", MASTER)?;
    root.put("etc/halite/minion.yaml", MINION)?;
    root.put("etc/halite/cluster.yaml", CLUSTER)?;
    let result = site(&mut root).and_then(|()| without_master(&root));
    result.with_context(|| root.said())?;
    let found: Vec<String> = libraries(&root)?;
    ensure!(found.is_empty(), "the root holds libraries: {found:?}");
    Ok(Counts::ONE)
}

fn bundle(root: &Root) -> Result<()> {
    // A bundle must have them; none is used here.
    let images = shipped_tree::images();
    let states = [
        ("states/motd/init.sls", STATES),
        ("states/motd/copy.txt", COPY),
    ];
    let mut files = serde_json::Map::new();
    for (path, text) in states {
        files.insert(
            path.to_owned(),
            json!({"sha256": sha256(text.as_bytes()), "size": text.len()}),
        );
        root.put(&format!("media/halite/{path}"), text)?;
    }
    let manifest = json!({"format": 1, "name": "halite", "version": "0.1.0", "built": "2026-01-01T00:00:00Z",
        "kubernetes": "v1.36.3", "components": {}, "images": images, "packages": {}, "files": files})
    .to_string();
    root.put("media/halite/manifest.json", &manifest)?;
    let digest = sha256(manifest.as_bytes());
    root.put(
        "media/halite/manifest.json.sha256",
        &format!("{digest}  manifest.json\n"),
    )
}

fn site(root: &mut Root) -> Result<()> {
    root.run("halite-master", &["init"])?;
    root.start("halite-master")?;
    wait::until("the master to answer", Duration::from_secs(90), || {
        root.run("ctl", &["key", "list"]).map(drop)
    })?;
    let added: NewNodes = root.document(&[
        "node",
        "add",
        "bootstrap-1",
        "--address",
        "10.10.0.11",
        "--roles",
        "bootstrap,registry,etcd,control-plane",
        "--no-wait",
    ])?;
    let [_] = added.nodes.as_slice() else {
        bail!("not one host: {added:?}");
    };
    let added: NewNodes = root.document(&[
        "node",
        "add",
        "worker-1",
        "--address",
        "10.10.1.12",
        "--roles",
        "worker",
        "--no-wait",
    ])?;
    let [NewNode { token, .. }] = added.nodes.as_slice() else {
        bail!("not one host: {added:?}");
    };
    let enrol = |token: &str| {
        let mut command = root.command(
            "halite-minion",
            &["enrol", "--id", "worker-1", "--master", "10.10.0.11:4550"],
        );
        command
            .env("HALITE_TOKEN", token)
            .output()
            .context("cannot start halite-minion")
    };
    // A token of the right form, with the right CA: the master itself must refuse it.
    let authority = token.rsplit('.').next().unwrap_or_default();
    let refused = enrol(&format!(
        "{0}.{1}.{authority}",
        "0".repeat(16),
        "0".repeat(64)
    ))?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && said.contains("not valid"),
        "a wrong token: {said}"
    );
    let said = succeeded("halite-minion enrol", &enrol(token)?)?;
    ensure!(
        said.contains("enrolled as worker-1"),
        "halite-minion enrol printed {said:?}"
    );
    root.start("halite-minion")?;
    wait::until("the minion to answer", Duration::from_secs(90), || {
        root.run("ctl", &["ping", "worker-1"]).map(drop)
    })?;
    let apply = ["apply", "worker-1", "motd"];
    ensure!(
        changes(&of_worker(root, &apply)?)? == 3,
        "the number of changed states is not three"
    );
    are_there(root, "worker-1 of bare")?;
    ensure!(
        changes(&of_worker(root, &apply)?)? == 0,
        "a second run changed something"
    );
    Ok(())
}

fn without_master(root: &Root) -> Result<()> {
    root.put("tmp/pillar.yaml", LOCAL_PILLAR)?;
    let apply = [
        "local",
        "apply",
        "motd",
        "--tree",
        "/media/halite/states",
        "--pillar",
        "/tmp/pillar.yaml",
        "--id",
        "alone",
    ];
    ensure!(
        changes(&root.document::<LocalOutcome>(&apply)?.states)? == 1,
        "the number of changed states is not one"
    );
    let greeting = fs::read_to_string(root.path("srv/greeting"))?;
    ensure!(
        greeting.trim_end().ends_with(" of masterless"),
        "the greeting is {greeting:?}"
    );
    ensure!(
        changes(&root.document::<LocalOutcome>(&apply)?.states)? == 0,
        "a second run changed something"
    );
    Ok(())
}

/// The states of the worker in the answer of `ctl apply`.
fn of_worker(root: &Root, apply: &[&str]) -> Result<Vec<StateReturn>> {
    let outcome: JobOutcome = root.document(apply)?;
    let part = outcome.minions.get("worker-1").context("no answer")?;
    part.states.clone().context("no states")
}

/// The number of states that changed something; an error if any failed.
fn changes(states: &[StateReturn]) -> Result<usize> {
    ensure!(
        states.len() == 4,
        "{} states instead of 4: {states:#?}",
        states.len()
    );
    let failed: Vec<&StateReturn> = states
        .iter()
        .filter(|state| state.result != Some(true))
        .collect();
    ensure!(failed.is_empty(), "failed: {failed:#?}");
    let changed = states.iter().filter(|state| !state.changes.is_empty());
    Ok(changed.count())
}

fn are_there(root: &Root, greeting: &str) -> Result<()> {
    let path = root.path("srv/greeting");
    let text = fs::read_to_string(&path)?;
    ensure!(text.trim_end() == greeting, "the greeting is {text:?}");
    let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
    ensure!(mode == 0o640, "the greeting has mode {mode:o}");
    ensure!(
        fs::read_to_string(root.path("srv/copy"))? == COPY,
        "the copy differs"
    );
    ensure!(
        fs::read_link(root.path("srv/link"))? == Path::new("/srv/copy"),
        "the link has another target"
    );
    Ok(())
}

/// Files with names of libraries or of a loader. There must be none, otherwise the root proves
/// nothing.
fn libraries(root: &Root) -> Result<Vec<String>> {
    let found = run(
        "find",
        &[
            root.path("").as_os_str(),
            "-name".as_ref(),
            "*.so*".as_ref(),
        ],
    )?;
    Ok(found.lines().map(str::to_owned).collect())
}
