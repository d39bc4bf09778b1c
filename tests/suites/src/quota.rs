//! etcd reaches its quota: the master makes room, without an operator and without a loss.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};
use halite_lab::wait;
use serde_json::{Value, json};

use crate::health::is_well;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "etcd: a writer that fills its quota is let write again without an operator",
    run: filled,
}];

/// Limit for writes to be accepted again. The master asks every half minute.
const LIMIT: Duration = Duration::from_secs(240);
/// The room below the quota that is filled, and what each write takes of it.
const ROOM: u64 = 16 << 20;
const WRITE: usize = 900_000;
/// Writes after which the quota must be reached, also when the API server removes the
/// past in between.
const MOST: u64 = 400;
/// Each so many writes a new object is made.
const KEPT: u64 = 6;
const FILE: &str = "/root/fill.json";

/// The one member of etcd.
fn member(cluster: &Cluster) -> Result<(Value, Value)> {
    let text = cluster
        .bootstrap
        .run(&[CTL, "etcd", "status", "-o", "json"])?;
    let status: Value = serde_json::from_str(&text)?;
    let member = status["members"][0].clone();
    ensure!(member.is_object(), "no member: {text}");
    Ok((member, status["alarms"].clone()))
}

/// Writes over the large object.
fn write(cluster: &Cluster, verb: &str, round: u64) -> Result<()> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "fill", "namespace": "default"},
        "data": {"round": round.to_string(), "room": "x".repeat(WRITE)},
    });
    fs::write(cluster.bootstrap.file(FILE), object.to_string())?;
    cluster.kubectl(&[verb, "-f", FILE]).map(drop)
}

fn is_refused(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("database space exceeded")
}

/// Writes until etcd refuses it; answers with the last round that was acknowledged and the objects
/// that were made.
fn fill(cluster: &Cluster) -> Result<(u64, Vec<String>)> {
    // Of a run that was ended.
    let rest = [
        "delete",
        "configmap",
        "fill",
        "-n",
        "default",
        "--ignore-not-found",
    ];
    cluster.kubectl(&rest)?;
    write(cluster, "create", 0)?;
    let mut kept = Vec::new();
    for round in 1..MOST {
        if let Err(error) = write(cluster, "replace", round) {
            ensure!(is_refused(&error), "{error:#}");
            return Ok((round - 1, kept));
        }
        if round % KEPT == 0 {
            let name = format!("kept-{round}");
            match cluster.kubectl(&["create", "configmap", &name, "-n", "default"]) {
                Ok(_) => kept.push(name),
                Err(error) => {
                    ensure!(is_refused(&error), "{error:#}");
                    return Ok((round, kept));
                }
            }
        }
    }
    anyhow::bail!(
        "{MOST} writes did not reach the quota: {:?}",
        member(cluster)?
    )
}

fn round(cluster: &Cluster) -> Result<u64> {
    let path = "jsonpath={.data.round}";
    let get = ["get", "configmap", "fill", "-n", "default", "-o", path];
    Ok(cluster.kubectl(&get)?.trim().parse()?)
}

fn resolved(cluster: &Cluster) -> Result<()> {
    let (acknowledged, kept) = fill(cluster)?;
    ensure!(!kept.is_empty(), "the quota was reached too early");
    ensure!(
        round(cluster)? == acknowledged,
        "the refused write is there"
    );
    wait::until("a write to be accepted", LIMIT, || {
        write(cluster, "replace", acknowledged + 1)
    })?;
    ensure!(round(cluster)? == acknowledged + 1);
    for name in &kept {
        cluster.kubectl(&["get", "configmap", name, "-n", "default"])?;
    }
    let (member, alarms) = member(cluster)?;
    ensure!(alarms == json!([]), "{alarms}: {member}");
    let audit = [CTL, "audit", "--action", "upkeep", "--limit", "5"];
    let audit = cluster.bootstrap.run(&audit)?;
    ensure!(audit.contains("room in etcd below its quota"), "{audit}");
    let names: Vec<&str> = kept.iter().map(String::as_str).collect();
    let delete = ["delete", "configmap", "-n", "default", "fill"];
    cluster.kubectl(&[delete.as_slice(), names.as_slice()].concat())?;
    cluster.bootstrap.run(&["rm", FILE])?;
    Ok(())
}

fn filled(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let name = host.spec.name.as_str();
    is_well(cluster)?;
    let (member, _) = member(cluster)?;
    let size = member["dbSize"].as_u64().context("no size")?;
    let document = fs::read_to_string(host.file(DOCUMENT))?;
    ensure!(!document.contains("\netcd:"), "the document has `etcd:`");
    let quota = format!(
        "etcd: {{extraArgs: {{quota-backend-bytes: \"{}\"}}}}",
        size + ROOM
    );
    fs::write(host.file(DOCUMENT), format!("{document}\n{quota}\n"))?;
    let outcome = host.run(&[CTL, "highstate", name]).and_then(|_| {
        is_well(cluster)?;
        resolved(cluster)
    });
    fs::write(host.file(DOCUMENT), &document)?;
    host.run(&[CTL, "highstate", name])?;
    outcome?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}
