//! The site registry, to which clients can push images. Bundles are served by other servers, which
//! never write to them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{field_schemas, formats};

/// The port of the site registry.
pub const PORT: u16 = 4552;
/// The directory of its images on its host.
pub const DATA: &str = "/var/lib/halite/registry";
/// The package with its program.
pub const PACKAGE: &str = "distribution-registry";
/// Pillar path of the file with its users, for its own host.
pub const HTPASSWD: &str = "siteRegistry.htpasswd";
/// Pillar path of the name and password with which hosts pull (RFC 7617), for all hosts that run
/// containers.
pub const PULL: &str = "siteRegistry.pull";

/// Minimum number of characters of a password.
pub const SHORTEST_PASSWORD: usize = 8;
/// Bytes of a password that bcrypt uses.
pub const LONGEST_PASSWORD: usize = 72;
/// The site registry: a registry for the site's own images, to which clients can push.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SiteRegistry {
    /// `true`: the site has a registry. It needs at least one user.
    pub enabled: bool,
    /// The host that runs it and stores its images. Default: the first host. A change does not move
    /// the images.
    #[schemars(schema_with = "field_schemas::optional_subdomain")]
    pub node: Option<String>,
    /// The users that may push and pull: each name, with the name in `secrets` of its password,
    /// which has at least 8 characters. That secret needs no roles or nodes.
    #[schemars(schema_with = "field_schemas::users")]
    pub users: BTreeMap<String, String>,
    /// The user whose password every host uses to pull. Without one, pods need `imagePullSecrets`.
    #[schemars(schema_with = "field_schemas::optional_user")]
    pub pull_as: Option<String>,
    /// The daily backup of its images, on its own host.
    ///
    /// Without another disk at `directory`, a backup protects against mistakes, and not against the
    /// loss of the disk.
    pub backup: RegistryBackup,
}

/// The daily backup of the site registry's images, on its own host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RegistryBackup {
    /// The directory of the backups. Mount another disk there, so that the backups survive the loss
    /// of the images' disk.
    #[schemars(schema_with = "field_schemas::path")]
    pub directory: String,
    /// The time of day, by the host's clock.
    #[schemars(schema_with = "field_schemas::time_of_day")]
    pub at: String,
    /// The number of backups to keep. Older ones are removed.
    #[schemars(range(min = 1, max = 1000))]
    pub keep: u32,
    /// The day of the week on which the newest backup is read completely, after that day's backup;
    /// or `daily`, or `never`.
    #[schemars(schema_with = "field_schemas::day_of_week")]
    pub verify: String,
}

/// The interval between backups, in milliseconds.
pub const BACKUP_PERIOD: i64 = 24 * 60 * 60 * 1000;

impl RegistryBackup {
    /// Returns whether backups are verified on schedule.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verify != formats::NEVER
    }
}

impl Default for RegistryBackup {
    fn default() -> Self {
        let (directory, at) = (
            "/var/backups/halite/registry".to_owned(),
            "02:30".to_owned(),
        );
        Self {
            directory,
            at,
            keep: 7,
            verify: "Sun".to_owned(),
        }
    }
}
