//! Commands that only read: status, pillar, render, jobs.

use halite_proto::v1;
use halite_states::low::RunReturn;
use serde_json::Value;

use super::{etcd, health};
use crate::cli::{Global, Job, Render};
use crate::client::document;
use crate::output::returns::View;
use crate::output::{Paint, Screen, age, returns, table, yaml};
use crate::{FAILED, client};

/// Runs `ctl status`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn status(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let status = document(operator.status(v1::StatusRequest {}).await)?;
    screen.answer(&status, |paint| overview(&status, paint))?;
    let healthy = health::is_healthy(&status["health"]);
    Ok(if healthy { 0 } else { FAILED })
}

/// Formats the cluster in a few lines, its nodes as a table, and all problems.
fn overview(status: &Value, paint: &Paint) -> String {
    let api = match (
        status["api"]["answers"].as_bool(),
        status["api"]["error"].as_str(),
    ) {
        (Some(true), _) => paint.good("answers"),
        (_, Some(error)) => format!("{}: {error}", paint.bad("does not answer")),
        _ => paint.bad("does not answer"),
    };
    // First what explains the rest: the documents that the rest is about are not those on disk.
    let is_first = |name: &Value| name == "declaration";
    let mut text = health::findings_of(&status["health"], paint, is_first);
    if !text.is_empty() {
        text.push('\n');
    }
    text += &format!(
        "cluster     {}\nmaster      {}\nbundle      {}, Kubernetes {}\nAPI         {api}\n{}{}{}\n",
        table::cell(&status["cluster"]),
        master(status, paint),
        table::cell(&status["bundle"]["version"]),
        table::cell(&status["bundle"]["kubernetes"]),
        parts(status, paint),
        saved(&status["backups"]),
        registry(&status["registry"]),
    );
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    text.push_str(&node_table(&nodes));
    if status["etcd"]["members"].is_array() {
        text.push_str(&format!("\n{}", etcd::members(&status["etcd"])));
    }
    let findings = health::findings_of(&status["health"], paint, |name| !is_first(name));
    if !findings.is_empty() {
        text.push_str(&format!("\n{findings}"));
    }
    text
}

/// Formats the hosts as a table.
pub fn node_table(nodes: &[Value]) -> String {
    let row = |node: &Value| {
        let minion = match (node["key"].as_str(), node["connected"].as_bool()) {
            (Some("accepted"), Some(true)) => "connected".to_owned(),
            (Some("accepted"), _) => "away".to_owned(),
            (Some("none"), _) => "not enrolled".to_owned(),
            (key, _) => key.unwrap_or("-").to_owned(),
        };
        let highstate = node["highstate"]["result"].as_str().map_or_else(
            || "-".to_owned(),
            |result| format!("{result} {}", table::cell(&node["highstate"]["ended"])),
        );
        vec![
            table::cell(&node["name"]),
            table::cell(&node["roles"]),
            table::cell(&node["address"]),
            minion,
            kubernetes(&node["kubernetes"]),
            highstate,
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

/// Formats the lines about API servers, virtual address, etcd and DNS, each if there is one.
fn parts(status: &Value, paint: &Paint) -> String {
    let names = |list: &Value| {
        let names = list.as_array().into_iter().flatten().map(table::cell);
        names.collect::<Vec<_>>().join(", ")
    };
    let mut text = standbys(status, paint);
    let servers = status["api_servers"].as_array().into_iter().flatten();
    let each = servers.map(|server| {
        let mark = match server["ready"].as_bool() {
            Some(true) => paint.good("✓"),
            _ => paint.bad("✗"),
        };
        format!("{} {mark}", table::cell(&server["host"]))
    });
    let servers = each.collect::<Vec<_>>().join("  ");
    if !servers.is_empty() {
        text.push_str(&format!("servers     {servers}\n"));
    }
    if status["vip"].is_object() {
        let holders = match names(&status["vip"]["holders"]) {
            none if none.is_empty() => "on no host that answers".to_owned(),
            holders => format!("on {holders}"),
        };
        let address = table::cell(&status["vip"]["address"]);
        text.push_str(&format!("VIP         {address} {holders}\n"));
    }
    match (
        status["etcd"]["quorum"].as_str(),
        status["etcd"]["error"].as_str(),
    ) {
        (Some(quorum), _) => text.push_str(&format!("etcd        {quorum}\n")),
        (None, Some(error)) => text.push_str(&format!(
            "etcd        {}: {error}\n",
            paint.bad("does not answer")
        )),
        (None, None) => {}
    }
    if status["dns"].is_object() {
        let line = match (
            names(&status["dns"]["replicas"]),
            names(&status["dns"]["without"]),
        ) {
            (none, _) if none.is_empty() => paint.bad("no replica is ready"),
            (hosts, without) if without.is_empty() => format!("on {hosts}"),
            (hosts, without) => format!("on {hosts}; no replica on {without}"),
        };
        text.push_str(&format!("DNS         {line}\n"));
    }
    text
}

/// Formats addresses and version of the master, its host and epoch, and since when no standby follows.
fn master(status: &Value, paint: &Paint) -> String {
    let mut text = format!(
        "{} ({})",
        table::cell(&status["master"]),
        table::cell(&status["version"])
    );
    let masters = &status["masters"];
    if let Some(node) = masters["node"].as_str() {
        text.push_str(&format!(" on {}", table::line(node)));
    }
    if let Some(epoch) = masters["epoch"].as_u64() {
        text.push_str(&format!(", epoch {epoch}"));
    }
    if let Some(since) = masters["alone_since"].as_str() {
        let alone = format!("alone since {}", table::line(since));
        text.push_str(&format!(", {}", paint.bad(&alone)));
    }
    text
}

/// Formats the line about the standbys of the master, if there are some: those that follow with the bytes
/// that are on their way, and the others with their state.
fn standbys(status: &Value, paint: &Paint) -> String {
    let all = status["masters"]["standbys"].as_array();
    let each = all.into_iter().flatten().map(|standby| {
        let name = table::cell(&standby["name"]);
        match (standby["state"].as_str(), standby["lag"].as_u64()) {
            (Some("following"), Some(0) | None) => format!("{name} {}", paint.good("✓")),
            (Some("following"), Some(lag)) => {
                format!("{name} {} (lag {lag} bytes)", paint.good("✓"))
            }
            (state, _) => format!("{name} {}", paint.bad(state.unwrap_or("missing"))),
        }
    });
    match each.collect::<Vec<_>>().join("  ") {
        none if none.is_empty() => none,
        each => format!("standbys    {each}\n"),
    }
}

/// Formats the line about the hosts with backups of the cluster and their ages, if some make any.
fn saved(backups: &Value) -> String {
    let hosts = backups["hosts"].as_array().into_iter().flatten();
    let each = hosts.map(|host| {
        let name = table::cell(&host["node"]);
        let since = |key: &str| {
            host[key]
                .as_u64()
                .map(|seconds| format!("{} ago", age(seconds)))
        };
        // A master of before ages were shown has the time alone.
        let time = || host["newest"].as_str().map(str::to_owned);
        match (since("newestAge").or_else(time), since("verifiedAge")) {
            (None, _) => match host["next"].as_str() {
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

/// Formats the line about the site registry, if there is one.
fn registry(registry: &Value) -> String {
    let Some(node) = registry["node"].as_str() else {
        return String::new();
    };
    let time = |key: &str| registry[key].as_str();
    match (time("backup_time"), time("verified")) {
        (None, _) => format!("registry    on {node}, no backup yet\n"),
        (Some(made), None) => format!("registry    on {node}, last good backup {made}\n"),
        (Some(made), Some(read)) => {
            format!("registry    on {node}, last good backup {made}, verified {read}\n")
        }
    }
}

/// Formats the state of a Kubernetes node: `Ready v1.36.3`.
fn kubernetes(node: &Value) -> String {
    let Value::Object(map) = node else {
        return table::cell(node);
    };
    let ready = match map.get("ready") {
        Some(Value::Bool(true)) => "Ready".to_owned(),
        Some(Value::Bool(false)) => "NotReady".to_owned(),
        Some(other) => table::cell(other),
        None => String::new(),
    };
    let version = map
        .get("version")
        .or_else(|| map.get("kubelet"))
        .map(table::cell)
        .unwrap_or_default();
    format!("{ready} {version}").trim().to_owned()
}

async fn show(
    global: &Global,
    what: &str,
    target: &str,
    sls: Vec<String>,
) -> anyhow::Result<Value> {
    let mut operator = client::operator(global).await?;
    let request = v1::ShowRequest {
        what: what.to_owned(),
        target: target.to_owned(),
        sls,
    };
    document(operator.show(request).await)
}

/// Runs `ctl pillar`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn pillar(global: &Global, minion: &str, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = show(global, "pillar", minion, Vec::new()).await?;
    let text = yaml(&pillar)?;
    screen.answer(&pillar, |_| text)?;
    Ok(0)
}

/// Runs `ctl render`.
///
/// # Errors
/// The master does not answer or refuses; the states do not compile.
pub async fn render(global: &Global, args: Render, screen: &mut Screen) -> anyhow::Result<u8> {
    let what = if args.low { "low" } else { "files" };
    let shown = show(global, what, &args.minion, args.sls).await?;
    let text = if args.low {
        yaml(&shown)?
    } else {
        files(&shown)?
    };
    screen.answer(&shown, |_| text)?;
    Ok(0)
}

/// Formats each file below its path and origin.
fn files(shown: &Value) -> anyhow::Result<String> {
    let mut text = String::new();
    for file in shown.as_array().into_iter().flatten() {
        let source = &file["source"];
        text.push_str(&format!(
            "{}\n  state   {} in {}:{}\n",
            table::cell(&file["name"]),
            table::cell(&file["state"]),
            table::cell(&source["file"]),
            table::cell(&source["line"])
        ));
        for (name, label) in [
            ("files", "from"),
            ("pillar", "pillar"),
            ("mode", "mode"),
            ("user", "user"),
            ("group", "group"),
        ] {
            let value = table::cell(&file[name]);
            if value != "-" {
                text.push_str(&format!("  {label:7} {}\n", value.replace(',', ", ")));
            }
        }
        let content = match &file["content"] {
            Value::String(content) => content.clone(),
            Value::Null => String::new(),
            other => yaml(other)?,
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
    let mut operator = client::operator(global).await?;
    match command {
        Job::List { limit } => {
            let jobs = document(operator.list_jobs(v1::ListJobsRequest { limit }).await)?;
            screen.answer(&jobs, |_| list(&jobs))?;
        }
        Job::Show { job } => {
            let request = v1::ShowJobRequest { job: job.into() };
            let job = document(operator.show_job(request).await)?;
            screen.answer(&job, |paint| one(&job, paint))?;
        }
        Job::Cancel { job, force } => {
            let request = v1::CancelJobRequest {
                job: job.into(),
                force,
            };
            let cancelled = document(operator.cancel_job(request).await)?;
            screen.answer(&cancelled, |_| cancelled_text(&cancelled))?;
        }
    }
    Ok(0)
}

/// Says which minions were asked to end a job, and whose part ended at once.
fn cancelled_text(answer: &Value) -> String {
    let jid = table::cell(&answer["jid"]);
    let mut lines = Vec::new();
    for (key, text) in [
        ("ended", "ended at once on"),
        ("asked", "asked to end it"),
        ("runs", "cannot be cut off, and ends by itself on"),
    ] {
        let minions = answer[key].as_array().cloned().unwrap_or_default();
        let minions: Vec<String> = minions.iter().map(table::cell).collect();
        if !minions.is_empty() {
            lines.push(format!("{text}: {}", minions.join(", ")));
        }
    }
    if lines.is_empty() {
        lines.push(format!("no minion of job {jid} is connected"));
    } else {
        lines.push(format!("`ctl job show {jid}` shows the returns"));
    }
    lines.join("\n") + "\n"
}

fn list(jobs: &Value) -> String {
    const COLUMNS: [&str; 8] = [
        "jid", "created", "function", "target", "test", "operator", "status", "retcode",
    ];
    let jobs = jobs.as_array().cloned().unwrap_or_default();
    table::rows(
        &COLUMNS,
        jobs.iter()
            .map(|job| COLUMNS.map(|name| table::cell(&job[name])).to_vec()),
    )
}

/// Formats the fields of a job, then its returns: state runs as such, other values as they are.
fn one(job: &Value, paint: &Paint) -> String {
    let Value::Object(map) = job else {
        return table::document(job);
    };
    let view = View {
        test: job["test"].as_bool().unwrap_or(false),
        verbose: false,
    };
    let mut heading = map.clone();
    let returns = heading.shift_remove("returns").unwrap_or_default();
    let mut text = table::document(&Value::Object(heading));
    for row in returns.as_array().into_iter().flatten() {
        let minion = table::cell(&row["minion"]);
        text.push('\n');
        match serde_json::from_value::<RunReturn>(row["return"].clone()) {
            Ok(run) => text.push_str(&returns::run(&minion, &run, view, paint)),
            Err(_) => text.push_str(&format!(
                "{minion}: {} {}\n",
                table::cell(&row["state"]),
                table::cell(&row["return"])
            )),
        }
        if let Some(error) = row["error"].as_str().filter(|error| !error.is_empty()) {
            text.push_str(&format!("  {} {error}\n", paint.bad("✗")));
        }
    }
    text
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
