//! `etcd.*`

use std::collections::BTreeSet;

use halite_host_reports::etcd::{LOG, is_log};
use halite_states::low::Chunk;
use serde_json::Value;

use super::args::Args;
use super::paths::{absolute, join, parent};
use super::{Failure, Plan, fail};
use crate::host::{FileKind, Host};

/// The directory in which kubeadm leaves its copies of etcd's data.
const KUBEADM: &str = "/etc/kubernetes/tmp";

/// Compares the record with the write-ahead log. An etcd without its log would found a new, empty
/// cluster in its place, and everything that follows would look healthy.
pub(super) async fn data(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let data = absolute(&chunk.name)?;
    let record = absolute(&Args::new(chunk).required("record")?)?;
    if host.stat(&record).await?.is_none() {
        return Ok(Plan::nothing(format!(
            "no etcd member is recorded in {record}"
        )));
    }
    if has_log(host, &join(&data, LOG)).await? {
        return Ok(Plan::nothing(format!("the etcd member's log is in {data}")));
    }
    let member = host.read(&record).await?.unwrap_or_default();
    let member = serde_json::from_slice(&member).unwrap_or(Value::Null);
    let member = match member["member"].as_str() {
        Some(name) => format!(" {name}"),
        None => String::new(),
    };
    fail(format!(
        "cannot go on with the etcd member{member}, which ran on this host: its data is gone: {}. Started now, it would be a \
         new, empty cluster, so nothing was changed; {}, then run `ctl highstate`. Only if everything in the cluster may be \
         lost: remove {record} and what is left in {data}, and a new cluster is founded",
        found(host, &data).await?,
        remedy(host, &data).await?,
    ))
}

pub(super) async fn has_log(host: &dyn Host, directory: &str) -> Result<bool, Failure> {
    // A file in place of a directory cannot be listed, and has no log in it.
    let Some(entry) = host.stat(directory).await? else {
        return Ok(false);
    };
    if !matches!(entry.kind, FileKind::Directory | FileKind::Symlink) {
        return Ok(false);
    }
    Ok(host.list(directory).await?.iter().any(|name| is_log(name)))
}

/// What is in the data directory.
async fn found(host: &dyn Host, data: &str) -> Result<String, Failure> {
    let Some(entry) = host.stat(data).await? else {
        return Ok(format!("{data} does not exist"));
    };
    if entry.kind == FileKind::File || entry.kind == FileKind::Other {
        return Ok(format!("{data} is no directory"));
    }
    let names = host.list(data).await?;
    Ok(if names.is_empty() {
        format!("{data} is empty")
    } else {
        format!(
            "{data} contains {}, but no log in {}",
            names.join(", "),
            join(data, LOG)
        )
    })
}

/// The way back: to a copy that is on the host, or else to one that the operator has.
async fn remedy(host: &dyn Host, data: &str) -> Result<String, Failure> {
    let member = join(data, "member");
    let copies = copies(host, data).await?;
    let Some(first) = copies.first() else {
        return Ok(format!(
            "no copy of it was found on this host: mount its file system, move it back to {member}, or restore a snapshot to \
             {data} (`etcdutl snapshot restore`)"
        ));
    };
    let aside = match host.stat(&member).await? {
        Some(_) => format!("mv -T {member} {member}.without-log && "),
        None => String::new(),
    };
    Ok(format!(
        "{} {}: move it back with `{aside}mv -T {first} {member}`",
        if copies.len() == 1 {
            "data of a member is in"
        } else {
            "data of members is in"
        },
        copies.join(", ")
    ))
}

/// Directories with a write-ahead log, where operators and kubeadm put copies: in the data
/// directory and beside it.
async fn copies(host: &dyn Host, data: &str) -> Result<Vec<String>, Failure> {
    let mut places: Vec<String> = Vec::new();
    for name in host.list(data).await? {
        places.push(join(data, &name));
    }
    let beside = parent(data);
    let stem = data.rsplit('/').next().unwrap_or_default();
    for name in host.list(beside).await? {
        if name.starts_with(stem) && join(beside, &name) != data {
            places.push(join(beside, &name));
        }
    }
    for name in host.list(KUBEADM).await? {
        places.push(join(&join(KUBEADM, &name), "etcd"));
    }
    let mut found = BTreeSet::new();
    for place in places {
        for directory in [place.clone(), join(&place, "member")] {
            if has_log(host, &join(&directory, "wal")).await? {
                found.insert(directory);
            }
        }
    }
    Ok(found.into_iter().collect())
}
