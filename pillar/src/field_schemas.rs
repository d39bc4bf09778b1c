//! JSON Schemas of fields whose type alone does not say enough: formats, enumerations and mappings.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::role::Role;

/// The `apiVersion` of both documents.
pub(crate) const API_VERSION: &str = "halite/v1";

macro_rules! texts {
    ($($function:ident $optional:ident $format:literal),* $(,)?) => {$(
        pub(crate) fn $function(_: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": "string", "format": $format})
        }
        pub(crate) fn $optional(_: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": ["string", "null"], "format": $format})
        }
    )*};
}

texts!(
    subdomain optional_subdomain "dns-subdomain",
    address optional_address "ipv4-address",
);

pub(crate) fn optional_bundle_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "bundle-version"})
}

pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "ipv4-network"})
}

pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "ipv4-network"}, "minItems": 1})
}

pub(crate) fn optional_cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["array", "null"], "items": {"type": "string", "format": "ipv4-network"}})
}

pub(crate) fn optional_etcd_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "etcd-id"})
}

pub(crate) fn optional_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "kubernetes-version"})
}

pub(crate) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "kubernetes-version"})
}

pub(crate) fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "label-key"})
}

pub(crate) fn label_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "label-value"})
}

pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "label-key"},
        "additionalProperties": {"type": "string", "format": "label-value"},
    })
}

pub(crate) fn flags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "flag-name"},
        "additionalProperties": {"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1},
    })
}

pub(crate) fn sysctls(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "sysctl-key"},
        "additionalProperties": {"type": ["string", "null"]},
    })
}

pub(crate) fn addresses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "ipv4-address"}})
}

pub(crate) fn zones(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "dns-subdomain"},
        "additionalProperties": {
            "type": "array", "items": {"type": "string", "format": "ipv4-address"}, "minItems": 1,
        },
    })
}

pub(crate) fn sans(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "certificate-name"}})
}

pub(crate) fn modules(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "module-name"}})
}

pub(crate) fn packages(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "package-name"}})
}

pub(crate) fn standbys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "array"],
        "format": "auto",
        "items": {"type": "string", "format": "dns-subdomain"},
    })
}

pub(crate) fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "dns-subdomain"}})
}

pub(crate) fn certificates(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "certificates-name"},
        "additionalProperties": {"type": "string"},
    })
}

pub(crate) fn no_proxy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "no-proxy"}})
}

pub(crate) fn time_servers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "time-server"}})
}

pub(crate) fn users(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "user-name"},
        "additionalProperties": {"type": "string", "format": "secret-name"},
    })
}

pub(crate) fn optional_user(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "user-name"})
}

pub(crate) fn secret_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "secret-name"})
}

pub(crate) fn optional_secret_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "secret-name"})
}

pub(crate) fn header_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "header-name"})
}

pub(crate) fn optional_interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "interval"})
}

pub(crate) fn sink_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["alertmanager", "webhook", "plain"]})
}

pub(crate) fn notice_severity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["warning", "failure"]})
}

pub(crate) fn etcd_endpoints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "etcd-endpoint"}, "minItems": 1})
}

pub(crate) fn path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "absolute-path"})
}

pub(crate) fn time_of_day(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "time-of-day"})
}

pub(crate) fn times_of_day(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "times-of-day"})
}

pub(crate) fn recipients(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "age-recipient"}})
}

pub(crate) fn day_of_week(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "day-of-week"})
}

pub(crate) fn weekly(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "weekly"})
}

pub(crate) fn batch(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["integer", "string"], "minimum": 1, "maximum": 65535, "format": "batch"})
}

pub(crate) fn percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "percent"})
}

fn role_names() -> Vec<&'static str> {
    Role::ALL.iter().map(|role| role.as_str()).collect()
}

pub(crate) fn roles(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "enum": role_names()}, "minItems": 1})
}

pub(crate) fn roles_optional(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "enum": role_names()}})
}

pub(crate) fn plugin(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["flannel", "none"]})
}

pub(crate) fn pods_to_hosts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["deny", "allow"]})
}

pub(crate) fn renewal(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["automatic", "report"]})
}

pub(crate) fn plane_taint(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["always", "auto"]})
}

pub(crate) fn local_proxy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["auto", "always", "never"]})
}

pub(crate) fn etcd_placement(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["stacked", "dedicated", "external"]})
}

pub(crate) fn optional_etcd_placement(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "enum": ["stacked", "dedicated", "external"]})
}

pub(crate) fn etcd_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["static-pod", "host-service"]})
}

pub(crate) fn proxy_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["nftables", "iptables"]})
}

pub(crate) fn profile(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["standard", "hardened"]})
}

pub(crate) fn taint_effect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]})
}

pub(crate) fn api_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "const": API_VERSION})
}

pub(crate) fn kind_cluster(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "const": "Cluster"})
}

pub(crate) fn kind_host_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "const": "HostList"})
}

pub(crate) fn kind_node(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "const": "Node"})
}
