//! The control-plane components in a minion's view: all their flags, volumes and files, those of
//! the document and those that follow from other fields.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api_hardening::{ApiAudit, PodSecurity};
use crate::cluster::Cluster;
use crate::component::{Component, ExtraVolume, Patch};
use crate::encryption_keys::{KeyNames, configuration};
use crate::flags::Flags;

/// The directory of the API server's own configuration files on a control plane.
pub(crate) const DIRECTORY: &str = "/etc/kubernetes/apiserver";
/// The directory of the audit log on a control plane.
pub(crate) const AUDIT_DIRECTORY: &str = "/var/log/kubernetes/audit";
/// The names of the two volumes.
pub(crate) const OWN_VOLUMES: [&str; 2] = ["apiserver-config", "audit-log"];
/// The namespaces of Halite's own pods, which need more than a Pod Security Standard allows.
const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-flannel", "local-path-storage"];

const AUDIT: &str = "audit-policy.yaml";
const ENCRYPTION: &str = "encryption.yaml";
const AUTHENTICATION: &str = "authentication.yaml";
const ADMISSION: &str = "admission.yaml";

/// A component's part of the view.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComponentView<'a> {
    pub(super) extra_args: Flags,
    pub(super) extra_volumes: Vec<ExtraVolume>,
    pub(super) patches: &'a [Patch],
}

/// The part of the controller manager or the scheduler.
pub(super) fn component<'a>(cluster: &Cluster, component: &'a Component) -> ComponentView<'a> {
    let mut flags = cluster.profiling_off();
    flags.extend(component.extra_args.clone());
    ComponentView {
        extra_args: flags,
        extra_volumes: component.extra_volumes.clone(),
        patches: &component.patches,
    }
}

/// The part of the API server, and its configuration files by name.
pub(super) struct ApiServerView<'a> {
    pub(super) component: ComponentView<'a>,
    pub(super) files: BTreeMap<&'static str, Value>,
    /// The names of the keys in them, and their stage; `None` without keys.
    pub(super) keys: Option<KeyNames>,
}

/// The part of the API server. `keys` are the master's keys if it has any; `key` makes the text for
/// the key at a pillar path.
pub(super) fn api_server<'a>(
    cluster: &'a Cluster,
    keys: Option<&KeyNames>,
    key: &dyn Fn(&str) -> String,
) -> ApiServerView<'a> {
    let declared = &cluster.api_server;
    let mut flags = cluster.api_server_profile();
    let mut files = BTreeMap::new();
    let mut volumes = Vec::new();
    let mut file = |flags: &mut Flags, flag: &str, name: &'static str, content: Value| {
        flags.insert(flag.to_owned(), format!("{DIRECTORY}/{name}").into());
        files.insert(name, content);
    };
    if let Some(audit) = cluster.audit() {
        file(&mut flags, "audit-policy-file", AUDIT, policy(&audit));
        for (flag, value) in [
            ("audit-log-path", format!("{AUDIT_DIRECTORY}/audit.log")),
            ("audit-log-maxage", audit.max_age.to_string()),
            ("audit-log-maxbackup", audit.max_backups.to_string()),
            ("audit-log-maxsize", audit.max_size.to_string()),
        ] {
            flags.insert(flag.to_owned(), value.into());
        }
        volumes.push(own_volume(OWN_VOLUMES[1], AUDIT_DIRECTORY, false));
    }
    let encryption = cluster.encryption();
    // Objects that were encrypted earlier stay readable.
    let keys = keys.cloned();
    let keys = keys.or_else(|| encryption.as_ref().map(|_| KeyNames::default()));
    if let Some(keys) = &keys {
        let resources = encryption.map(|own| own.resources.clone());
        let content = configuration(keys, &resources.unwrap_or_default(), key);
        file(
            &mut flags,
            "encryption-provider-config",
            ENCRYPTION,
            content,
        );
    }
    if let Some(authentication) = &declared.authentication {
        let mut content = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": authentication.jwt,
        });
        if let Some(anonymous) = &authentication.anonymous {
            content["anonymous"] = json!(anonymous);
        }
        file(&mut flags, "authentication-config", AUTHENTICATION, content);
    }
    let admission = &declared.admission;
    let plugins: Vec<Value> = (cluster.pod_security().iter())
        .map(|standard| pod_security(standard))
        .chain(admission.plugins.iter().map(|plugin| json!(plugin)))
        .collect();
    if !plugins.is_empty() {
        let content = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        });
        file(
            &mut flags,
            "admission-control-config-file",
            ADMISSION,
            content,
        );
    }
    if !admission.enable.is_empty() {
        let names = std::iter::once("NodeRestriction");
        let names: Vec<&str> = names
            .chain(admission.enable.iter().map(String::as_str))
            .collect();
        flags.insert(
            "enable-admission-plugins".to_owned(),
            names.join(",").into(),
        );
    }
    if !admission.disable.is_empty() {
        let names = admission.disable.join(",");
        flags.insert("disable-admission-plugins".to_owned(), names.into());
    }
    if !declared.feature_gates.is_empty() {
        let gates = declared.feature_gates.iter();
        let gates: Vec<String> = gates.map(|(gate, on)| format!("{gate}={on}")).collect();
        flags.insert("feature-gates".to_owned(), gates.join(",").into());
    }
    if !files.is_empty() {
        volumes.insert(0, own_volume(OWN_VOLUMES[0], DIRECTORY, true));
    }
    volumes.extend(declared.extra_volumes.iter().cloned());
    flags.extend(declared.extra_args.clone());
    ApiServerView {
        component: ComponentView {
            extra_args: flags,
            extra_volumes: volumes,
            patches: &declared.patches,
        },
        files,
        keys,
    }
}

fn own_volume(name: &str, path: &str, read_only: bool) -> ExtraVolume {
    ExtraVolume {
        name: name.to_owned(),
        host_path: path.to_owned(),
        mount_path: path.to_owned(),
        read_only,
        path_type: Some("DirectoryOrCreate".to_owned()),
    }
}

/// The audit policy: the declared one, or Halite's.
///
/// Halite's records each write with its user and its object. Requests of the control plane to
/// itself and health checks are left out, as they would be most of the log; the content of Secrets,
/// ConfigMaps and token requests is left out, as it is secret.
fn policy(audit: &ApiAudit) -> Value {
    let mut content = json!({
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"]},
            {"level": "None", "resources": [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io", "resources": ["events"]}]},
            {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {"level": "None", "userGroups": ["system:nodes"], "verbs": ["get", "list", "watch"]},
            {"level": "None", "users": ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy"],
             "verbs": ["get", "list", "watch"]},
            {"level": "Metadata", "resources": [
                {"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]},
                {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
            ]},
            {"level": "Metadata", "verbs": ["get", "list", "watch"]},
            {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
            {"level": "Metadata"},
        ],
    });
    if !audit.policy.is_empty() {
        content = json!(audit.policy);
    }
    content["apiVersion"] = json!("audit.k8s.io/v1");
    content["kind"] = json!("Policy");
    content
}

fn pod_security(standard: &PodSecurity) -> Value {
    let exempt: Vec<&str> = OWN_NAMESPACES
        .into_iter()
        .chain(standard.exempt_namespaces.iter().map(String::as_str))
        .collect();
    json!({
        "name": "PodSecurity",
        "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {
                "enforce": standard.enforce,
                "enforce-version": standard.version,
                "audit": standard.audit,
                "audit-version": standard.version,
                "warn": standard.warn,
                "warn-version": standard.version,
            },
            "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": exempt},
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    fn cluster(more: Value) -> Cluster {
        let mut document = json!({
            "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"},
            "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24"]}}, "kubernetes": {"version": "1.36"},
        });
        let more = more.as_object().unwrap().clone();
        document.as_object_mut().unwrap().extend(more);
        serde_json::from_value(document).unwrap()
    }

    fn made<'a>(cluster: &'a Cluster, keys: Option<&KeyNames>) -> ApiServerView<'a> {
        api_server(cluster, keys, &|path| format!("({path})"))
    }

    fn flag(view: &ApiServerView<'_>, name: &str) -> String {
        let value = view.component.extra_args.get(name);
        value.map_or_else(String::new, |value| value.all().join("|"))
    }

    #[test]
    fn without_hardening_nothing_is_added() {
        let cluster = cluster(json!({"apiServer": {"extraArgs": {"v": "4"}}}));
        let view = made(&cluster, None);
        assert_eq!(view.component.extra_args.len(), 1);
        assert!(view.component.extra_volumes.is_empty() && view.files.is_empty());
        assert!(
            component(&cluster, &cluster.scheduler)
                .extra_args
                .is_empty()
        );
        assert!(cluster.kubelet_config().is_empty() && cluster.node_sysctls().is_empty());
    }

    #[test]
    fn the_profile_yields_to_each_declared_field() {
        let cluster = cluster(json!({
            "profile": "hardened",
            "apiServer": {
                "extraArgs": {"profiling": "true"}, "audit": {"maxAge": 7},
                "admission": {"podSecurity": {"enforce": "baseline", "exemptNamespaces": ["ingress"]}},
            },
            "kubelet": {"config": {"protectKernelDefaults": false}},
        }));
        let view = made(&cluster, None);
        assert_eq!(flag(&view, "profiling"), "true");
        assert_eq!(flag(&view, "audit-log-maxage"), "7");
        assert_eq!(flag(&view, "audit-log-maxbackup"), "10");
        assert_eq!(
            flag(&view, "kubelet-certificate-authority"),
            "/etc/kubernetes/pki/ca.crt"
        );
        assert_eq!(
            flag(&view, "service-account-extend-token-expiration"),
            "false"
        );
        let standard = &view.files[ADMISSION]["plugins"][0]["configuration"];
        assert_eq!(standard["defaults"]["enforce"], "baseline");
        assert_eq!(standard["defaults"]["warn"], "restricted");
        assert_eq!(
            standard["exemptions"]["namespaces"],
            json!([
                "kube-system",
                "kube-flannel",
                "local-path-storage",
                "ingress"
            ])
        );
        assert_eq!(
            component(&cluster, &cluster.scheduler).extra_args["profiling"].last(),
            "false"
        );
        assert_eq!(cluster.kubelet_config()["protectKernelDefaults"], false);
        assert!(cluster.node_sysctls().is_empty());
    }

    #[test]
    fn each_field_has_its_file_flag_and_volume() {
        let cluster = cluster(json!({"apiServer": {
            "audit": {"policy": {"rules": [{"level": "Metadata"}]}},
            "encryption": {},
            "authentication": {"anonymous": {"enabled": true}},
            "admission": {"plugins": [{"name": "EventRateLimit", "configuration": {"kind": "C"}}], "enable": ["EventRateLimit"]},
            "featureGates": {"A": true, "B": false},
        }}));
        let view = made(&cluster, None);
        for (name, flag_name, kind) in [
            (AUDIT, "audit-policy-file", "Policy"),
            (
                ENCRYPTION,
                "encryption-provider-config",
                "EncryptionConfiguration",
            ),
            (
                AUTHENTICATION,
                "authentication-config",
                "AuthenticationConfiguration",
            ),
            (
                ADMISSION,
                "admission-control-config-file",
                "AdmissionConfiguration",
            ),
        ] {
            assert_eq!(view.files[name]["kind"], kind);
            assert_eq!(flag(&view, flag_name), format!("{DIRECTORY}/{name}"));
        }
        assert_eq!(view.files[AUDIT]["rules"], json!([{"level": "Metadata"}]));
        assert_eq!(flag(&view, "feature-gates"), "A=true,B=false");
        assert_eq!(
            flag(&view, "enable-admission-plugins"),
            "NodeRestriction,EventRateLimit"
        );
        let volumes: Vec<&str> = (view.component.extra_volumes.iter())
            .map(|volume| volume.name.as_str())
            .collect();
        assert_eq!(volumes, OWN_VOLUMES);
    }

    #[test]
    fn encrypted_objects_stay_readable_when_encryption_is_no_longer_declared() {
        let view_of = |declared: Value, keys: Option<KeyNames>| {
            made(&cluster(declared), keys.as_ref())
                .files
                .get(ENCRYPTION)
                .map(|file| file["resources"].clone())
        };
        assert_eq!(view_of(json!({}), None), None);
        let left = view_of(json!({}), Some(KeyNames::default())).unwrap();
        assert_eq!(
            left,
            json!([{"resources": ["*.*"], "providers": [
                {"identity": {}},
                {"secretbox": {"keys": [{"name": "key1", "secret": "(encryption.key1)"}]}},
            ]}])
        );
        let declared = view_of(json!({"profile": "hardened"}), None).unwrap();
        assert_eq!(declared[0]["resources"], json!(["secrets"]));
    }
}
