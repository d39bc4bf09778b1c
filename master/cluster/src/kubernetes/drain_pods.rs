//! The pods of a node, and a drain's action for each, by kubectl's rules (`pkg/drain/filters.go`).

use std::collections::BTreeMap;

use halite_core::clock::millis;
use halite_store::Millis;
use serde_json::{Map, Value};

use super::{Api, ApiError, ObjectRef};

/// The taint of a cordoned node.
pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The kubelet's mark on the pods of its manifests: the API cannot end them.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// The pods that a drain does not evict by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Evict pods with an emptyDir, whose content is lost.
    pub delete_emptydir_data: bool,
    /// Also evict pods that no controller would recreate.
    pub force: bool,
    /// Seconds that replace each pod's own grace period.
    pub grace_period: Option<u64>,
}

/// One pod.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) reference: ObjectRef,
    pub(super) uid: String,
    pub(super) labels: Map<String, Value>,
    /// Kind and name of its controller.
    pub(super) controller: Option<ObjectRef>,
    /// `true` once its deletion has started.
    pub(super) ends: bool,
    /// The time of day at which its grace period is over, once its deletion has started: the API
    /// server adds the period to the time of the request (`BeforeDelete` in
    /// `apiserver/pkg/registry/rest`).
    pub(super) ends_by: Option<Millis>,
    /// `true` if the scheduler also places it on a cordoned node.
    pub(super) tolerates_cordon: bool,
    is_finished: bool,
    is_mirror: bool,
    has_emptydir: bool,
}

impl Pod {
    fn new(object: &Value) -> Result<Self, ApiError> {
        let mut object = object.clone();
        // The items of a list have neither field.
        object["apiVersion"] = Value::from("v1");
        object["kind"] = Value::from("Pod");
        let reference = ObjectRef::of(&object)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let items = |pointer: &str| object.pointer(pointer).and_then(Value::as_array);
        let owners = items("/metadata/ownerReferences").into_iter().flatten();
        let controller = owners
            .filter(|owner| owner.get("controller") == Some(&Value::Bool(true)))
            .find_map(|owner| {
                let field = |key: &str| Some(owner.get(key)?.as_str()?.to_owned());
                Some(ObjectRef {
                    api_version: field("apiVersion")?,
                    kind: field("kind")?,
                    namespace: reference.namespace.clone(),
                    name: field("name")?,
                })
            });
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        let mut volumes = items("/spec/volumes").into_iter().flatten();
        let mut tolerations = items("/spec/tolerations").into_iter().flatten();
        Ok(Self {
            tolerates_cordon: tolerations.any(tolerates_cordon),
            uid: text("/metadata/uid").unwrap_or_default().to_owned(),
            labels: labels.cloned().unwrap_or_default(),
            controller,
            ends: text("/metadata/deletionTimestamp").is_some(),
            ends_by: text("/metadata/deletionTimestamp").and_then(millis),
            is_finished: matches!(text("/status/phase"), Some("Succeeded" | "Failed")),
            is_mirror: object.pointer(MIRROR).is_some(),
            has_emptydir: volumes.any(|volume| volume.get("emptyDir").is_some()),
            reference,
        })
    }

    /// `namespace/name`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.reference.namespace, self.reference.name)
    }

    /// Kind and name of the object that creates the pod; for a ReplicaSet, its Deployment.
    pub(super) async fn owner(&self, api: &dyn Api) -> String {
        let Some(controller) = &self.controller else {
            return "no controller".to_owned();
        };
        let mut named = (controller.kind.clone(), controller.name.clone());
        if controller.kind == "ReplicaSet"
            && let Ok(Some(set)) = api.get(controller).await
            && let Some(owner) = set.pointer("/metadata/ownerReferences/0")
            && let (Some(kind), Some(name)) = (owner.get("kind"), owner.get("name"))
        {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            named = (text(kind), text(name));
        }
        format!("{} {}", named.0, named.1)
    }
}

/// Returns whether a toleration covers the taint of a cordoned node, which has no value
/// (`Toleration.ToleratesTaint` in `k8s.io/component-helpers/scheduling/corev1`).
fn tolerates_cordon(toleration: &Value) -> bool {
    let text = |key: &str| toleration.get(key).and_then(Value::as_str).unwrap_or("");
    let exists = text("operator") == "Exists";
    matches!(text("effect"), "" | "NoSchedule")
        && (text("key") == UNSCHEDULABLE || (text("key").is_empty() && exists))
        && (exists || text("value").is_empty())
}

/// The actions of a drain for the pods of a node.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pods to evict.
    pub(super) leave: Vec<Pod>,
    /// Pods that require a flag, by kubectl's reason.
    pub(super) refused: BTreeMap<&'static str, Vec<String>>,
}

/// Plans the actions for the pods of a node.
///
/// # Errors
/// The API failed.
pub(super) async fn plan(api: &dyn Api, node: &str, options: &Options) -> Result<Plan, ApiError> {
    let fields = format!("spec.nodeName={node}");
    let mut plan = Plan::default();
    for object in api.list("v1", "Pod", "", &fields).await? {
        let pod = Pod::new(&object)?;
        if pod.is_mirror {
            continue;
        }
        let mut controller = pod.controller.as_ref();
        if let Some(set) = controller.filter(|set| set.kind == "DaemonSet" && !pod.is_finished) {
            // Its controller recreates the pod even on an unschedulable node.
            if api.get(set).await?.is_some() {
                continue;
            }
            controller = None;
        }
        let alone = controller.is_none() && !options.force;
        let local = pod.has_emptydir && !options.delete_emptydir_data;
        let reason = match (pod.is_finished, alone, local) {
            (false, true, _) => "pods that no controller would recreate (--force ends them)",
            (false, _, true) => {
                "pods with data in an emptyDir, which is lost (--delete-emptydir-data ends them)"
            }
            _ => {
                plan.leave.push(pod);
                continue;
            }
        };
        plan.refused.entry(reason).or_default().push(pod.name());
    }
    Ok(plan)
}
