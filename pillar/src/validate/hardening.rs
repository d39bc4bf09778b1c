//! Hardening of the control plane: fields that set the same thing, and contents that an API server
//! would refuse when it starts.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Check;
use crate::component::{ExtraVolume, Patch};
use crate::etcd::Mode;
use crate::flags::Flags;
use crate::view::hardening::{AUDIT_DIRECTORY, DIRECTORY, OWN_VOLUMES};

pub(super) fn check(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    both(check);
    audit(check);
    authentication(check);
    admission(check);
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
    if cluster.etcd.mode == Mode::HostService && !cluster.etcd.patches.is_empty() {
        check.cluster(
            "etcd.patches",
            "the patches have no effect with `mode: host-service`: there is no static pod",
            "remove them, and write `etcd.extraArgs`",
        );
    }
}

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
            check.cluster(
                &format!("apiServer.extraArgs.{flag}"),
                format!("`apiServer.{field}` sets `{flag}` too"),
                format!("remove it, and write `apiServer.{field}`"),
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

/// The volumes and mounts of kubeadm's static pods, and Halite's own.
const TAKEN_NAMES: [&str; 6] = [
    "ca-certs",
    "k8s-certs",
    "kubeconfig",
    "flexvolume-dir",
    OWN_VOLUMES[0],
    OWN_VOLUMES[1],
];
const TAKEN_PATHS: [&str; 4] = [
    "/etc/ssl/certs",
    "/etc/kubernetes/pki",
    DIRECTORY,
    AUDIT_DIRECTORY,
];

fn volumes(check: &mut Check<'_>, section: &str, volumes: &[ExtraVolume]) {
    let (mut names, mut paths) = (BTreeSet::from(TAKEN_NAMES), BTreeSet::from(TAKEN_PATHS));
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("{section}.extraVolumes[{index}]");
        if !names.insert(&volume.name) {
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
