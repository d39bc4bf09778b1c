//! The space for the next bundle and its images.

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_host_reports::health::HostHealth;
use halite_orchestrate::host_findings::{Against, finding};
use halite_pillar::masters::MasterPart;
use halite_pillar::role::Role;

use crate::operator::status::Inspection;

/// containerd keeps an image compressed and unpacked: less than this multiple of its compressed
/// size is probably too little. It is never certain: a host pulls only its own images, and may have
/// some of them.
const UNPACKED: u64 = 3;

/// The findings about hosts that have reported their free space.
///
/// # Errors
/// A bundle cannot be read.
pub(super) async fn findings(
    against: &Against<'_>,
    inspection: &Inspection,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let declarations = against.jobs.declarations();
    let new = declarations
        .new_bytes(against.snapshot, against.bundle)
        .await?;
    let declaration = against.snapshot.declaration();
    let mut found = Vec::new();
    for host in against.hosts_that_change() {
        let (Some(node), Some(health)) = (
            declaration.nodes.get(host.as_str()),
            inspection.minions.get(host.as_str()),
        ) else {
            continue;
        };
        if node.runs_containers() {
            found.extend(images(host, health, new.images));
        }
        // The master's host has it. Whether another one has it is not known here.
        let part = declaration.part(host);
        let copies = node.has(Role::Registry) || part == Some(MasterPart::Standby);
        if copies && part != Some(MasterPart::Master) {
            found.extend(bundle(host, health, new.bundle));
        }
    }
    Ok(found)
}

fn images(host: &str, health: &HostHealth, needed: u64) -> Option<UpgradeFinding> {
    let free = health.images_free?;
    if free >= needed.saturating_mul(UNPACKED) {
        return None;
    }
    let message = format!(
        "{} MiB are free for images on {host}, and all new ones have {} MiB compressed; the host pulls those that it runs \
         and does not have",
        free >> 20,
        needed.div_ceil(1 << 20)
    );
    let remedy = "free space on the file system of /var/lib/containerd there";
    Some(finding(
        UpgradeSeverity::Warning,
        UpgradeCheck::Disk,
        Some(host),
        message,
        remedy,
    ))
}

fn bundle(host: &str, health: &HostHealth, needed: u64) -> Option<UpgradeFinding> {
    let free = health.bundles_free.filter(|free| *free < needed)?;
    let message = format!(
        "{} MiB are free for bundles on {host}, and the new one has {} MiB, unless it is there already",
        free >> 20,
        needed.div_ceil(1 << 20)
    );
    let remedy = "`ctl bundle remove` an unused one, or free space on the file system of /var/lib/halite there";
    Some(finding(
        UpgradeSeverity::Warning,
        UpgradeCheck::Disk,
        Some(host),
        message,
        remedy,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_for_all_new_images_is_a_warning() {
        let with = |free| HostHealth {
            images_free: free,
            ..HostHealth::default()
        };
        let severity = |free| images("w-1", &with(free), 100 << 20).map(|found| found.severity);
        assert_eq!(severity(None), None);
        assert_eq!(severity(Some(300 << 20)), None);
        assert_eq!(severity(Some(299 << 20)), Some(UpgradeSeverity::Warning));
        assert_eq!(severity(Some(99 << 20)), Some(UpgradeSeverity::Warning));
        let text = images("w-1", &with(Some(99 << 20)), 100 << 20).unwrap();
        assert_eq!(
            text.message,
            "99 MiB are free for images on w-1, and all new ones have 100 MiB compressed; the host pulls those that it runs and does not have"
        );
    }

    #[test]
    fn too_little_space_for_a_bundle_is_a_warning() {
        let with = |free| HostHealth {
            bundles_free: free,
            ..HostHealth::default()
        };
        assert_eq!(bundle("r-1", &with(Some(1 << 30)), 1 << 30), None);
        let found = bundle("r-1", &with(Some(1 << 20)), 1 << 30).unwrap();
        assert_eq!(found.severity, UpgradeSeverity::Warning);
    }
}
