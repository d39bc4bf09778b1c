//! The members of etcd by their part: the leader, which may be chosen, and a follower.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::{BACK, etcdctl};

/// The members with a vote.
#[derive(Debug, PartialEq, Eq)]
struct Members {
    /// The host whose member leads.
    leader: String,
    /// The ids of the members, by host.
    ids: BTreeMap<String, u64>,
}

impl Members {
    /// Queries one member after the other until one answers.
    fn ask(cluster: &Cluster) -> Result<Self> {
        let mut refused = anyhow!("no control plane");
        for host in cluster.control_planes() {
            let answer = etcdctl(cluster, host, &["endpoint", "status"]).and_then(|status| {
                let list = etcdctl(cluster, host, &["member", "list"])?;
                Self::parse(&status, &list)
            });
            match answer {
                Ok(members) => return Ok(members),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn parse(status: &Value, list: &Value) -> Result<Self> {
        let leader = status[0]["Status"]["leader"].as_u64();
        let leader = leader.with_context(|| format!("no leader: {status}"))?;
        let members = list["members"].as_array().into_iter().flatten();
        let voting = members.filter(|member| member["isLearner"] != true);
        let ids: BTreeMap<String, u64> = voting
            .filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["ID"].as_u64()?)))
            .collect();
        let found = ids.iter().find(|(_, id)| **id == leader);
        let name = found.map(|(name, _)| name.clone());
        Ok(Self {
            leader: name.with_context(|| format!("the leader is {leader}: {list}"))?,
            ids,
        })
    }

    /// A host whose member follows, other than `but`.
    fn follower(&self, but: Option<&str>) -> Result<&str> {
        let mut hosts = self.ids.keys().map(String::as_str);
        let found = hosts.find(|host| *host != self.leader && Some(*host) != but);
        found.with_context(|| format!("no follower but {but:?}: {self:?}"))
    }

    /// Orders the leader to hand over to the member of that host.
    fn hand_over(&self, cluster: &Cluster, to: &str) -> Result<()> {
        let id = self.ids.get(to);
        let id = id.with_context(|| format!("{to} has no vote: {self:?}"))?;
        let leader = cluster.host(&self.leader)?;
        etcdctl(cluster, leader, &["move-leader", &format!("{id:x}")]).map(drop)
    }
}

/// The host whose member leads; if that is `but`, another one leads first.
pub(super) fn leading<'c>(cluster: &'c Cluster, but: Option<&str>) -> Result<&'c Host> {
    cluster.host(&led_by_another(cluster, but)?.leader)
}

/// A host whose member follows. It is not `but`, nor does that lead.
pub(super) fn following<'c>(cluster: &'c Cluster, but: Option<&str>) -> Result<&'c Host> {
    cluster.host(led_by_another(cluster, but)?.follower(but)?)
}

/// Makes the member of a host lead.
pub(super) fn lead(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until(&format!("{name} to lead etcd"), BACK, || {
        let members = Members::ask(cluster)?;
        if members.leader == name {
            return Ok(());
        }
        members.hand_over(cluster, name)?;
        bail!("{} has led", members.leader)
    })
}

/// The members, once another one than `but` leads. One that has just died counts as the leader
/// until the others have elected another one.
fn led_by_another(cluster: &Cluster, but: Option<&str>) -> Result<Members> {
    wait::until("a leader of etcd", BACK, || {
        let members = Members::ask(cluster)?;
        if Some(members.leader.as_str()) != but {
            return Ok(members);
        }
        members.hand_over(cluster, members.follower(but)?)?;
        bail!("{} has led", members.leader)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leader_and_follower_are_read_and_a_learner_is_neither() {
        let list = json!({"members": [
            {"name": "cp-2", "ID": 2}, {"name": "cp-1", "ID": 1}, {"name": "cp-0", "ID": 4, "isLearner": true},
            {"name": "cp-3", "ID": 3},
        ]});
        let status = |leader: u64| json!([{"Status": {"leader": leader}}]);
        let members = Members::parse(&status(1), &list).unwrap();
        assert_eq!(members.leader, "cp-1");
        assert_eq!(members.follower(None).unwrap(), "cp-2");
        assert_eq!(members.follower(Some("cp-2")).unwrap(), "cp-3");
        assert!(Members::parse(&status(9), &list).is_err());
        // During an election the field is missing.
        assert!(Members::parse(&json!([{"Status": {}}]), &list).is_err());
    }
}
