//! All objects of a cluster, by their uids: a restore brings back those of the backup, and makes no
//! others.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::BACK;

/// Kinds of which a running cluster makes and deletes objects by itself, also between the backup
/// and the comparison. All others must be the same, including these: a Node and its `CSINode`,
/// because a kubelet finds the one of its host, and no host leaves in that time; a `ReplicaSet` and
/// a `ControllerRevision`, because no template changes while the declaration is that of the backup.
const PASSING: &[&str] = &[
    // Kubelets make them when they renew a certificate, and an hour later they are deleted.
    "certificatesigningrequests.certificates.k8s.io",
    "podcertificaterequests.certificates.k8s.io",
    // Not stored: the API server queries them.
    "componentstatuses",
    // Those of a Service follow its pods, and those of the API the running API servers.
    "endpoints",
    "endpointslices.discovery.k8s.io",
    // They expire after an hour, and each start of a program makes others.
    "events",
    "events.events.k8s.io",
    // A completed one is deleted after a time; kubeadm's check of an upgrade leaves one.
    "jobs.batch",
    // API servers hold them, and those of a host that is off are deleted.
    "leasecandidates.coordination.k8s.io",
    "leases.coordination.k8s.io",
    "storageversions.internal.apiserver.k8s.io",
    // The kubelet of the restored host recreates those of its static pods, and pods of a host that
    // is off are evicted after five minutes. The pod on the worker is compared separately.
    "pods",
];

/// The group whose objects are computed on request.
const MEASURED: &str = ".metrics.k8s.io";

/// Prefix of the names of tokens with which kubeadm lets a host join. They are deleted when they
/// have expired.
const TOKEN: &str = "Secret kube-system/bootstrap-token-";

/// The columns that are read of each object.
const COLUMNS: &str = "-o=custom-columns=kind:.kind,namespace:.metadata.namespace,name:.metadata.name,\
                       uid:.metadata.uid,deleted:.metadata.deletionTimestamp";

/// Minimum number of objects of a cluster: Kubernetes alone has more roles and bindings.
const FEWEST: usize = 100;

/// Lines of a difference that are displayed.
const SHOWN: usize = 40;

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    uid: String,
    /// Set while its deletion waits for something.
    is_leaving: bool,
}

/// Objects by kind, namespace and name.
type List = BTreeMap<String, Found>;

/// The objects right before and right after a backup was made. Those in both are in the backup; an
/// object that appeared or disappeared in that moment may be.
pub(super) struct Objects {
    /// The kinds, as kubectl takes them.
    kinds: String,
    before: List,
    after: List,
}

impl Objects {
    /// Makes a backup between two lists of all objects.
    pub(super) fn around<T>(
        cluster: &Cluster,
        back_up: impl FnOnce() -> Result<T>,
    ) -> Result<(Self, T)> {
        let kinds = wait::until("the kinds of objects", BACK, || kinds(cluster))?;
        let before = wait::until("a list of all objects", BACK, || list(cluster, &kinds))?;
        let made = back_up()?;
        let after = wait::until("a list of all objects", BACK, || list(cluster, &kinds))?;
        let objects = Self {
            kinds,
            before,
            after,
        };
        Ok((objects, made))
    }

    /// Waits until the cluster has the objects of the backup, and no others.
    pub(super) fn are_back(&self, cluster: &Cluster) -> Result<()> {
        wait::until("the objects of the backup, and no others", BACK, || {
            let difference = self.difference(&list(cluster, &self.kinds)?);
            let shown: Vec<&str> = difference.iter().take(SHOWN).map(String::as_str).collect();
            ensure!(
                difference.is_empty(),
                "{} objects differ:\n  {}",
                difference.len(),
                shown.join("\n  ")
            );
            Ok(())
        })
    }

    /// The objects that have changed, each with its change.
    fn difference(&self, now: &List) -> Vec<String> {
        let stayed = self.before.iter().filter(|(name, found)| {
            !found.is_leaving && self.after.get(name.as_str()) == Some(*found)
        });
        let changed = stayed.filter_map(|(name, was)| match now.get(name) {
            None => Some(format!("{name} is gone")),
            Some(is) if is.uid != was.uid => Some(format!(
                "{name} is another one: its uid was {}, and is {}",
                was.uid, is.uid
            )),
            Some(is) if is.is_leaving => Some(format!("{name} is being deleted")),
            Some(_) => None,
        });
        let is_known = |name: &str| self.before.contains_key(name) || self.after.contains_key(name);
        let added = now.keys().filter(|name| !is_known(name));
        changed
            .chain(added.map(|name| format!("{name} is new")))
            .collect()
    }
}

/// The kinds to compare.
fn kinds(cluster: &Cluster) -> Result<String> {
    let all = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    let is_compared = |kind: &&str| !PASSING.contains(kind) && !kind.ends_with(MEASURED);
    let kinds: Vec<&str> = all.lines().map(str::trim).filter(is_compared).collect();
    Ok(kinds.join(","))
}

fn list(cluster: &Cluster, kinds: &str) -> Result<List> {
    let found = parsed(&cluster.kubectl(&["get", kinds, "-A", "--no-headers", COLUMNS])?)?;
    ensure!(found.len() > FEWEST, "only {} objects", found.len());
    Ok(found)
}

/// The objects of kubectl's lines. Those without a namespace or a deletion have `<none>` there.
fn parsed(text: &str) -> Result<List> {
    let object = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().with_context(|| format!("no object: {line}"));
        let (kind, namespace, name) = (word()?, word()?, word()?);
        let key = match namespace {
            "<none>" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        };
        let uid = word()?.to_owned();
        let is_leaving = word()? != "<none>";
        Ok((key, Found { uid, is_leaving }))
    };
    let mut found = text.lines().map(object).collect::<Result<List>>()?;
    found.retain(|key, _| !key.starts_with(TOKEN));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
        Namespace   <none>      default  1  <none>\n\
        Secret      default     kept     2  <none>\n\
        ConfigMap   default     short    3  <none>\n\
        ConfigMap   default     leaving  4  2026-11-21T06:00:00Z\n\
        Secret      kube-system bootstrap-token-abcdef 5 <none>\n";
    const AFTER: &str = "\
        Namespace   <none>      default  1  <none>\n\
        Secret      default     kept     2  <none>\n\
        ConfigMap   default     new      6  <none>\n";

    fn difference(now: &str) -> Vec<String> {
        let objects = Objects {
            kinds: String::new(),
            before: parsed(BEFORE).unwrap(),
            after: parsed(AFTER).unwrap(),
        };
        objects.difference(&parsed(now).unwrap())
    }

    #[test]
    fn objects_that_changed_around_the_backup_may_exist_or_not() {
        for now in [BEFORE, AFTER] {
            assert_eq!(difference(now), Vec::<String>::new(), "{now}");
        }
    }

    #[test]
    fn a_lost_a_replaced_and_a_further_object_are_named() {
        let now = "\
            Secret    default kept  7 <none>\n\
            ConfigMap default later 8 <none>\n";
        assert_eq!(
            difference(now),
            [
                "Namespace default is gone",
                "Secret default/kept is another one: its uid was 2, and is 7",
                "ConfigMap default/later is new"
            ]
        );
        let leaving = AFTER.replace("kept     2  <none>", "kept 2 2026-11-21T06:00:00Z");
        assert_eq!(
            difference(&leaving),
            ["Secret default/kept is being deleted"]
        );
    }

    #[test]
    fn a_line_without_an_object_is_an_error() {
        assert!(parsed("Secret default kept").is_err());
    }
}
