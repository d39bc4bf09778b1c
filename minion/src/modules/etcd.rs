//! `etcd.*`

use std::collections::BTreeSet;

use halite_host_reports::etcd::{EtcdRecord, LOG, is_log};
use halite_host_reports::etcd_log::{self, Ids};
use halite_states::args::Args;
use halite_states::low::Chunk;

use super::paths::{absolute, join, parent};
use super::{Failure, Plan, fail};
use crate::host::{FileKind, Host};

/// The directory in which kubeadm leaves its copies of etcd's data.
const KUBEADM: &str = "/etc/kubernetes/tmp";

/// Compares the record with the write-ahead log. An etcd without its log would found a new, empty
/// cluster in its place, and one with another member's log would bring another cluster's data;
/// everything after that would look healthy.
pub(super) async fn data(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let data = absolute(&chunk.name)?;
    let record = absolute(&Args::new(chunk).required("record")?)?;
    if host.stat(&record).await?.is_none() {
        return Ok(Plan::nothing(format!(
            "no etcd member is recorded in {record}"
        )));
    }
    let recorded = record_of(host, &record).await?;
    let member = match &recorded {
        Some(recorded) => format!(" {}", recorded.member),
        None => String::new(),
    };
    if has_log(host, &join(&data, LOG)).await? {
        let there = log_ids(host, &data).await?;
        return match (recorded.as_ref().and_then(EtcdRecord::ids), there) {
            (Some(own), Some(there)) if own != there => fail(format!(
                "cannot continue with the etcd member{member}: the data in {data} belong to {there}, and {record} says that \
                 this host's belong to {own}. Started now, it would serve another member's data, so nothing was \
                 changed; {}, then run `ctl highstate`. Only if the present data should become its own, as after a \
                 restore by hand: {}",
                own_data(host, &data, own).await?,
                accepting(member.trim(), &record),
            )),
            _ => Ok(Plan::nothing(format!("the etcd member's log is in {data}"))),
        };
    }
    fail(format!(
        "cannot continue with the etcd member{member}, which ran on this host: its data is gone: {}. Started now, it would be a \
         new, empty cluster, so nothing was changed; {}, then run `ctl highstate`. Only if everything in the cluster may be \
         lost: remove {record} and what is left in {data}, and a new cluster is founded",
        found(host, &data).await?,
        remedy(host, &data).await?,
    ))
}

pub(super) async fn has_log(host: &dyn Host, directory: &str) -> Result<bool, Failure> {
    // A file in place of a directory cannot be listed, and contains no log.
    let Some(entry) = host.stat(directory).await? else {
        return Ok(false);
    };
    if !matches!(entry.kind, FileKind::Directory | FileKind::Symlink) {
        return Ok(false);
    }
    Ok(host.list(directory).await?.iter().any(|name| is_log(name)))
}

/// The record of the member; `None` if it is missing or unreadable.
pub(super) async fn record_of(host: &dyn Host, path: &str) -> Result<Option<EtcdRecord>, Failure> {
    let text = host.read(path).await?.unwrap_or_default();
    Ok(serde_json::from_slice(&text).ok())
}

/// The ids in the log of a data directory; `None` without a log of etcd.
pub(super) async fn log_ids(host: &dyn Host, data: &str) -> Result<Option<Ids>, Failure> {
    ids_in(host, &join(data, LOG)).await
}

async fn ids_in(host: &dyn Host, directory: &str) -> Result<Option<Ids>, Failure> {
    if !has_log(host, directory).await? {
        return Ok(None);
    }
    let names = host.list(directory).await?;
    let Some(first) = names.iter().find(|name| is_log(name)) else {
        return Ok(None);
    };
    let head = host.head(&join(directory, first), etcd_log::HEAD).await?;
    Ok(head.as_deref().and_then(etcd_log::ids))
}

/// Names the member that the data in a directory belong to.
pub(super) async fn whose(host: &dyn Host, data: &str) -> Result<String, Failure> {
    Ok(match log_ids(host, data).await? {
        Some(ids) => format!("the data of {ids}"),
        None => format!("a log in {} that is not etcd's", join(data, LOG)),
    })
}

/// The command of an operator who confirms that the present data are the member's.
pub(super) fn accepting(member: &str, record: &str) -> String {
    format!("say so with `echo '{{\"member\":\"{member}\"}}' >{record}`")
}

/// The instructions to restore the data with these ids.
async fn own_data(host: &dyn Host, data: &str, own: Ids) -> Result<String, Failure> {
    let member = join(data, "member");
    for copy in copies(host, data).await? {
        if ids_in(host, &join(&copy, "wal")).await? == Some(own) {
            return Ok(format!(
                "its own are in {copy}: move them back with `mv -T {member} {member}.other && mv -T {copy} {member}`"
            ));
        }
    }
    Ok(format!(
        "no copy of its own was found on this host: mount their file system, or set these aside with \
         `mv -T {member} {member}.other` and move its own back to {member}"
    ))
}

/// The content of the data directory.
async fn found(host: &dyn Host, data: &str) -> Result<String, Failure> {
    let Some(entry) = host.stat(data).await? else {
        return Ok(format!("{data} does not exist"));
    };
    if entry.kind == FileKind::File || entry.kind == FileKind::Other {
        return Ok(format!("{data} is not a directory"));
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

/// The instructions: to restore a copy that is on the host, or else one that the operator has.
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

/// Directories with a write-ahead log where operators and kubeadm put copies: in the data directory
/// and next to it.
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
