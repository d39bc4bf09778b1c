//! The Kubernetes API over kube, as cluster administrator.
//!
//! The identity is kubeadm's: first `O=kubeadm:cluster-admins` (its `admin.conf`), and if the
//! server forbids that, because the ClusterRoleBinding of that group is missing or damaged,
//! `O=system:masters` (`super-admin.conf`).

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Mutex;

use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use kube::Client;
use kube::api::{
    Api as KubeTyped, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::discovery::{Discovery, Scope, pinned_kind, verbs};
use serde_json::{Value, json};

use super::connection::client;
use super::no_answer::{NoAnswer, READY, REQUEST, never_connected, unless_gone, within};
use super::{Api, ApiError, ApiFuture, FIELD_MANAGER, FieldConflict, ObjectRef, Served, conflicts};

pub use super::connection::{Access, Identity};

/// The page size of a list, like kubectl's.
const PAGE: u32 = 500;

/// The real API.
pub struct KubeApi {
    endpoint: String,
    admin: Client,
    super_admin: Client,
    kinds: Mutex<HashMap<(String, String), (ApiResource, bool)>>,
}

impl KubeApi {
    /// Creates a client of the server at one address; makes no connection yet.
    ///
    /// # Errors
    /// The CA or an identity is malformed.
    pub fn new(access: &Access, address: Ipv4Addr) -> Result<Self, ApiError> {
        let endpoint = format!("{address}:{}", access.port);
        Ok(Self {
            admin: client(access, &endpoint, &access.admin)?,
            super_admin: client(access, &endpoint, &access.super_admin)?,
            endpoint,
            kinds: Mutex::default(),
        })
    }

    /// The address and port of the server.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    fn explain(&self, error: kube::Error) -> ApiError {
        match error {
            kube::Error::Api(status) => ApiError::Refused {
                code: status.code,
                reason: status.reason.clone(),
                message: if status.message.is_empty() {
                    status.reason
                } else {
                    status.message
                },
            },
            other if never_connected(&other) => {
                ApiError::not_connected(&self.endpoint, NoAnswer(other))
            }
            other => ApiError::unreachable(&self.endpoint, NoAnswer(other)),
        }
    }

    /// The resource of a kind, and whether it is namespaced; the server is asked once.
    async fn resource(
        &self,
        client: &Client,
        api_version: &str,
        kind: &str,
    ) -> Result<(ApiResource, bool), ApiError> {
        let key = (api_version.to_owned(), kind.to_owned());
        let known = self
            .kinds
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(found) = known {
            return Ok(found);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = pinned_kind(client, &GroupVersionKind::gvk(group, version, kind)).await;
        let missing = || ApiError::NoSuchKind {
            api_version: api_version.into(),
            kind: kind.into(),
        };
        let (resource, capabilities) = found.map_err(|error| match error {
            kube::Error::Discovery(_) => missing(),
            kube::Error::Api(status) if status.code == 404 => missing(),
            other => self.explain(other),
        })?;
        let entry = (resource, capabilities.scope == Scope::Namespaced);
        self.kinds
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(key, entry.clone());
        Ok(entry)
    }

    async fn typed(
        &self,
        client: &Client,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<KubeTyped<DynamicObject>, ApiError> {
        let (resource, namespaced) = self.resource(client, api_version, kind).await?;
        Ok(if namespaced {
            // Like kubectl: an object without a namespace goes to `default`.
            let namespace = if namespace.is_empty() {
                "default"
            } else {
                namespace
            };
            KubeTyped::namespaced_with(client.clone(), namespace, &resource)
        } else {
            KubeTyped::all_with(client.clone(), &resource)
        })
    }

    /// Makes a call as administrator and, where that is forbidden, as super-administrator.
    async fn call<T, F, R>(&self, run: F) -> Result<T, ApiError>
    where
        F: Fn(Client) -> R,
        R: Future<Output = Result<T, ApiError>>,
    {
        match run(self.admin.clone()).await {
            Err(ApiError::Refused { code: 403, .. }) => run(self.super_admin.clone()).await,
            other => other,
        }
    }

    async fn of_reference(
        &self,
        client: &Client,
        reference: &ObjectRef,
    ) -> Result<KubeTyped<DynamicObject>, ApiError> {
        self.typed(
            client,
            &reference.api_version,
            &reference.kind,
            &reference.namespace,
        )
        .await
    }

    async fn of_object(
        &self,
        client: &Client,
        object: &Value,
    ) -> Result<(KubeTyped<DynamicObject>, String), ApiError> {
        let reference = ObjectRef::of(object)?;
        let api = self.of_reference(client, &reference).await?;
        Ok((api, reference.name))
    }
}

/// Group and version of the API services.
const API_SERVICES: (&str, &str) = ("apiregistration.k8s.io/v1", "APIService");

/// Returns whether a line of Prometheus' text format is a sample of this metric.
pub(super) fn is_sample(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
}

fn to_json(object: DynamicObject) -> Result<Value, ApiError> {
    serde_json::to_value(object).map_err(ApiError::unusable("the API's answer is not an object"))
}

fn from_json(object: &Value) -> Result<DynamicObject, ApiError> {
    serde_json::from_value(object.clone()).map_err(ApiError::unusable("not a Kubernetes object"))
}

impl Api for KubeApi {
    fn get<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, Option<Value>> {
        Box::pin(self.call(move |client| async move {
            let asked = async {
                let api = self.of_reference(&client, reference).await?;
                let found = api.get_opt(&reference.name).await;
                found.map_err(|e| self.explain(e))?.map(to_json).transpose()
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn apply<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(self.call(move |client| async move {
            let object_api = self.of_object(&client, object);
            let (api, name) = within(&self.endpoint, REQUEST, object_api).await?;
            let parameters = PatchParams {
                dry_run,
                force: true,
                field_manager: Some(FIELD_MANAGER.into()),
                ..PatchParams::default()
            };
            let patched = async {
                let patched = api.patch(&name, &parameters, &Patch::Apply(object)).await;
                to_json(patched.map_err(|e| self.explain(e))?)
            };
            unless_gone(&self.endpoint, REQUEST, patched, self.ready()).await
        }))
    }

    fn conflicts<'a>(&'a self, object: &'a Value) -> ApiFuture<'a, Vec<FieldConflict>> {
        Box::pin(self.call(move |client| async move {
            let asked = async {
                let (api, name) = self.of_object(&client, object).await?;
                let parameters = PatchParams {
                    dry_run: true,
                    field_manager: Some(FIELD_MANAGER.into()),
                    ..PatchParams::default()
                };
                match api.patch(&name, &parameters, &Patch::Apply(object)).await {
                    Ok(_) => Ok(Vec::new()),
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        let details = status.details.map(|details| details.causes);
                        let causes = details.into_iter().flatten();
                        let causes = causes.map(|cause| (cause.message, cause.field));
                        Ok(conflicts::from_causes(causes))
                    }
                    Err(error) => Err(self.explain(error)),
                }
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn replace<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(self.call(move |client| async move {
            let asked = async {
                let (api, name) = self.of_object(&client, object).await?;
                let parameters = PostParams {
                    dry_run,
                    field_manager: Some(FIELD_MANAGER.into()),
                };
                let replaced = api.replace(&name, &parameters, &from_json(object)?).await;
                to_json(replaced.map_err(|e| self.explain(e))?)
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn delete<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, bool> {
        Box::pin(self.call(move |client| async move {
            let asked = async {
                let api = self.of_reference(&client, reference).await?;
                let options = DeleteParams::background();
                match api.delete(&reference.name, &options).await {
                    Ok(_) => Ok(true),
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                    Err(error) => Err(self.explain(error)),
                }
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn evict<'a>(
        &'a self,
        pod: &'a ObjectRef,
        uid: &'a str,
        grace: Option<u64>,
    ) -> ApiFuture<'a, ()> {
        Box::pin(self.call(move |client| async move {
            let mut options = json!({"preconditions": {"uid": uid}});
            if let Some(seconds) = grace {
                options["gracePeriodSeconds"] = json!(seconds);
            }
            let body = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": options,
            });
            // kube's own request calls the options `delete_options`, which no server reads.
            let path = format!(
                "/api/v1/namespaces/{}/pods/{}/eviction",
                pod.namespace, pod.name
            );
            let request = Request::new(path)
                .create(&PostParams::default(), body.to_string().into_bytes())
                .map_err(ApiError::unusable(format!(
                    "cannot ask for the eviction of {pod}"
                )))?;
            let asked = async {
                let answer = client.request::<Value>(request).await;
                answer.map(|_| ()).map_err(|error| self.explain(error))
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn ready(&self) -> ApiFuture<'_, ()> {
        Box::pin(self.call(move |client| async move {
            let request = Request::new("")
                .get("readyz", &kube::api::GetParams::default())
                .map_err(ApiError::unusable("cannot ask whether the API is ready"))?;
            let asked = async {
                let answer = client.request_text(request).await;
                answer.map(|_| ()).map_err(|e| self.explain(e))
            };
            within(&self.endpoint, READY, asked).await
        }))
    }

    fn metric<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Vec<String>> {
        Box::pin(self.call(move |client| async move {
            let request = Request::new("")
                .get("metrics", &kube::api::GetParams::default())
                .map_err(ApiError::unusable("cannot ask for the metrics of the API"))?;
            let asked = async {
                let body = client.request_stream(request).await;
                // All metrics are megabytes: they are read line by line.
                let mut lines = pin!(body.map_err(|e| self.explain(e))?.lines());
                let mut found = Vec::new();
                while let Some(line) = lines.next().await {
                    let line =
                        line.map_err(ApiError::unusable("cannot read the metrics of the API"))?;
                    if is_sample(&line, name) {
                        found.push(line);
                    }
                }
                Ok(found)
            };
            within(&self.endpoint, REQUEST, asked).await
        }))
    }

    fn list<'a>(
        &'a self,
        api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        fields: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(self.call(move |client| async move {
            let api = async {
                if namespace.is_empty() {
                    let (resource, _) = self.resource(&client, api_version, kind).await?;
                    Ok(KubeTyped::all_with(client.clone(), &resource))
                } else {
                    self.typed(&client, api_version, kind, namespace).await
                }
            };
            let api = within(&self.endpoint, REQUEST, api).await?;
            let mut parameters = ListParams::default().limit(PAGE);
            if !fields.is_empty() {
                parameters = parameters.fields(fields);
            }
            let mut all = Vec::new();
            loop {
                let page = async { api.list(&parameters).await.map_err(|e| self.explain(e)) };
                let page = within(&self.endpoint, REQUEST, page).await?;
                for object in page.items {
                    all.push(to_json(object)?);
                }
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => parameters = parameters.continue_token(&token),
                    None => return Ok(all),
                }
            }
        }))
    }

    fn kinds(&self) -> ApiFuture<'_, Vec<Served>> {
        Box::pin(self.call(move |client| async move {
            let (api_version, kind) = API_SERVICES;
            let services = self.typed(&client, api_version, kind, "").await?;
            let services = services
                .list(&ListParams::default())
                .await
                .map_err(|e| self.explain(e))?;
            // A group that is served by an aggregated server; while that server is down, every
            // query about the group fails.
            let foreign: Vec<String> = services
                .items
                .iter()
                .filter(|service| {
                    service
                        .data
                        .pointer("/spec/service")
                        .is_some_and(|s| !s.is_null())
                })
                .filter_map(|service| {
                    Some(service.data.pointer("/spec/group")?.as_str()?.to_owned())
                })
                .collect();
            let foreign: Vec<&str> = foreign.iter().map(String::as_str).collect();
            let discovery = Discovery::new(client)
                .exclude(&foreign)
                .run_aggregated()
                .await;
            let discovery = discovery.map_err(|e| self.explain(e))?;
            let mut known = self
                .kinds
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut served = Vec::new();
            for (resource, capabilities) in discovery
                .groups()
                .flat_map(kube::discovery::ApiGroup::resources_by_stability)
            {
                let usable = [verbs::LIST, verbs::DELETE]
                    .iter()
                    .all(|verb| capabilities.supports_operation(verb));
                let namespaced = capabilities.scope == Scope::Namespaced;
                let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
                let one = Served {
                    api_version,
                    kind,
                    namespaced,
                };
                if usable && !one.is_event() {
                    known.insert(
                        (one.api_version.clone(), one.kind.clone()),
                        (resource, namespaced),
                    );
                    served.push(one);
                }
            }
            Ok(served)
        }))
    }

    fn metadata<'a>(
        &'a self,
        kind: &'a Served,
        namespace: &'a str,
        labels: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(self.call(move |client| async move {
            let (resource, _) = self.resource(&client, &kind.api_version, &kind.kind).await?;
            let api: KubeTyped<DynamicObject> = if namespace.is_empty() {
                KubeTyped::all_with(client, &resource)
            } else {
                KubeTyped::namespaced_with(client, namespace, &resource)
            };
            let parameters =
                if labels.is_empty() { ListParams::default() } else { ListParams::default().labels(labels) };
            let found = api.list_metadata(&parameters).await.map_err(|e| self.explain(e))?;
            let object =
                |metadata| json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata});
            Ok(found.items.into_iter().map(|item| object(item.metadata)).collect())
        }))
    }
}
