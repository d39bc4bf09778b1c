//! The hosts that must take part in each step of a rotation: those that use what is rotated, and
//! the standbys of the master.

use std::time::Duration;

use halite_core::declared::Snapshot;
use halite_core::roster::FollowState;
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::engine::Failure;

use super::pace::StepPace;
use super::step_runner::StepRunner;

/// The pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// A rotation, as its messages name it.
pub(super) struct Rotation {
    /// The command that continues it.
    pub(super) command: String,
    /// The replaced object, without an article.
    pub(super) what: &'static str,
    /// `true` if hosts that only have a member of etcd use it, too.
    pub(super) has_members: bool,
}

impl Rotation {
    /// The end of each failure: the way to continue.
    fn again(&self) -> String {
        let Self { command, what, .. } = self;
        format!("then run `{command}` again: it continues with the same {what}")
    }

    fn uses(&self, node: &Node) -> bool {
        node.has(Role::ControlPlane) || (self.has_members && node.has(Role::Etcd))
    }
}

impl StepRunner<'_> {
    /// Fails unless the declared hosts are those of this run, and each is connected. One that
    /// missed a stage could not work with the others in the next.
    pub(super) async fn all_take_part(
        &self,
        rotation: &Rotation,
        snapshot: &Snapshot,
        nodes: &[String],
    ) -> Result<(), Failure> {
        let declared = snapshot.declaration().nodes.iter();
        let users = declared.filter(|(_, node)| rotation.uses(node));
        let mut problems = Vec::new();
        let (mut minions, mut names) = (Vec::new(), Vec::new());
        for (name, node) in users {
            let id = name.as_str().parse::<MinionId>();
            let id = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
            names.push(name.as_str().to_owned());
            let is_plane = node.has(Role::ControlPlane);
            let has_joined = match is_plane {
                true => node.serves_api(),
                false => node.is_member(),
            };
            if has_joined {
                minions.push(id);
                continue;
            }
            let kind = match is_plane {
                true => "a control plane",
                false => "a member of etcd",
            };
            problems.push(format!(
                "{name} is declared as {kind} and has not joined: finish `ctl node add {name}`, or remove it with \
                 `ctl node remove {name}`"
            ));
        }
        let mut began = nodes.to_vec();
        began.sort_unstable();
        if names != began {
            let kinds = match rotation.has_members {
                true => "control planes and members of etcd",
                false => "control planes",
            };
            return Err(Failure::new(format!(
                "the {kinds} have changed: this run began with {}, and now {} are declared; {}",
                began.join(", "),
                names.join(", "),
                rotation.again(),
            )));
        }
        let cluster = snapshot.cluster();
        let (_, gone) = self.reachable(minions).await;
        problems.extend(gone.into_iter().map(|name| {
            format!(
                "{name} is not connected: switch it on, or, if it is lost for good, replace it with `ctl node replace {name} --force \
                 --cluster {cluster}`, or remove it with `ctl node remove {name} --dead --force --cluster {cluster}`"
            )
        }));
        if problems.is_empty() {
            return Ok(());
        }
        let (problems, again) = (problems.join("; "), rotation.again());
        let all = match rotation.has_members {
            true => "control plane and member of etcd",
            false => "control plane",
        };
        Err(Failure::new(format!(
            "not every {all} can take part: {problems}; {again}"
        )))
    }

    /// Waits until each standby follows. One that has missed a stage would have an older one than
    /// the cluster when it becomes the master.
    pub(super) async fn standbys_follow(
        &self,
        rotation: &Rotation,
        snapshot: &Snapshot,
        index: usize,
        limit: Duration,
    ) -> Result<(), Failure> {
        let remedy =
            "switch them on, or remove hosts that are lost for good; `ctl master list` shows them";
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(remedy);
        let what = rotation.what;
        loop {
            let seen = self.jobs.app().standbys.seen();
            let behind = snapshot.declaration().standbys().into_iter();
            let behind = behind.map(|node| node.metadata.name.to_string());
            let behind = behind.filter_map(|name| match seen.get(&name) {
                Some(seen) if seen.state == FollowState::Following => None,
                Some(seen) if seen.reason.is_empty() => {
                    Some(format!("{name} ({})", seen.state.as_str()))
                }
                Some(seen) => Some(format!("{name} ({}: {})", seen.state.as_str(), seen.reason)),
                None => Some(format!("{name} (not connected)")),
            });
            let behind: Vec<String> = behind.collect();
            if behind.is_empty() {
                return Ok(());
            }
            let because = format!("these do not follow the master: {}", behind.join(", "));
            if pace.now() >= limit {
                let (waited, again) = (limit.as_secs(), rotation.again());
                return Err(Failure::new(format!(
                    "a standby would lack the {what}: {because} (waited {waited} s); {remedy}; {again}"
                )));
            }
            let until = format!("each standby has the {what}");
            pace.say(until, because, limit).await;
            pace.pause().await;
        }
    }
}
