//! A fake API in memory, for tests: it stores objects, adds a server's fields, and fails on
//! request.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::client::is_sample;
use super::{Api, ApiError, ApiFuture, FIELD_MANAGER, FieldConflict, ObjectRef, Served, compare};

/// The fake API.
#[derive(Default)]
pub struct FakeApi {
    /// The stored objects.
    pub objects: Mutex<BTreeMap<ObjectRef, Value>>,
    /// Writes that were not dry runs, as `verb object`.
    pub writes: Mutex<Vec<String>>,
    /// The number of calls that fail before the first one is answered; `u32::MAX` for all.
    pub silent_for: AtomicU32,
    /// Unknown kinds, or versions with all their kinds.
    pub unknown_kinds: Mutex<Vec<String>>,
    /// Kinds that cannot be listed.
    pub broken_kinds: Mutex<Vec<String>>,
    /// Objects that stay when they are deleted, as if they had a finalizer.
    pub stubborn: Mutex<Vec<String>>,
    /// Objects that are gone after this number of reads.
    pub passing: Mutex<BTreeMap<String, u32>>,
    /// Pods with the number of eviction attempts that a budget refuses; `u32::MAX` for all.
    pub held: Mutex<BTreeMap<String, u32>>,
    /// The last of these pods is added after an eviction, as a controller and the scheduler would.
    pub successors: Mutex<Vec<Value>>,
    /// The number of updates that lose a race.
    pub conflicts: AtomicU32,
    /// Fields of other managers, by the name of their object.
    pub fields_of_others: Mutex<BTreeMap<String, Vec<FieldConflict>>>,
    /// The samples of metrics, a line each.
    pub metrics: Mutex<Vec<String>>,
    /// The reads of objects that hang.
    pub hung: Hung,
    version: AtomicU32,
}

/// A server that accepts requests but does not answer them.
#[derive(Default)]
pub struct Hung {
    /// `true` while it hangs.
    pub on: AtomicBool,
    /// Releases the hanging requests.
    pub free: Notify,
    /// The number of requests received.
    pub came: AtomicU32,
    /// The number of requests that hang now.
    pub inside: AtomicU32,
    /// The highest number of requests that hung at the same time.
    pub most: AtomicU32,
}

impl Hung {
    async fn wait(&self) {
        struct Leave<'h>(&'h Hung);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.inside.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if self.on.load(Ordering::SeqCst) {
            let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            let _leave = Leave(self);
            self.most.fetch_max(inside, Ordering::SeqCst);
            self.came.fetch_add(1, Ordering::SeqCst);
            self.free.notified().await;
        }
    }
}

impl FakeApi {
    /// Creates an object as another manager would.
    pub fn put(&self, object: Value) {
        let reference = ObjectRef::of(&object).unwrap();
        let mut object = self.served(object, &reference);
        object["metadata"]["managedFields"] = json!([{"manager": "another"}]);
        self.objects.lock().unwrap().insert(reference, object);
    }

    /// The stored object.
    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.objects
            .lock()
            .unwrap()
            .iter()
            .find(|(r, _)| r.kind == kind && r.name == name)
            .map(|(_, o)| o.clone())
    }

    fn served(&self, mut object: Value, reference: &ObjectRef) -> Value {
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.insert("resourceVersion".into(), json!(version.to_string()));
        metadata.insert(
            "managedFields".into(),
            json!([{"manager": FIELD_MANAGER, "time": version}]),
        );
        metadata.insert("uid".into(), json!(reference.to_string()));
        if reference.kind == "CustomResourceDefinition" && object.get("status").is_none() {
            object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        }
        // Its node's kubelet would set this.
        if reference.kind == "Pod" && object.get("status").is_none() {
            object["status"] = json!({"phase": "Running", "podIP": "10.233.0.9"});
        }
        object
    }

    fn answer(&self, reference: Option<&ObjectRef>, writes: bool) -> Result<(), ApiError> {
        let left = self.silent_for.load(Ordering::SeqCst);
        if left > 0 {
            if left != u32::MAX {
                self.silent_for.store(left - 1, Ordering::SeqCst);
            }
            return Err(ApiError::unreachable("10.0.0.1:6443", "connection refused"));
        }
        if let Some(reference) = reference {
            let unknown = self.unknown_kinds.lock().unwrap();
            if unknown.contains(&reference.kind) || unknown.contains(&reference.api_version) {
                return Err(ApiError::NoSuchKind {
                    api_version: reference.api_version.clone(),
                    kind: reference.kind.clone(),
                });
            }
            let namespace_is_there = reference.namespace.is_empty()
                || ["kube-system", "kube-public", "default"]
                    .contains(&reference.namespace.as_str())
                || self.object("Namespace", &reference.namespace).is_some();
            let namespace_ends = self
                .object("Namespace", &reference.namespace)
                .is_some_and(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null());
            if !namespace_is_there {
                return Err(refused(
                    404,
                    "NotFound",
                    &format!("namespaces \"{}\" not found", reference.namespace),
                ));
            }
            if writes && namespace_ends {
                return Err(refused(
                    403,
                    "Forbidden",
                    "unable to create new content because it is being terminated",
                ));
            }
        }
        Ok(())
    }

    fn pass(&self, reference: &ObjectRef) {
        if let Some(left) = self.passing.lock().unwrap().get_mut(&reference.name) {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => drop(self.objects.lock().unwrap().remove(reference)),
            }
        }
    }

    fn store(&self, verb: &str, reference: ObjectRef, object: Value, dry_run: bool) -> Value {
        let object = self.served(object, &reference);
        if !dry_run {
            self.writes
                .lock()
                .unwrap()
                .push(format!("{verb} {reference}"));
            self.objects
                .lock()
                .unwrap()
                .insert(reference, object.clone());
        }
        object
    }
}

/// Creates a refusal of the server.
pub fn refused(code: u16, reason: &str, message: &str) -> ApiError {
    ApiError::Refused {
        code,
        reason: reason.into(),
        message: message.into(),
    }
}

impl Api for FakeApi {
    fn get<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, Option<Value>> {
        Box::pin(async move {
            self.hung.wait().await;
            match self.answer(Some(reference), false) {
                Err(error) if error.is_not_found() => return Ok(None),
                other => other?,
            }
            self.pass(reference);
            Ok(self.objects.lock().unwrap().get(reference).cloned())
        })
    }

    fn apply<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(async move {
            let reference = ObjectRef::of(object)?;
            self.answer(Some(&reference), true)?;
            let live = self.objects.lock().unwrap().get(&reference).cloned();
            let mut result = live.unwrap_or(Value::Null);
            compare::merge(&mut result, object);
            Ok(self.store("apply", reference, result, dry_run))
        })
    }

    fn conflicts<'a>(&'a self, object: &'a Value) -> ApiFuture<'a, Vec<FieldConflict>> {
        Box::pin(async move {
            let reference = ObjectRef::of(object)?;
            self.answer(Some(&reference), false)?;
            let fields = self.fields_of_others.lock().unwrap();
            Ok(fields.get(&reference.name).cloned().unwrap_or_default())
        })
    }

    fn replace<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(async move {
            let reference = ObjectRef::of(object)?;
            self.answer(Some(&reference), true)?;
            let left = self.conflicts.load(Ordering::SeqCst);
            if left > 0 && !dry_run {
                self.conflicts.store(left - 1, Ordering::SeqCst);
                return Err(refused(409, "Conflict", "the object has been modified"));
            }
            Ok(self.store("replace", reference, object.clone(), dry_run))
        })
    }

    fn delete<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, bool> {
        Box::pin(async move {
            self.answer(Some(reference), false)?;
            self.writes
                .lock()
                .unwrap()
                .push(format!("delete {reference}"));
            if self.stubborn.lock().unwrap().contains(&reference.name) {
                if let Some(object) = self.objects.lock().unwrap().get_mut(reference) {
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                return Ok(true);
            }
            Ok(self.objects.lock().unwrap().remove(reference).is_some())
        })
    }

    fn evict<'a>(
        &'a self,
        pod: &'a ObjectRef,
        uid: &'a str,
        grace: Option<u64>,
    ) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            self.answer(Some(pod), true)?;
            let there = self.objects.lock().unwrap().get(pod).cloned();
            let Some(mut there) = there else {
                return Err(refused(404, "NotFound", "pods not found"));
            };
            if there["metadata"]["uid"] != uid {
                return Err(refused(409, "Conflict", "the UID in the precondition"));
            }
            if let Some(left) = self.held.lock().unwrap().get_mut(&pod.name)
                && *left > 0
            {
                if *left != u32::MAX {
                    *left -= 1;
                }
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                return Err(refused(429, "TooManyRequests", message));
            }
            let grace = grace
                .map(|grace| format!(" in {grace} s"))
                .unwrap_or_default();
            self.writes
                .lock()
                .unwrap()
                .push(format!("evict {pod}{grace}"));
            let mut objects = self.objects.lock().unwrap();
            if self.stubborn.lock().unwrap().contains(&pod.name) {
                there["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                objects.insert(pod.clone(), there);
            } else {
                objects.remove(pod);
            }
            drop(objects);
            let successor = self.successors.lock().unwrap().pop();
            successor.into_iter().for_each(|pod| self.put(pod));
            Ok(())
        })
    }

    fn ready(&self) -> ApiFuture<'_, ()> {
        Box::pin(async move { self.answer(None, false) })
    }

    fn metric<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Vec<String>> {
        Box::pin(async move {
            self.answer(None, false)?;
            let lines = self.metrics.lock().unwrap();
            let own = lines.iter().filter(|line| is_sample(line, name));
            Ok(own.cloned().collect())
        })
    }

    fn list<'a>(
        &'a self,
        _api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        fields: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(async move {
            self.answer(None, false)?;
            let node = fields.strip_prefix("spec.nodeName=");
            Ok(self
                .objects
                .lock()
                .unwrap()
                .iter()
                .filter(|(r, _)| r.kind == kind)
                .filter(|(r, _)| namespace.is_empty() || r.namespace == namespace)
                .filter(|(_, o)| node.is_none_or(|node| o["spec"]["nodeName"] == node))
                .map(|(_, o)| o.clone())
                .collect())
        })
    }

    fn kinds(&self) -> ApiFuture<'_, Vec<Served>> {
        Box::pin(async move {
            self.answer(None, false)?;
            let objects = self.objects.lock().unwrap();
            let text = |object: &Value, pointer: &str| {
                object
                    .pointer(pointer)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            let there = objects.keys().map(|r| {
                (
                    r.api_version.clone(),
                    r.kind.clone(),
                    !r.namespace.is_empty(),
                )
            });
            let definitions = objects
                .iter()
                .filter(|(r, _)| r.kind == "CustomResourceDefinition");
            let defined = definitions.map(|(_, object)| {
                (
                    format!("{}/v1", text(object, "/spec/group")),
                    text(object, "/spec/names/kind"),
                    true,
                )
            });
            let unknown = self.unknown_kinds.lock().unwrap();
            let mut kinds: Vec<Served> = Vec::new();
            for (api_version, kind, namespaced) in there.chain(defined) {
                if unknown.contains(&kind) {
                    continue;
                }
                match kinds
                    .iter_mut()
                    .find(|known| (&known.api_version, &known.kind) == (&api_version, &kind))
                {
                    Some(known) => known.namespaced |= namespaced,
                    None => kinds.push(Served {
                        api_version,
                        kind,
                        namespaced,
                    }),
                }
            }
            Ok(kinds)
        })
    }

    fn metadata<'a>(
        &'a self,
        kind: &'a Served,
        namespace: &'a str,
        labels: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(async move {
            self.answer(None, false)?;
            if self.broken_kinds.lock().unwrap().contains(&kind.kind) {
                return Err(refused(500, "InternalError", "conversion webhook failed"));
            }
            let objects = self.objects.lock().unwrap();
            let fits = |reference: &ObjectRef, object: &Value| {
                (&reference.kind, &reference.api_version) == (&kind.kind, &kind.api_version)
                    && (namespace.is_empty() || namespace == reference.namespace)
                    && (labels.is_empty() || object["metadata"]["labels"].get(labels).is_some())
            };
            let found = objects
                .iter()
                .filter(|(reference, object)| fits(reference, object));
            let bare = |(r, o): (&ObjectRef, &Value)| json!({"apiVersion": r.api_version, "kind": r.kind, "metadata": o["metadata"]});
            Ok(found.map(bare).collect())
        })
    }
}
