//! Pods that started with what a rotation replaces: the CA that they trust, or the token of their
//! service account.
//!
//! The controller-manager writes the trusted CAs into the ConfigMap `kube-root-ca.crt` of each
//! namespace, and a pod reads them when it starts. The kubelet renews a pod's token after 80% of
//! its lifetime, and at the latest after a day (`pkg/kubelet/token/token_manager.go`). All times
//! are those of the API server. Workloads are restarted one after the other, each when the rollout
//! of the one before it has ended, so that a service with its replicas in two workloads keeps one
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use halite_core::clock::{Clock, millis, rfc3339};
use halite_errors::chain;
use halite_etcd::{Pace, Wait};
use halite_store::Millis;
use serde_json::{Value, json};

use super::pod_facts::{
    MIRROR, RESTARTED, ROOT_CA, changed, controller, mounts_ca, named, reference_of, signer,
    token_lifetime,
};
use super::rollout::{RESTARTABLE, replacement_left, restarted_at, rollout_left, takes_restart};
use super::{Api, ApiError, ObjectRef};

pub use super::pod_facts::key_id;

/// The time within which a kubelet has a change of a ConfigMap: a pod that is created earlier
/// counts as old.
const SLACK: Millis = 2_000;
/// The same for a token: the kubelet looks at it once a minute, and clocks differ.
const TOKEN_SLACK: Millis = 3 * 60 * 1000;
/// The margin of a restart: creation times are whole seconds, and the clocks of the master and of
/// an API server differ. If they differ by more, the new pods count as old, and are restarted once
/// more.
const RESTART_MARGIN: Millis = 5_000;
/// The kubelet renews a token at the latest after this time.
const TOKEN_AGE: Millis = 24 * 60 * 60 * 1000;

/// The part of pods that a rotation replaces.
pub enum Replaced {
    /// The CA of Kubernetes; these are the certificates (PEM) that each pod is to trust.
    Ca(Vec<String>),
    /// The key that signs tokens of service accounts.
    Tokens {
        /// The time from which on all API servers sign with the new key.
        since: Millis,
        /// The identifier of the new key.
        key_id: String,
    },
}

/// The error of a wait for pods.
#[derive(Debug, thiserror::Error)]
pub enum OldPodsError {
    /// There are old pods at the end of the time.
    #[error("cannot continue after {} s: {because}", limit.as_secs())]
    Late {
        /// The pods by their owners.
        because: String,
        /// The time limit.
        limit: Duration,
    },
    /// The API refuses a request.
    #[error("cannot look for pods that have not been restarted")]
    Api(#[source] ApiError),
}

/// The old pods of one owner.
#[derive(Debug, Clone, Copy, Default)]
struct OldOnes {
    number: usize,
    /// The number of those that do not end. The successors of the others are not old.
    staying: usize,
    /// The time after which the successor of each is not old.
    since: Millis,
}

/// The workloads that a wait has restarted.
#[derive(Debug, Default)]
struct Restarts {
    all: BTreeSet<String>,
    /// The one whose rollout has not ended.
    last: Option<ObjectRef>,
}

/// The namespaces with all trusted CAs.
enum Published {
    /// All of them, with the time from which on each had them.
    Everywhere(BTreeMap<String, Millis>),
    /// These do not have them yet.
    Missing(Vec<String>),
}

/// A wait until no old pod is left.
pub struct OldPods<'a> {
    /// The API.
    pub api: &'a dyn Api,
    /// Time, pauses and reports.
    pub pace: &'a dyn Pace,
    /// The time of day.
    pub clock: &'a dyn Clock,
    /// The part of pods that is replaced.
    pub replaced: &'a Replaced,
    /// `true` to restart the owners of old pods.
    pub restart: bool,
    /// The time limit.
    pub limit: Duration,
}

impl OldPods<'_> {
    /// Waits until no old pod is left. Returns the owners that were restarted.
    ///
    /// # Errors
    /// Old pods are left at the end of the time, or the API refuses a request.
    pub async fn run(&self) -> Result<BTreeSet<String>, OldPodsError> {
        let mut restarts = Restarts::default();
        loop {
            let because = match self.round(&mut restarts).await {
                Ok(None) => return Ok(restarts.all),
                Ok(Some(because)) => because,
                Err(error) if error.is_transient() => chain(&error),
                Err(error) => return Err(OldPodsError::Api(error)),
            };
            let (since, limit) = (self.pace.now(), self.limit);
            if since >= limit {
                return Err(OldPodsError::Late { because, limit });
            }
            let wait = Wait {
                until: match self.replaced {
                    Replaced::Ca(_) => "no pod trusts only the old CA",
                    Replaced::Tokens { .. } => "no token of the old key is in use",
                }
                .to_owned(),
                because,
                since,
                limit,
            };
            self.pace.report(&wait).await;
            self.pace.pause().await;
        }
    }

    /// The reason to wait; `None` if there is none.
    async fn round(&self, restarts: &mut Restarts) -> Result<Option<String>, ApiError> {
        let published = match self.replaced {
            Replaced::Ca(trusted) => match self.published(trusted).await? {
                Published::Everywhere(published) => published,
                Published::Missing(namespaces) => {
                    let namespaces = namespaces.join(", ");
                    return Ok(Some(format!(
                        "the ConfigMap {ROOT_CA} does not have the present CAs yet in {namespaces}"
                    )));
                }
            },
            Replaced::Tokens { .. } => BTreeMap::new(),
        };
        let mut old: BTreeMap<ObjectRef, OldOnes> = BTreeMap::new();
        let mut known = BTreeMap::new();
        for pod in self.api.list("v1", "Pod", "", "").await? {
            let Some(since) = self.old_since(&pod, &published) else {
                continue;
            };
            let ones = old.entry(self.owner(&pod, &mut known).await?).or_default();
            ones.number += 1;
            let is_ending = pod.pointer("/metadata/deletionTimestamp").is_some();
            ones.staying += usize::from(!is_ending);
            ones.since = ones.since.max(since);
        }
        let rollout = match self.restart {
            true => self.restart_next(&old, restarts).await?,
            false => None,
        };
        let mut left: Vec<String> = (old.iter())
            .map(|(owner, ones)| match ones.number {
                1 => format!("{} (1 pod)", named(owner)),
                number => format!("{} ({number} pods)", named(owner)),
            })
            .collect();
        if let Replaced::Tokens { key_id, .. } = self.replaced {
            left.extend(self.secrets(key_id).await?);
        }
        let old = (!left.is_empty()).then(|| left.join(", "));
        Ok(match (rollout, old) {
            (Some(rollout), Some(old)) => Some(format!("{rollout}; still old: {old}")),
            (rollout, old) => rollout.or(old),
        })
    }

    /// Inspects the trusted CAs of each namespace.
    async fn published(&self, trusted: &[String]) -> Result<Published, ApiError> {
        let mut published = BTreeMap::new();
        let fields = format!("metadata.name={ROOT_CA}");
        for object in self.api.list("v1", "ConfigMap", "", &fields).await? {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            if text("/metadata/name") != Some(ROOT_CA) {
                continue;
            }
            let content = text("/data/ca.crt").unwrap_or_default();
            if trusted.iter().all(|one| content.contains(one.trim())) {
                let namespace = text("/metadata/namespace").unwrap_or_default();
                published.insert(namespace.to_owned(), changed(&object));
            }
        }
        let namespaces = self.api.list("v1", "Namespace", "", "").await?;
        let missing: Vec<String> = (namespaces.iter())
            .filter(|one| one.pointer("/metadata/deletionTimestamp").is_none())
            .filter_map(|one| one.pointer("/metadata/name")?.as_str())
            .filter(|name| !published.contains_key(*name))
            .map(str::to_owned)
            .collect();
        Ok(match missing.is_empty() {
            true => Published::Everywhere(published),
            false => Published::Missing(missing),
        })
    }

    /// The time after which a successor of an old pod is not old; `None` if the pod is not old.
    fn old_since(&self, pod: &Value, published: &BTreeMap<String, Millis>) -> Option<Millis> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
        let is_finished = matches!(text("/status/phase"), Some("Succeeded" | "Failed"));
        if is_finished || pod.pointer(MIRROR).is_some() {
            return None;
        }
        let created = text("/metadata/creationTimestamp").and_then(millis)?;
        match self.replaced {
            Replaced::Ca(_) => {
                let since = published.get(text("/metadata/namespace")?)? + SLACK;
                (mounts_ca(pod) && created <= since).then_some(since + RESTART_MARGIN)
            }
            Replaced::Tokens { since, .. } => {
                let since = since + TOKEN_SLACK;
                let lifetime = token_lifetime(pod)?;
                let renewed = since + (lifetime / 5 * 4).min(TOKEN_AGE);
                (created <= since && self.clock.now() <= renewed).then_some(since + RESTART_MARGIN)
            }
        }
    }

    /// The object that an operator restarts: the controller of a pod, and the Deployment of a
    /// ReplicaSet; the pod itself without one.
    async fn owner(
        &self,
        pod: &Value,
        known: &mut BTreeMap<ObjectRef, ObjectRef>,
    ) -> Result<ObjectRef, ApiError> {
        let Some(first) = controller(pod) else {
            return Ok(ObjectRef {
                kind: "Pod".to_owned(),
                ..reference_of(pod)
            });
        };
        if first.kind != "ReplicaSet" {
            return Ok(first);
        }
        if let Some(owner) = known.get(&first) {
            return Ok(owner.clone());
        }
        let set = self.api.get(&first).await?;
        let owner = set.as_ref().and_then(controller);
        let owner = owner.unwrap_or_else(|| first.clone());
        known.insert(first, owner.clone());
        Ok(owner)
    }

    /// Restarts the next workload with old pods, once no rollout is left. Returns the reason to
    /// wait for a rollout.
    async fn restart_next(
        &self,
        old: &BTreeMap<ObjectRef, OldOnes>,
        restarts: &mut Restarts,
    ) -> Result<Option<String>, ApiError> {
        let left = |owner: &ObjectRef, why: String| {
            Some(format!(
                "the rollout of {} has not ended ({why})",
                named(owner)
            ))
        };
        let mut ended = None;
        if let Some(last) = &restarts.last {
            let object = self.api.get(last).await?;
            if let Some(why) = object.as_ref().and_then(rollout_left) {
                return Ok(left(last, why));
            }
            ended = restarts.last.take();
        }
        let now = self.clock.now();
        let (mut next, mut broken) = (None, None);
        for (owner, ones) in old.iter().filter(|(_, ones)| now > ones.since) {
            // The pods were listed before this rollout ended: its old ones may have gone since.
            let has_ended = ended.as_ref() == Some(owner);
            if has_ended || !RESTARTABLE.contains(&owner.kind.as_str()) {
                continue;
            }
            let Some(object) = self.api.get(owner).await? else {
                continue;
            };
            let rollout = rollout_left(&object);
            if let Some(why) = &rollout
                && restarted_at(&object) > Some(ones.since)
            {
                // The master that restarted it has been restarted.
                return Ok(left(owner, why.clone()));
            }
            // Others may replace its pods now.
            let is_replaced = replacement_left(&object).is_some() || ones.staying == 0;
            if is_replaced || !takes_restart(&object, ones.since, now) {
                continue;
            }
            // Pods that are not ready may need the restart, but their rollout may never end.
            let place = if rollout.is_none() {
                &mut next
            } else {
                &mut broken
            };
            place.get_or_insert((owner, object));
        }
        let Some((owner, object)) = next.or(broken) else {
            return Ok(None);
        };
        if self.restart_one(object).await? {
            restarts.all.insert(named(owner));
            restarts.last = Some(owner.clone());
        }
        Ok(None)
    }

    /// Restarts a workload as `kubectl rollout restart` does. Returns `false` if another client has
    /// changed it since: the next round looks again.
    async fn restart_one(&self, mut object: Value) -> Result<bool, ApiError> {
        // Indexing JSON that has another type would panic.
        let template = object.pointer_mut("/spec/template/metadata");
        let Some(metadata) = template.and_then(Value::as_object_mut) else {
            return Ok(false);
        };
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            let now = json!(rfc3339(self.clock.now()));
            annotations.insert(RESTARTED.to_owned(), now);
        }
        match self.api.replace(&object, false).await {
            Ok(_) => Ok(true),
            Err(ApiError::Refused {
                code: 404 | 409, ..
            }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The Secrets with a token of another key, which no program renews.
    async fn secrets(&self, key_id: &str) -> Result<Vec<String>, ApiError> {
        let fields = "type=kubernetes.io/service-account-token";
        let secrets = self.api.list("v1", "Secret", "", fields).await?;
        let old = secrets.iter().filter(|secret| {
            let token = secret.pointer("/data/token").and_then(Value::as_str);
            let is_token =
                secret.get("type").and_then(Value::as_str) == fields.strip_prefix("type=");
            is_token && token.is_some_and(|token| signer(token).as_deref() != Some(key_id))
        });
        Ok(old
            .map(|secret| {
                let secret = ObjectRef {
                    kind: "Secret".to_owned(),
                    ..reference_of(secret)
                };
                named(&secret)
            })
            .collect())
    }
}
