//! A control-plane component: its flags, the files of the host that it sees, and patches of its
//! static pod.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::field_schemas;
use crate::flags::Flags;

/// A control-plane component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Component {
    /// Flags of the program, without dashes. They are added to those of its static pod, or replace
    /// them. A list gives a flag several times.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: Flags,
    /// Directories and files of the host that the pod mounts in addition to its own.
    pub extra_volumes: Vec<ExtraVolume>,
    /// Strategic merge patches of its static pod, applied in order.
    #[schemars(schema_with = "patches")]
    pub patches: Vec<Patch>,
}

/// A strategic merge patch of a static pod.
pub type Patch = Map<String, Value>;

/// A directory or file of the host that a static pod mounts, as in kubeadm's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtraVolume {
    /// The name of the volume.
    #[schemars(schema_with = "field_schemas::subdomain")]
    pub name: String,
    /// The path on the host.
    #[schemars(schema_with = "field_schemas::path")]
    pub host_path: String,
    /// The path in the pod.
    #[schemars(schema_with = "field_schemas::path")]
    pub mount_path: String,
    /// Forbids the pod to write.
    #[serde(default)]
    pub read_only: bool,
    /// The kind of file that must be at the path on the host, as in a `hostPath` volume. Default:
    /// any, and the path must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "path_type")]
    pub path_type: Option<String>,
}

fn path_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "enum": ["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"],
    })
}

/// The schema of a list of patches.
pub(crate) fn patches(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "additionalProperties": true}})
}
