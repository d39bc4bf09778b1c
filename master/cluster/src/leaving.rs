//! A host that leaves the cluster: the reasons to refuse, and the losses.

use std::collections::BTreeMap;

use halite_api::{DeclaredNode, LeavingHost};
use halite_core::app::App;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_etcd::Overview;
use halite_etcd::quorum::{Voters, quorum, tolerance};
use halite_pillar::declaration::Declaration;
use halite_pillar::masters::MasterPart;
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use halite_states::shipped;
use serde_json::json;

use crate::kubernetes::access::Clusters;
use crate::kubernetes::volumes;

/// An operator's confirmations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The host is gone for good.
    pub dead: bool,
    /// Data or a member may be lost.
    pub force: bool,
    /// The cluster's name, which confirms `force`.
    pub cluster: String,
}

/// The facts about a host that will leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its name.
    pub name: String,
    /// The cluster's name.
    pub cluster: String,
    /// Its declared roles; `None` if it is not declared.
    pub roles: Option<Vec<Role>>,
    /// The roles that it keeps as a host that stays; `None` if it leaves the cluster.
    pub stays: Option<Vec<Role>>,
    /// Other hosts with the role `control-plane`.
    pub other_control_planes: usize,
    /// Other hosts that serve packages and images.
    pub other_registries: usize,
    /// `true` if it has the master.
    pub has_master: bool,
    /// `true` if it runs the site registry.
    pub has_site_registry: bool,
    /// `true` if it has a key, that is, has enrolled.
    pub has_key: bool,
    /// `true` if its minion is connected.
    pub is_connected: bool,
    /// Its vote in etcd.
    pub vote: Vote,
    /// Volumes that no other host can use.
    pub claims: Claims,
}

/// The number of claims that a message names.
const NAMED: usize = 10;

/// Claims of volumes that no other host can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claims {
    /// `namespace/name` of each.
    Known(Vec<String>),
    /// The API does not report the claims.
    Unknown {
        /// Its reason.
        because: String,
    },
}

/// The vote of a host in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vote {
    /// It has no vote: no member, or a learner.
    None,
    /// It is a voting member.
    Voting {
        /// All voting members.
        voters: Voters,
        /// `true` if this member serves.
        serves: bool,
    },
    /// etcd does not report its members.
    Unknown {
        /// Its reason.
        because: String,
    },
}

impl Leaving {
    /// Collects the facts.
    ///
    /// # Errors
    /// The name is invalid, or the store or the client of etcd fails.
    pub async fn gather(
        app: &App,
        clusters: &Clusters,
        snapshot: &Snapshot,
        name: &str,
    ) -> Result<Self, Refusal> {
        let id: MinionId = name.parse()?;
        let declaration = snapshot.declaration();
        let is_member = declaration
            .nodes
            .get(name)
            .is_some_and(|node| node.has(Role::Etcd));
        let vote = if is_member {
            let members = clusters.etcd().members(snapshot).await?;
            match Overview::take(members.as_ref()).await {
                Ok(overview) => vote(&overview, name),
                Err(error) => Vote::Unknown {
                    because: chain(&error),
                },
            }
        } else {
            Vote::None
        };
        let runs_containers = declaration
            .nodes
            .get(name)
            .is_some_and(|node| node.runs_containers());
        let claims = if runs_containers {
            claims(clusters, snapshot, name).await
        } else {
            Claims::Known(Vec::new())
        };
        Ok(Self {
            claims,
            has_key: app.store.key(&id).await?.is_some(),
            is_connected: app.connections.is_connected(&id),
            vote,
            ..Self::declared(declaration, name)
        })
    }

    /// The declared facts about a host that has never enrolled.
    fn declared(declaration: &Declaration, name: &str) -> Self {
        let others = |role: Role| {
            let nodes = declaration.nodes.iter();
            nodes
                .filter(|(other, node)| *other != name && node.has(role))
                .count()
        };
        let registry = declaration.registry_host();
        // The master's host serves them in any case.
        let serves_without_the_role = declaration
            .master_node()
            .is_some_and(|node| node.metadata.name != name && !node.has(Role::Registry));
        Self {
            name: name.to_owned(),
            cluster: declaration.cluster.metadata.name.to_string(),
            roles: declaration.nodes.get(name).map(|node| node.roles.clone()),
            stays: None,
            other_control_planes: others(Role::ControlPlane),
            other_registries: others(Role::Registry) + usize::from(serves_without_the_role),
            has_master: declaration.part(name) == Some(MasterPart::Master),
            has_site_registry: registry.is_some_and(|node| node.metadata.name == name),
            has_key: false,
            is_connected: false,
            vote: Vote::None,
            claims: Claims::Known(Vec::new()),
        }
    }

    /// The facts after the master has moved to the host `to`, or to any other host if `to` is
    /// unknown.
    #[must_use]
    pub fn once_moved(self, declaration: &Declaration, to: &str) -> Self {
        // The master's host serves packages and images, with or without the role.
        let node = declaration.nodes.get(to);
        let serves_newly = node.is_none_or(|node| !node.has(Role::Registry));
        Self {
            has_master: false,
            other_registries: self.other_registries + usize::from(serves_newly),
            ..self
        }
    }

    /// The facts for a host that stays, with these roles.
    #[must_use]
    pub fn staying(self, roles: &[Role]) -> Self {
        Self {
            stays: Some(roles.to_vec()),
            ..self
        }
    }

    /// Returns whether the host loses a role: if the host leaves, it loses all.
    fn loses(&self, role: Role) -> bool {
        let contains = |roles: &Option<Vec<Role>>| roles.as_ref().map(|all| all.contains(&role));
        contains(&self.roles) == Some(true) && contains(&self.stays) != Some(true)
    }

    /// All reasons why it may not leave, each with the flag that overrides it, or a note that none
    /// does.
    #[must_use]
    pub fn refusals(&self, confirmed: &Confirmed) -> Vec<String> {
        let (name, cluster) = (&self.name, &self.cluster);
        if self.roles.is_none() {
            // An interrupted removal whose document is already gone still has a key.
            let unknown = format!("there is no node {name}; `ctl status` shows all nodes");
            return if self.has_key {
                Vec::new()
            } else {
                vec![unknown]
            };
        }
        let mut reasons = self.indispensable();
        if confirmed.dead && self.is_connected {
            reasons.push(format!(
                "its minion is connected, so its host is not dead: leave out --dead; if it is a new host that replaces a dead \
                 one, `ctl orchestrate {} --pillar node={name}` continues with it",
                shipped::ADD_NODE
            ));
        }
        if !confirmed.dead && self.has_key && !self.is_connected {
            let gone = match self.stays {
                Some(_) => "if it is gone for good: ctl node remove",
                None => "if it is gone for good:",
            };
            reasons.push(format!(
                "its minion is not connected: start the host; {gone} --dead --force --cluster {cluster}"
            ));
        }
        let named = confirmed.force && confirmed.cluster == *cluster;
        if confirmed.force && !named {
            reasons.push(format!(
                "--cluster {} is not this cluster, which is {cluster}",
                confirmed.cluster
            ));
        } else if !named
            && (confirmed.dead && self.has_key
                || self.loses(Role::ControlPlane)
                || self.loses(Role::Etcd) && matches!(self.vote, Vote::Voting { .. })
                || self.has_key && self.lost_claims().is_some())
        {
            reasons.push(format!(
                "it takes --force --cluster {cluster}: {}",
                self.losses(confirmed.dead).join("; ")
            ));
        }
        reasons
    }

    /// The refusals that `--force` does not override.
    fn indispensable(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.has_master && (self.stays.is_none() || self.loses(Role::ControlPlane)) {
            reasons.push(
                "it has the master: move the master to a standby first (ctl master retire); --force does not override this".to_owned(),
            );
        }
        if self.loses(Role::ControlPlane) && self.other_control_planes == 0 {
            reasons.push(
                "it is the only control plane: all objects of the cluster would be lost; --force does not override this".to_owned(),
            );
        }
        if self.loses(Role::Registry) && self.other_registries == 0 {
            reasons.push(
                "only it serves packages and images: give another host the role registry first (ctl node roles, ctl node add); \
                 --force does not override this"
                    .to_owned(),
            );
        }
        if self.has_site_registry && self.stays.is_none() {
            reasons.push(
                "it runs the site registry, whose images would be lost: move siteRegistry.node in the cluster document first; \
                 --force does not override this"
                    .to_owned(),
            );
        }
        match &self.vote {
            Vote::Unknown { .. } | Vote::Voting { .. } if !self.loses(Role::Etcd) => {}
            Vote::Unknown { because } => reasons.push(format!(
                "etcd does not report its members ({because}): restore its quorum first; --force does not override this"
            )),
            Vote::Voting { voters, .. } if voters.all == 1 => reasons.push(
                "it has the only member of etcd: all objects of the cluster would be lost; give another host the role etcd \
                 first (ctl node add); --force does not override this"
                    .to_owned(),
            ),
            Vote::Voting { voters, serves } if !voters.keep_quorum_without_one(*serves) => {
                let Voters { all, serving } = voters;
                reasons.push(format!(
                    "etcd would lose its quorum: {serving} of {all} voting members serve, and {} of the {} that remain would \
                     be needed; repair the other members first; --force does not override this",
                    quorum(all.saturating_sub(1)),
                    all.saturating_sub(1)
                ));
            }
            Vote::None | Vote::Voting { .. } => {}
        }
        reasons
    }

    /// The cluster's losses, for people.
    #[must_use]
    pub fn losses(&self, dead: bool) -> Vec<String> {
        let pods = dead.then(|| "the data of its pods on its disks is lost".to_owned());
        let parts = [self.lost_claims(), self.lost_vote(), self.lost_keys()];
        pods.into_iter()
            .chain(parts.into_iter().flatten())
            .collect()
    }

    /// The volumes that the cluster loses with its disks.
    fn lost_claims(&self) -> Option<String> {
        if self.stays.is_some() {
            return None;
        }
        match &self.claims {
            Claims::Known(claims) if claims.is_empty() => None,
            Claims::Known(claims) => {
                let named = claims.iter().take(NAMED).map(String::as_str);
                let named = named.collect::<Vec<_>>().join(", ");
                let more = match claims.len().saturating_sub(NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                Some(format!(
                    "volumes that no other host can use, of the claims {named}{more}: copy their content elsewhere, then \
                     delete the claims, or pods that need them stay Pending"
                ))
            }
            Claims::Unknown { because } => Some(format!(
                "volumes that no other host can use, which the API does not name ({because})"
            )),
        }
    }

    /// The cluster's loss of an etcd member.
    fn lost_vote(&self) -> Option<String> {
        let Vote::Voting { voters, .. } = &self.vote else {
            return None;
        };
        if !self.loses(Role::Etcd) {
            return None;
        }
        let left = voters.all.saturating_sub(1);
        let members = if left == 1 {
            "member is"
        } else {
            "members are"
        };
        let loss = match tolerance(left) {
            0 => "none may fail".to_owned(),
            may_fail => format!("{may_fail} may fail"),
        };
        Some(format!("its vote in etcd: {left} {members} left, {loss}"))
    }

    /// The cluster's loss of a control plane.
    fn lost_keys(&self) -> Option<String> {
        self.loses(Role::ControlPlane).then(|| {
            "it held the private keys of the cluster's CAs and of the service accounts: anyone with its disks controls the cluster, \
             so erase them"
                .to_owned()
        })
    }

    /// The losses by role, for a host that keeps some of its roles.
    fn losses_of(&self) -> BTreeMap<String, String> {
        let losses = [
            (Role::Etcd, self.lost_vote()),
            (Role::ControlPlane, self.lost_keys()),
        ];
        let lost = losses
            .into_iter()
            .filter_map(|(role, loss)| Some((role, loss?)));
        lost.map(|(role, loss)| (role.as_str().to_owned(), loss))
            .collect()
    }

    /// The facts as a document, with the declared part of the node, for `ctl`.
    #[must_use]
    pub fn document(&self, declaration: &Declaration) -> LeavingHost {
        let node = declaration.nodes.get(self.name.as_str());
        LeavingHost {
            host: self.name.clone(),
            cluster: self.cluster.clone(),
            enrolled: self.has_key,
            connected: self.is_connected,
            losses: self.losses(false),
            losses_of: self.losses_of(),
            declared: node.map(|node| DeclaredNode {
                roles: node.roles.iter().map(ToString::to_string).collect(),
                address: node.address.map(|address| address.to_string()),
                labels: json!(node.labels),
                taints: json!(node.taints),
                custom: node.custom.clone(),
            }),
        }
    }
}

/// The claims of volumes that no other host can use.
async fn claims(clusters: &Clusters, snapshot: &Snapshot, name: &str) -> Claims {
    let api = match clusters.api(snapshot).await {
        Ok(api) => api,
        Err(error) => {
            return Claims::Unknown {
                because: chain(&error),
            };
        }
    };
    match volumes::claims_only_on(&*api, name).await {
        Ok(claims) => Claims::Known(claims),
        Err(error) => Claims::Unknown {
            because: chain(&error),
        },
    }
}

/// The vote of a host's member.
fn vote(overview: &Overview, name: &str) -> Vote {
    let mut members = overview.members.iter();
    let own = members.find(|own| own.member.title() == name && !own.member.is_learner);
    own.map_or(Vote::None, |own| Vote::Voting {
        voters: overview.voters,
        serves: own.fault.is_none(),
    })
}

#[cfg(test)]
mod tests;
