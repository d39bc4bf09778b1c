//! An operator's work with a finished cluster: every command in every output format, own states,
//! secrets that stay secret, the screen of a highstate, mistakes at an enrolment.

mod completion;
mod following;
mod kubeconfig;
mod mistakes;
mod roles;
mod screen;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_api::{Job, JobList, JobOutcome};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use halite_states::low::StateReturn;
use serde_json::Value;

use super::health::is_well;
use super::repair;
use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "operator: every command answers in every form",
        run: commands,
    },
    Test {
        name: "operator: no secret appears where it does not belong",
        run: secrets,
    },
    Test {
        name: "operator: own states come last, and their failure counts",
        run: own_states,
    },
    Test {
        name: "operator: roles allow their work and no more",
        run: roles::roles,
    },
    screen::TEST,
    kubeconfig::TEST,
    mistakes::RESTART,
    mistakes::RETRY,
    Test {
        name: "operator: an enrolled host does not become another",
        run: other_name,
    },
];

/// Arguments of the commands that change nothing.
const LOOKS: &[&[&str]] = &[
    &["status"],
    &["health"],
    &["ping"],
    &["grains", "*", "--item", "os"],
    &["pillar", WORKER],
    &["render", BOOTSTRAP],
    &["render", BOOTSTRAP, "--low"],
    &["render", "master"],
    &["highstate", "--test"],
    &["job", "list"],
    &["key", "list"],
    &["token", "list"],
    &["operator", "list"],
    &["audit", "--limit", "5"],
    &["config", "show"],
    &["config", "validate"],
    &["bundle", "list"],
    &["bundle", "verify", "/media/halite/halite.iso"],
    &["node", "list"],
    &["node", "show", WORKER],
    &["images"],
    &["version"],
    &["certs", "list"],
    &["etcd", "status"],
    &["master", "list"],
    // A directory without a backup.
    &["backup", "list", "/root"],
    &["context", "list"],
    &["upgrade", "status"],
    &["logs", WORKER, "kubelet", "--lines", "5"],
];

/// Limit for a finding that a busy machine has caused to disappear: the API has three seconds for
/// an answer, its address may be unavailable for some more, and the kubelet waits up to five
/// minutes before it restarts a program that lost its lease.
const PASSING: Duration = Duration::from_secs(390);

fn ctl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut all = vec![CTL];
    all.extend(args);
    cluster.bootstrap.run(&all)
}

/// The time in which a command may fail: those that judge the cluster fail while there is any
/// problem, such as a host that does not answer.
fn patience(args: &[&str]) -> Duration {
    match args.first() {
        Some(&("status" | "health" | "etcd" | "master" | "certs")) => PASSING,
        _ => Duration::ZERO,
    }
}

/// Runs one of [`LOOKS`], which must succeed.
fn look(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let what = format!("ctl {} to succeed", args.join(" "));
    wait::until(&what, patience(args), || ctl(cluster, args))
}

/// The keys, lengths and kinds of an answer: times and numbers of jobs differ between two calls.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::String(_) => "string".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Null => "null".into(),
    }
}

fn commands(cluster: &Cluster) -> Result<Counts> {
    // A program that lost its lease on a busy machine is a finding of `health` until the kubelet
    // restarts it.
    is_well(cluster)?;
    for words in LOOKS {
        let form = |name: &str| look(cluster, &[words, ["-o", name].as_slice()].concat());
        let shapes = || -> Result<(Value, Value)> {
            let json: Value = serde_json::from_str(&form("json")?)
                .with_context(|| format!("ctl {} -o json printed no JSON", words.join(" ")))?;
            let yaml: Value = serde_saphyr::from_str(&form("yaml")?)
                .with_context(|| format!("ctl {} -o yaml printed no YAML", words.join(" ")))?;
            Ok((shape(&json), shape(&yaml)))
        };
        let (mut json, mut yaml) = shapes()?;
        if json != yaml {
            // Something may have happened between the two, but not each time.
            (json, yaml) = shapes()?;
        }
        ensure!(
            json == yaml,
            "ctl {} differs between JSON and YAML: {json} and {yaml}",
            words.join(" ")
        );
        let table = form("table")?;
        ensure!(
            !table.trim().is_empty(),
            "ctl {} shows nothing",
            words.join(" ")
        );
        ensure!(
            !table.contains('\x1b'),
            "ctl {} writes colours into a pipe",
            words.join(" ")
        );
    }
    for (args, code) in [
        (["ping", "absent*"].as_slice(), 1),
        (&["job", "show", "nonsense"], 64),
        (&["job", "show", "20260101000000000000"], 1),
        (&["key", "delete", WORKER], 1),
        (
            &["key", "delete", WORKER, "--force", "--cluster", "another"],
            1,
        ),
        (&["operator", "revoke", "root", "--yes"], 1),
        (&["operator", "revoke", "absent", "--yes"], 1),
        (&["audit", "--action", "nonsense"], 1),
        (&["node", "add", "Bad_Name"], 64),
        (&["node", "add", "localhost"], 1),
        (&["node", "add", "worker-9", "--address", "192.0.2.1"], 1),
        (&["node", "add", WORKER, "--roles", "infra"], 1),
        (&["--master", "127.0.0.1:9", "status"], 1),
        (&["frobnicate"], 64),
    ] {
        let all: Vec<&str> = [CTL].iter().chain(args).copied().collect();
        let output = cluster.bootstrap.output(&all)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(code) && !said.trim().is_empty(),
            "{} ended with {} and printed {said:?}",
            all.join(" "),
            output.status
        );
    }
    ctl(cluster, &["ping", WORKER])?;
    completion::is_installed(cluster)?;
    Ok(Counts::ONE)
}

/// The part of a PEM key that no other key shares.
fn unique(pem: &str) -> Result<String> {
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    // PKCS #8 of an elliptic key begins with the same 36 bytes in every key.
    body.get(50..90)
        .map(str::to_owned)
        .context("a key that is too short")
}

fn secrets(cluster: &Cluster) -> Result<Counts> {
    let root = cluster.bootstrap.root();
    let mut canaries = BTreeSet::new();
    for name in ["ca", "etcd/ca", "front-proxy-ca"] {
        let path = root.join(format!("etc/kubernetes/pki/{name}.key"));
        canaries.insert(unique(&fs::read_to_string(&path)?)?);
        // The highstate below makes the file again, so that its content is transmitted.
        fs::remove_file(path)?;
    }
    let holds = |text: &str| canaries.iter().any(|canary| text.contains(canary.as_str()));
    let clean = |what: &str, text: &[u8]| -> Result<()> {
        let text = String::from_utf8_lossy(text);
        // Programs contain these words too; only in a key do they have this continuation.
        let key = ["PRIVATE KEY-----\nM", "PRIVATE KEY-----\\nM"]
            .iter()
            .any(|begin| text.contains(begin));
        ensure!(!holds(&text) && !key, "{what} holds a private key");
        Ok(())
    };
    let mut highstate = cluster
        .bootstrap
        .command(&[CTL, "highstate", "-o", "json"])?;
    let mut highstate = highstate
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let status = wait::promptly("the highstate to end", Duration::from_secs(360), || {
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            // A line that contains the key must end the wait too: the check below reports it.
            if holds(&String::from_utf8_lossy(&line)) {
                return Ok(None);
            }
        }
        match highstate.try_wait() {
            Ok(Some(status)) => Ok(Some(status)),
            Ok(None) => Err(anyhow!("it still runs")),
            Err(error) => Err(error.into()),
        }
    })?;
    ensure!(
        status
            .context("a command line held a private key")?
            .success(),
        "the highstate failed"
    );
    for name in ["ca", "etcd/ca", "front-proxy-ca"] {
        ensure!(
            root.join(format!("etc/kubernetes/pki/{name}.key")).exists(),
            "{name}.key was not repaired"
        );
    }
    let jobs: JobList = ctl_answer::of(&cluster.bootstrap, &["job", "list"])?;
    let is_highstate = |job: &&Job| job.function == "state.highstate" && !job.test;
    let highstate = jobs.jobs.iter().find(is_highstate);
    let job = highstate.context("no highstate is listed")?.job.as_str();
    clean(
        &format!("job {job}"),
        ctl(cluster, &["job", "show", job, "-o", "json"])?.as_bytes(),
    )?;
    is_well(cluster)?;
    for words in LOOKS {
        clean(
            &format!("ctl {}", words.join(" ")),
            look(cluster, words)?.as_bytes(),
        )?;
    }
    for host in cluster.hosts() {
        clean(
            "the journal",
            host.sh("journalctl -o cat --no-pager")?.as_bytes(),
        )?;
        files(&host.root().join("var/lib/halite/minion/journal"), &clean)?;
        files(&host.root().join("var/lib/halite/minion/blobs"), &clean)?;
    }
    for entry in fs::read_dir(root.join("var/lib/halite/master"))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("store.db") && entry.path().is_file() {
            clean(
                &entry.path().display().to_string(),
                &fs::read(entry.path())?,
            )?;
        }
    }
    Ok(Counts::ONE)
}

fn files(directory: &Path, clean: &dyn Fn(&str, &[u8]) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory)
        .with_context(|| directory.display().to_string())?
        .flatten()
    {
        if entry.path().is_file() {
            clean(
                &entry.path().display().to_string(),
                &fs::read(entry.path())?,
            )?;
        }
    }
    Ok(())
}

const OWN: &str = "
/etc/halite-own-first:
  file.managed:
    - source: salt://custom/files/own.txt
fails:
  cmd.run:
    - name: 'false'
/etc/halite-own-last:
  file.managed:
    - contents: '{{ pillar.halite.node.name }} of {{ pillar.halite.cluster.name }}'
";

fn own_states(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    let result = own_states_in(cluster, &custom);
    if custom.exists() {
        fs::remove_dir_all(&custom)?;
    }
    for host in cluster.hosts() {
        host.sh("rm -f /etc/halite-own-first /etc/halite-own-last")?;
    }
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

/// The answer of a highstate in which a state fails.
fn failing_highstate(cluster: &Cluster, args: &[&str]) -> Result<JobOutcome> {
    let words = [&["highstate"], args].concat();
    let (code, outcome) = ctl_answer::in_any_case(&cluster.bootstrap, &words)?;
    ensure!(
        code == Some(1),
        "a failing state of the operator went unnoticed"
    );
    Ok(outcome)
}

fn own_states_in(cluster: &Cluster, custom: &Path) -> Result<()> {
    let own_file = "without a newline at the end, then with two\n\n";
    fs::create_dir_all(custom.join("files"))?;
    fs::write(custom.join("files/own.txt"), own_file)?;
    fs::write(custom.join("init.sls"), OWN)?;
    // A highstate of all hosts stops at the first host that fails, and names the hosts that were
    // not started.
    let answer = failing_highstate(cluster, &[])?;
    let part = answer.minions.get(cluster.worker.spec.name.as_str());
    let error = part.and_then(|part| part.error.as_deref());
    let expected = format!(
        "not started, because {} failed",
        cluster.bootstrap.spec.name
    );
    ensure!(
        error.is_some_and(|error| error.contains(&expected)),
        "the worker's part: {error:?}"
    );
    for host in cluster.hosts() {
        let answer = failing_highstate(cluster, &[&host.spec.name])?;
        let part = answer.minions.get(host.spec.name.as_str());
        let states = part.and_then(|part| part.states.as_ref());
        let states = states.context("no states")?;
        let failed: Vec<&StateReturn> = states
            .iter()
            .filter(|state| state.result == Some(false))
            .collect();
        ensure!(
            failed.len() == 1 && failed[0].id == "fails",
            "{}: {failed:?}",
            host.spec.name
        );
        let own = |state: &StateReturn| state.sls.starts_with("custom");
        let first = states
            .iter()
            .position(own)
            .context("the operator's states are missing")?;
        // The state that requests the minion's own restart is always last.
        let after = |state: &&StateReturn| !own(state) && state.id != "halite-minion-restart";
        let wrong: Vec<&StateReturn> = states[first..]
            .iter()
            .filter(after)
            .filter(|state| state.id != "halite-master-restart")
            .collect();
        ensure!(
            wrong.is_empty(),
            "{}: {wrong:?} followed the operator's own states",
            host.spec.name
        );
        let text = |name: &str| fs::read_to_string(host.root().join("etc").join(name));
        ensure!(
            text("halite-own-first")? == own_file,
            "a file of the tree was not copied byte for byte"
        );
        ensure!(
            text("halite-own-last")? == format!("{} of demo\n", host.spec.name),
            "the last state is wrong"
        );
    }
    fs::write(
        custom.join("init.sls"),
        "a:\n  file.managed:\n    - nam: /x\n",
    )?;
    let output = cluster.bootstrap.output(&[CTL, "highstate"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("custom/init.sls:3:"),
        "a mistake is reported without its position: {said}"
    );
    Ok(())
}

fn other_name(cluster: &Cluster) -> Result<Counts> {
    let worker: &Host = &cluster.worker;
    let address = cluster.bootstrap.control_plane_address();
    let fetch = format!(
        "curl -fsS --noproxy '*' --cacert /etc/halite/pki/site-ca.crt https://{address}:4551/enrol.sh"
    );
    let state = "cat /etc/halite/minion.yaml; systemctl show -p InvocationID halite-minion.service";
    let before = worker.sh(state)?;
    let output = worker.output(&[
        "sh",
        "-c",
        &format!("{fetch} | HALITE_TOKEN=a.b.c sh -s -- --name another"),
    ])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains(WORKER),
        "enrol.sh gave it another name: {said}"
    );
    ensure!(
        worker.sh(state)? == before,
        "enrol.sh refused, but changed the host"
    );
    worker.sh(&format!("{fetch} | sh -s -- --name {WORKER}"))?;
    wait::until(
        "the worker's minion to be back",
        Duration::from_secs(90),
        || ctl(cluster, &["ping", WORKER]),
    )?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_with_other_items_have_another_shape() {
        let jobs = json!([{"job": "1", "minions": ["a"]}, {"job": "2", "minions": []}]);
        let later = json!([{"job": "3", "minions": ["b"]}, {"job": "4", "minions": []}]);
        assert_eq!(shape(&jobs), shape(&later));
        for other in [
            json!([{"job": "1", "minions": ["a"]}]),
            json!([{"job": "1", "minions": ["a"]}, {"minions": []}]),
            json!([{"job": "1", "minions": ["a"]}, {"job": 2, "minions": []}]),
            json!([{"job": "1", "minions": ["a"]}, {"job": "2", "minions": null}]),
            json!({}),
        ] {
            assert_ne!(shape(&jobs), shape(&other), "{other}");
        }
    }
}
