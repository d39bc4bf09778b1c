//! Hardening of the control plane: fields that set the same thing, and contents that an API server
//! would refuse when it starts.

use std::collections::BTreeSet;

use halite_document::source::join;
use serde_json::{Map, Value, json};

use super::Check;
use crate::component::{ExtraVolume, Patch};
use crate::etcd::Mode;
use crate::flags::Flags;
use crate::hardening::KUBELET_SYSCTLS;
use crate::view::hardening::{AUDIT_DIRECTORY, DIRECTORY, OWN_VOLUMES};

pub(super) fn check(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    both(check);
    audit(check);
    authentication(check);
    admission(check);
    kernel(check);
    let api_server = &cluster.api_server;
    volumes(check, "apiServer", &api_server.extra_volumes);
    patches(check, "apiServer", &api_server.patches);
    for (section, component) in [
        ("controllerManager", &cluster.controller_manager),
        ("scheduler", &cluster.scheduler),
    ] {
        volumes(check, section, &component.extra_volumes);
        patches(check, section, &component.patches);
    }
    patches(check, "etcd", &cluster.etcd.patches);
    patches(check, "dns", &cluster.dns.patches);
    if cluster.etcd.mode == Mode::HostService && !cluster.etcd.patches.is_empty() {
        check.cluster(
            "etcd.patches",
            "the patches have no effect with `mode: host-service`: there is no static pod",
            "remove them, and write `etcd.extraArgs`",
        );
    }
}

/// The remedy for an own file with keys: Halite's API servers do not have them.
const PLAIN_FIRST: &str = "first write all objects in plain text with your file, or they become unreadable: put `identity: {}` first in its \
     `providers`, restart the API servers, run `kubectl get secrets -A -o json | kubectl replace -f -` (and the same for each \
     other encrypted resource); only then remove the flag, and write `apiServer.encryption`";

/// Flags that also follow from a field which is declared, or which the profile declares.
fn both(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    let api_server = &cluster.api_server;
    let admission = &api_server.admission;
    let files = cluster.pod_security().is_some() || !admission.plugins.is_empty();
    for (flag, is_set, field) in [
        (
            "audit-policy-file",
            cluster.audit().is_some(),
            "audit.policy",
        ),
        ("audit-log-path", cluster.audit().is_some(), "audit"),
        (
            "audit-log-maxage",
            cluster.audit().is_some(),
            "audit.maxAge",
        ),
        (
            "audit-log-maxbackup",
            cluster.audit().is_some(),
            "audit.maxBackups",
        ),
        (
            "audit-log-maxsize",
            cluster.audit().is_some(),
            "audit.maxSize",
        ),
        (
            "encryption-provider-config",
            cluster.encryption().is_some(),
            "encryption",
        ),
        (
            "authentication-config",
            api_server.authentication.is_some(),
            "authentication",
        ),
        (
            "anonymous-auth",
            api_server.authentication.is_some(),
            "authentication.anonymous",
        ),
        ("admission-control-config-file", files, "admission"),
        (
            "enable-admission-plugins",
            !admission.enable.is_empty(),
            "admission.enable",
        ),
        (
            "disable-admission-plugins",
            !admission.disable.is_empty(),
            "admission.disable",
        ),
        (
            "feature-gates",
            !api_server.feature_gates.is_empty(),
            "featureGates",
        ),
    ] {
        if is_set && api_server.extra_args.contains_key(flag) {
            let remedy = match flag {
                "encryption-provider-config" => PLAIN_FIRST.to_owned(),
                _ => format!("remove it, and write `apiServer.{field}`"),
            };
            check.cluster(
                &format!("apiServer.extraArgs.{flag}"),
                format!("`apiServer.{field}` sets `{flag}` too"),
                remedy,
            );
        }
    }
    let oidc = api_server.extra_args.keys();
    for flag in oidc.filter(|flag| flag.starts_with("oidc-")) {
        if api_server.authentication.is_some() {
            check.cluster(
                &format!("apiServer.extraArgs.{flag}"),
                format!("the API server refuses `{flag}` together with `apiServer.authentication`"),
                "remove it, and write the issuer to `apiServer.authentication.jwt`",
            );
        }
    }
}

fn audit(check: &mut Check<'_>) {
    const PATH: &str = "apiServer.audit.policy";
    const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
    let Some(audit) = &check.declaration.cluster.api_server.audit else {
        return;
    };
    if audit.policy.is_empty() {
        return;
    }
    known_keys(
        check,
        PATH,
        &audit.policy,
        &["rules", "omitStages", "omitManagedFields"],
    );
    let rules = audit.policy.get("rules").and_then(Value::as_array);
    let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
        check.cluster(
            PATH,
            "an audit policy without rules: the API server would not start",
            "add `rules`, for example `rules: [{level: Metadata}]`, or remove `policy` for Halite's own",
        );
        return;
    };
    for (index, rule) in rules.iter().enumerate() {
        let level = rule
            .get("level")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !LEVELS.contains(&level) {
            check.cluster(
                &format!("{PATH}.rules[{index}]"),
                format!("`{level}` is not a level of audit rules"),
                format!("write `level:` with one of: {}", LEVELS.join(", ")),
            );
        }
    }
}

fn authentication(check: &mut Check<'_>) {
    const PATH: &str = "apiServer.authentication";
    let Some(authentication) = &check.declaration.cluster.api_server.authentication else {
        return;
    };
    for (index, issuer) in authentication.jwt.iter().enumerate() {
        let path = format!("{PATH}.jwt[{index}]");
        let url = issuer.get("issuer").and_then(|issuer| issuer.get("url"));
        if !url
            .and_then(Value::as_str)
            .is_some_and(|url| url.starts_with("https://"))
        {
            check.cluster(
                &path,
                "the issuer has no https URL",
                "write `issuer: {url: https://…, audiences: […]}`",
            );
        }
        let audiences = issuer
            .get("issuer")
            .and_then(|issuer| issuer.get("audiences"));
        if audiences
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            check.cluster(
                &path,
                "the issuer has no audiences, so the API server would not start",
                "write `issuer: {url: https://…, audiences: […]}`",
            );
        }
    }
    let Some(anonymous) = &authentication.anonymous else {
        return;
    };
    let path = format!("{PATH}.anonymous");
    if anonymous.get("enabled") != Some(&Value::Bool(true)) {
        check.cluster(&path, NO_PROBES, HEALTH_ONLY);
        return;
    }
    let Some(conditions) = anonymous.get("conditions").and_then(Value::as_array) else {
        return;
    };
    let allows = |path: &str| {
        conditions
            .iter()
            .any(|condition| condition.get("path").and_then(Value::as_str) == Some(path))
    };
    let is_probed = allows("/livez") && allows("/readyz");
    if !conditions.is_empty() && !is_probed {
        check.cluster(&path, NO_PROBES, HEALTH_ONLY);
    }
}

/// The consequence of an API server that answers no probe.
pub(super) const NO_PROBES: &str = "without anonymous requests no probe reaches the API server: the kubelet would restart it again and again, and no host would hold the VIP";
/// The remedy.
const HEALTH_ONLY: &str =
    "allow them for health only: `{enabled: true, conditions: [{path: /livez}, {path: /readyz}]}`";

fn admission(check: &mut Check<'_>) {
    const PATH: &str = "apiServer.admission";
    let cluster = &check.declaration.cluster;
    let admission = &cluster.api_server.admission;
    let mut names = BTreeSet::new();
    if cluster.pod_security().is_some() {
        names.insert("PodSecurity");
    }
    for (index, plugin) in admission.plugins.iter().enumerate() {
        let name = plugin.name.as_str();
        if !names.insert(name) {
            let instead = match name {
                "PodSecurity" => "write `apiServer.admission.podSecurity` instead",
                _ => "remove one of them",
            };
            check.cluster(
                &format!("{PATH}.plugins[{index}].name"),
                format!("the plugin `{name}` is configured twice"),
                instead,
            );
        }
    }
    for (index, name) in admission.disable.iter().enumerate() {
        let path = format!("{PATH}.disable[{index}]");
        if name == "NodeRestriction" {
            check.cluster(
                &path,
                "without `NodeRestriction` each kubelet could change every other node",
                "remove it",
            );
        } else if admission.enable.contains(name) {
            check.cluster(
                &path,
                format!("`{name}` is enabled and disabled"),
                "remove it from one of the two lists",
            );
        }
    }
    if let Some(standard) = &admission.pod_security {
        let version = standard.version.as_str();
        let is_minor = |version: &str| {
            let parts = version.strip_prefix("v1.");
            parts
                .is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()))
        };
        if version != "latest" && !is_minor(version) {
            check.cluster(
                &format!("{PATH}.podSecurity.version"),
                format!("`{version}` is not a version of the Pod Security Standards"),
                "write latest, or a minor release such as v1.36",
            );
        }
    }
}

/// Kernel parameters without which a kubelet with `protectKernelDefaults` does not start.
fn kernel(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    if cluster.kubelet_config().get("protectKernelDefaults") != Some(&json!(true)) {
        return;
    }
    for (key, value) in &cluster.host.sysctls {
        let dotted = key.replace('/', ".");
        let mut known = KUBELET_SYSCTLS.iter();
        let wanted = known.find(|(name, _)| *name == dotted);
        let (Some((_, wanted)), Some(value)) = (wanted, value) else {
            continue;
        };
        if value.trim() != *wanted {
            check.cluster(
                &join("host.sysctls", key),
                format!("with `protectKernelDefaults` the kubelet does not start unless {dotted} is {wanted}"),
                "remove it, or write `kubelet.config.protectKernelDefaults: false`",
            );
        }
    }
}

/// The volumes and mounts of kubeadm's static pods, and Halite's own.
const TAKEN_NAMES: [&str; 11] = [
    "ca-certs",
    "k8s-certs",
    "kubeconfig",
    "flexvolume-dir",
    "etc-ca-certificates",
    "usr-local-share-ca-certificates",
    "usr-share-ca-certificates",
    "etc-pki-ca-trust",
    "etc-pki-tls-certs",
    OWN_VOLUMES[0],
    OWN_VOLUMES[1],
];
const TAKEN_PATHS: [&str; 12] = [
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/scheduler.conf",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    "/etc/kubernetes/pki",
    DIRECTORY,
    AUDIT_DIRECTORY,
];

fn volumes(check: &mut Check<'_>, section: &str, volumes: &[ExtraVolume]) {
    let (mut names, mut paths) = (BTreeSet::from(TAKEN_NAMES), BTreeSet::from(TAKEN_PATHS));
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("{section}.extraVolumes[{index}]");
        if volume.name.contains('.') || volume.name.len() > 63 {
            check.cluster(
                &format!("{path}.name"),
                format!("`{}` is not a name of a volume", volume.name),
                "write at most 63 letters, digits and `-`, without dots",
            );
        } else if !names.insert(&volume.name) {
            check.cluster(
                &format!("{path}.name"),
                format!("the pod has a volume `{}` already", volume.name),
                "take another name",
            );
        }
        if !paths.insert(volume.mount_path.trim_end_matches('/')) {
            check.cluster(
                &format!("{path}.mountPath"),
                format!("the pod mounts {} already", volume.mount_path),
                "mount it at another path",
            );
        }
    }
}

fn patches(check: &mut Check<'_>, section: &str, patches: &[Patch]) {
    for (index, patch) in patches.iter().enumerate() {
        known_keys(
            check,
            &format!("{section}.patches[{index}]"),
            patch,
            &["metadata", "spec"],
        );
        for (key, value) in patch {
            directives(
                check,
                &format!("{section}.patches[{index}].{key}"),
                key,
                value,
            );
        }
    }
}

/// The lists of a pod whose elements have a key (states/src/template/patch.rs, `MERGE_KEYS`).
const KEYED_LISTS: [&str; 10] = [
    "containers",
    "env",
    "hostAliases",
    "imagePullSecrets",
    "initContainers",
    "ports",
    "topologySpreadConstraints",
    "volumeDevices",
    "volumeMounts",
    "volumes",
];

/// Refuses the directives that have no effect: each but `$patch: delete` in an element of a list
/// that is merged by a key. `name` is the name of the field with this value.
fn directives(check: &mut Check<'_>, path: &str, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => fields_of(check, path, fields, false),
        Value::Array(elements) => {
            let is_keyed = KEYED_LISTS.contains(&name);
            for (index, element) in elements.iter().enumerate() {
                if let Value::Object(fields) = element {
                    fields_of(check, &format!("{path}[{index}]"), fields, is_keyed);
                }
            }
        }
        _ => {}
    }
}

fn fields_of(check: &mut Check<'_>, path: &str, fields: &Map<String, Value>, is_keyed: bool) {
    for (key, value) in fields {
        let path = join(path, key);
        if !key.starts_with('$') {
            directives(check, &path, key, value);
        } else if !is_keyed || key != "$patch" || value != "delete" {
            check.cluster(
                &path,
                format!("the directive `{key}` has no effect here"),
                "the only one is `$patch: delete`, in an element of a list that Kubernetes merges by a key, such as `volumeMounts`",
            );
        }
    }
}

fn known_keys(check: &mut Check<'_>, path: &str, given: &Map<String, Value>, known: &[&str]) {
    for key in given.keys().filter(|key| !known.contains(&key.as_str())) {
        check.cluster(
            &format!("{path}.{key}"),
            format!("unknown key `{key}`"),
            format!("the keys here are: {}", known.join(", ")),
        );
    }
}

/// Returns whether a flag has a value that Go reads as false (`strconv.ParseBool`).
pub(super) fn is_off(flags: &Flags, name: &str) -> bool {
    let value = flags.get(name).map_or("", |value| value.last());
    matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}
