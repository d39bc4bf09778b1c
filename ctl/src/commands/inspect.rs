//! Commands that only read: status, pillar, render, jobs.

use halite_api::{
    ClusterBackups, ClusterStatus, JobCancellation, JobList, JobOrRun, KeyState, KubernetesNode,
    LastHighstate, MinionPillar, NodeStatus, RegistryBackups, RenderedFiles, RenderedLow,
    StandbyState, to_value,
};
use halite_proto::v1;
use serde_json::Value;

use super::{etcd, events, health, jobs};
use crate::cli::{Global, Job, Render};
use crate::client::document;
use crate::output::{Paint, Screen, age, list, or_dash, table, yaml};
use crate::{FAILED, client};

/// Runs `ctl status`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn status(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let status = client::status(global).await?;
    screen.answer(&to_value(&status), |paint| overview(&status, paint))?;
    Ok(if status.health.healthy { 0 } else { FAILED })
}

/// Formats the cluster in a few lines, its nodes as a table, and all problems.
pub fn overview(status: &ClusterStatus, paint: &Paint) -> String {
    let api = match (status.api.answers, &status.api.error) {
        (true, _) => paint.good("answers"),
        (false, Some(error)) => format!("{}: {error}", paint.bad("does not answer")),
        (false, None) => paint.bad("does not answer"),
    };
    // First the problem that explains the rest: the declaration in use differs from the documents.
    let is_first = |name: &str| name == "declaration";
    let mut text = health::findings_of(&status.health, paint, is_first);
    if !text.is_empty() {
        text.push('\n');
    }
    let bundle = status.bundle.as_ref();
    text += &format!(
        "cluster     {}\nmaster      {}\nbundle      {}, Kubernetes {}\nAPI         {api}\n{}{}{}\n",
        table::line(&status.cluster),
        master(status, paint),
        or_dash(bundle.map(|bundle| &bundle.version)),
        or_dash(bundle.map(|bundle| &bundle.kubernetes)),
        parts(status, paint),
        status.backups.as_ref().map(saved).unwrap_or_default(),
        status.registry.as_ref().map(registry).unwrap_or_default(),
    );
    text.push_str(&node_table(&status.nodes));
    if let Some(etcd) = status.etcd.as_ref().filter(|etcd| etcd.error.is_none()) {
        text.push_str(&format!("\n{}", etcd::members(etcd)));
    }
    let findings = health::findings_of(&status.health, paint, |name| !is_first(name));
    if !findings.is_empty() {
        text.push_str(&format!("\n{findings}"));
    }
    text
}

/// Formats hosts as a table.
pub fn node_table(nodes: &[NodeStatus]) -> String {
    let row = |node: &NodeStatus| {
        vec![
            node.name.to_string(),
            list(&node.roles),
            or_dash(node.address.as_ref()),
            minion(node),
            or_dash(node.kubernetes.as_ref().map(kubernetes)),
            or_dash(node.highstate.as_ref().map(highstate)),
        ]
    };
    let heading = [
        "node",
        "roles",
        "address",
        "minion",
        "kubernetes",
        "last highstate",
    ];
    table::rows(&heading, nodes.iter().map(row))
}

/// Formats the last highstate of a host.
pub fn highstate(last: &LastHighstate) -> String {
    format!("{} {}", last.result, or_dash(last.ended.as_ref()))
}

/// Formats the state of a host's minion.
pub fn minion(node: &NodeStatus) -> String {
    match (&node.key, node.connected) {
        (Some(KeyState::Accepted), true) => "connected".to_owned(),
        (Some(KeyState::Accepted), false) => "away".to_owned(),
        (None, _) => "not enrolled".to_owned(),
        (Some(key), _) => key.to_string(),
    }
}

/// Formats the lines about API servers, virtual address, etcd and DNS, each if there is one.
fn parts(status: &ClusterStatus, paint: &Paint) -> String {
    let mut text = standbys(status, paint);
    let servers = status.api_servers.iter().flatten();
    let each = servers.map(|server| {
        let mark = match server.ready {
            true => paint.good("✓"),
            false => paint.bad("✗"),
        };
        format!("{} {mark}", table::line(&server.host))
    });
    let servers = each.collect::<Vec<_>>().join("  ");
    if !servers.is_empty() {
        text.push_str(&format!("servers     {servers}\n"));
    }
    if let Some(vip) = &status.vip {
        let holders = match vip.holders.as_slice() {
            [] => "on no host that answers".to_owned(),
            holders => format!("on {}", holders.join(", ")),
        };
        text.push_str(&format!("VIP         {} {holders}\n", vip.address));
    }
    if let Some(etcd) = &status.etcd {
        let line = match (&etcd.error, &etcd.quorum) {
            (Some(error), _) => format!("{}: {error}", paint.bad("does not answer")),
            (None, quorum) => or_dash(quorum.as_ref()),
        };
        text.push_str(&format!("etcd        {line}\n"));
    }
    if let Some(dns) = &status.dns {
        let line = match (dns.replicas.join(", "), dns.without.join(", ")) {
            (none, _) if none.is_empty() => paint.bad("no replica is ready"),
            (hosts, without) if without.is_empty() => format!("on {hosts}"),
            (hosts, without) => format!("on {hosts}; no replica on {without}"),
        };
        text.push_str(&format!("DNS         {line}\n"));
    }
    text
}

/// Formats address and version of the master, its host and epoch, and the time since which no
/// standby follows.
fn master(status: &ClusterStatus, paint: &Paint) -> String {
    let mut text = format!(
        "{} ({})",
        list(&status.master),
        table::line(&status.version)
    );
    let masters = &status.masters;
    if let Some(node) = &masters.host {
        text.push_str(&format!(" on {}", table::line(node)));
    }
    text.push_str(&format!(", epoch {}", masters.epoch));
    if let Some(since) = masters.alone_since {
        let alone = format!("no standby since {since}");
        text.push_str(&format!(", {}", paint.bad(&alone)));
    }
    text
}

/// Formats the line about the standbys of the master, if there are any: followers with their lag,
/// and the others with their state.
fn standbys(status: &ClusterStatus, paint: &Paint) -> String {
    let each = status.masters.standbys.iter().map(|standby| {
        let name = table::line(&standby.host);
        match (&standby.state, standby.lag.unwrap_or_default()) {
            (StandbyState::Following, 0) => format!("{name} {}", paint.good("✓")),
            (StandbyState::Following, lag) => {
                format!("{name} {} (lag {lag} bytes)", paint.good("✓"))
            }
            (state, _) => format!("{name} {}", paint.bad(state.as_str())),
        }
    });
    match each.collect::<Vec<_>>().join("  ") {
        none if none.is_empty() => none,
        each => format!("standbys    {each}\n"),
    }
}

/// Formats the line about the hosts that back up the cluster, with the ages of their backups, if
/// there are any.
fn saved(backups: &ClusterBackups) -> String {
    let each = backups.hosts.iter().map(|host| {
        let name = table::line(&host.host);
        let since = |seconds: Option<u64>| seconds.map(|seconds| format!("{} ago", age(seconds)));
        match (since(host.newest_age), since(host.verified_age)) {
            (None, _) => match host.next {
                Some(next) => format!("{name} none yet (next {next})"),
                None => format!("{name} none yet"),
            },
            (Some(newest), None) => format!("{name} {newest}"),
            (Some(newest), Some(verified)) => {
                format!("{name} {newest} (verified {verified})")
            }
        }
    });
    match each.collect::<Vec<_>>().join("  ") {
        none if none.is_empty() => none,
        each => format!("backups     {each}\n"),
    }
}

/// Formats the line about the site registry.
fn registry(registry: &RegistryBackups) -> String {
    let node = table::line(&registry.host);
    match (registry.backup_time, registry.verified) {
        (None, _) => format!("registry    on {node}, no backup yet\n"),
        (Some(made), None) => format!("registry    on {node}, last good backup {made}\n"),
        (Some(made), Some(read)) => {
            format!("registry    on {node}, last good backup {made}, verified {read}\n")
        }
    }
}

/// Formats the state of a Kubernetes node: `Ready v1.36.3`.
pub fn kubernetes(node: &KubernetesNode) -> String {
    let ready = match node.ready {
        true => "Ready",
        false => "NotReady",
    };
    format!("{ready} {}", or_dash(node.kubelet.as_ref()))
}

/// Runs `ctl pillar`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn pillar(global: &Global, minion: &str, screen: &mut Screen) -> anyhow::Result<u8> {
    let shown: MinionPillar = client::show(global, "pillar", minion, Vec::new()).await?;
    let document = to_value(&shown);
    let text = yaml(&Value::Object(shown.pillar))?;
    screen.answer(&document, |_| text)?;
    Ok(0)
}

/// Runs `ctl render`.
///
/// # Errors
/// The master does not answer or refuses; the states do not compile.
pub async fn render(global: &Global, args: Render, screen: &mut Screen) -> anyhow::Result<u8> {
    let (document, text) = if args.low {
        let shown: RenderedLow = client::show(global, "low", &args.minion, args.sls).await?;
        let text = yaml(&serde_json::to_value(&shown.low)?)?;
        (to_value(&shown), text)
    } else {
        let shown: RenderedFiles = client::show(global, "files", &args.minion, args.sls).await?;
        (to_value(&shown), files(&shown)?)
    };
    screen.answer(&document, |_| text)?;
    Ok(0)
}

/// Formats each file below its path and origin.
pub fn files(shown: &RenderedFiles) -> anyhow::Result<String> {
    let mut text = String::new();
    for file in &shown.files {
        text.push_str(&format!(
            "{}\n  state   {} in {}:{}\n",
            table::line(&file.name),
            table::line(&file.state),
            table::line(&file.source.file),
            file.source.line
        ));
        let argument = |value: &Option<Value>| value.as_ref().map(table::cell);
        for (label, value) in [
            ("from", Some(file.files.join(", "))),
            ("pillar", Some(file.pillar.join(", "))),
            ("mode", argument(&file.mode)),
            ("user", argument(&file.user)),
            ("group", argument(&file.group)),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                text.push_str(&format!("  {label:7} {}\n", table::line(&value)));
            }
        }
        let content = match &file.content {
            Some(Value::String(content)) => content.clone(),
            None => String::new(),
            Some(object) => yaml(object)?,
        };
        content
            .lines()
            .for_each(|line| text.push_str(&format!("  | {line}\n")));
        text.push('\n');
    }
    Ok(if text.is_empty() {
        "no files\n".to_owned()
    } else {
        text
    })
}

/// Runs `ctl job`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn job(global: &Global, command: Job, screen: &mut Screen) -> anyhow::Result<u8> {
    if let Job::Follow { job } = &command {
        return events::follow_job(global, job, screen).await;
    }
    let mut operator = client::operator(global).await?;
    match command {
        Job::Follow { .. } => {}
        Job::List { limit } => {
            let jobs: JobList = document(operator.list_jobs(v1::ListJobsRequest { limit }).await)?;
            screen.answer(&to_value(&jobs), |_| jobs::list(&jobs))?;
        }
        Job::Show { job } => {
            let request = v1::ShowJobRequest { job: job.into() };
            let shown: JobOrRun = document(operator.show_job(request).await)?;
            screen.answer(&to_value(&shown), |paint| jobs::one(&shown, paint))?;
        }
        Job::Cancel { job, force } => {
            let request = v1::CancelJobRequest {
                job: job.into(),
                force,
            };
            let cancelled: JobCancellation = document(operator.cancel_job(request).await)?;
            screen.answer(&to_value(&cancelled), |_| jobs::cancelled(&cancelled))?;
        }
    }
    Ok(0)
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
