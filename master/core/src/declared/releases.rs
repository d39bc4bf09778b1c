//! The bundle of each host: compiles a minion from another bundle than the recorded one, and
//! records the change.

mod back;

use std::cmp::Ordering;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halite_document::Problem;
use halite_errors::chain;
use halite_names::{BundleVersion, NodeName};
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::node::node_block;
use halite_pillar::release::{Release, is_next_minor, minor, order};
use halite_pillar::resolve::{cluster_block, record, with_kubernetes_version};
use halite_pillar::validate::{Context, validate};
use halite_proto::ids::MinionId;

use super::bundle::InUse;
use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::ca::files;
use crate::refusal::Refusal;

impl Declarations {
    /// A snapshot, but with another bundle of the site for one minion: for all of its states, which
    /// then must fit the versions of the other hosts, or for some.
    ///
    /// # Errors
    /// All problems of all documents; or the bundle cannot be read, or the cluster cannot be
    /// upgraded to it, or others must have it first.
    pub async fn with_bundle(
        &self,
        snapshot: &Snapshot,
        minion: &MinionId,
        (bundle, direction): (&BundleVersion, Direction),
        part: BundlePart,
    ) -> Result<Arc<Snapshot>, Refusal> {
        let release = self.allowed(snapshot, bundle, direction).await?;
        let mut declaration = snapshot.declaration().clone();
        declaration.set_release(minion, &release);
        if part == BundlePart::Whole {
            let problems = validate(&declaration, &Context::default());
            if !problems.is_empty() {
                let why = Refusal::from_problems(&problems).message;
                return Err(Refusal::conflict(format!(
                    "cannot give {minion} the bundle {bundle} now: {why}"
                )));
            }
        }
        self.reader.of(declaration).await
    }

    /// The release of a bundle to which the cluster can be upgraded, or can return.
    ///
    /// # Errors
    /// The bundle cannot be read, or the cluster cannot be upgraded or return to it.
    pub async fn allowed(
        &self,
        snapshot: &Snapshot,
        bundle: &BundleVersion,
        direction: Direction,
    ) -> Result<Release, Refusal> {
        let read = self.reader.bundle(bundle).await?;
        match direction {
            Direction::Forward => allowed(snapshot.declaration(), snapshot.in_use()?, &read.in_use),
            Direction::Back => back::may_return(snapshot, &read.in_use),
        }
    }

    /// Records that a minion has a bundle. For `master`, the cluster document records it as the one
    /// in use, and each host keeps the bundle that it has.
    ///
    /// # Errors
    /// The bundle or a document cannot be read, or a document cannot be written.
    pub async fn record_release(
        &self,
        minion: &MinionId,
        bundle: &BundleVersion,
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let read = self.reader.bundle(bundle).await?;
        let release = release(&read.in_use)?;
        let (config_dir, minion) = (self.config_dir().to_owned(), minion.clone());
        in_background(move || write_release(&config_dir, &minion, &release)).await
    }
}

/// The direction in which hosts change their bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// To a newer bundle.
    #[default]
    Forward,
    /// To the previous bundle, before the upgrade has ended.
    Back,
}

/// The states of a minion that come from another bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundlePart {
    /// All of them, after which the minion has the bundle.
    Whole,
    /// Some of them.
    Some,
}

fn release(bundle: &InUse) -> Result<Release, Refusal> {
    let facts = &bundle.facts;
    let version = facts.version.parse();
    Ok(Release {
        bundle: version.map_err(|error| Refusal::invalid(chain(&error)))?,
        kubernetes: facts.kubernetes.clone(),
    })
}

/// Checks an upgrade of the cluster from one bundle to another.
fn allowed(declaration: &Declaration, from: &InUse, to: &InUse) -> Result<Release, Refusal> {
    let release = release(to)?;
    let refuse = |why: String| {
        Err(Refusal::conflict(format!(
            "cannot upgrade to the bundle {}: {why}",
            release.bundle
        )))
    };
    if declaration.cluster_release().is_none() {
        return refuse(
            "the cluster document records no bundle; `ctl bundle use` records the hosts' current one"
                .to_owned(),
        );
    }
    let minions = || {
        let hosts = declaration.nodes.keys().map(NodeName::as_str);
        let all = hosts.chain([halite_names::MASTER]);
        all.map(|minion| (declaration.kubernetes_for(minion), minion))
    };
    let by_version = |(one, _): &(&str, &str), (other, _): &(&str, &str)| order(one, other);
    let (newest, _) = minions().max_by(by_version).unwrap_or_default();
    let (oldest, behind) = minions().min_by(by_version).unwrap_or_default();
    let gets = minor(&release.kubernetes);
    if gets != minor(oldest)
        && !is_next_minor(&release.kubernetes, oldest)
        && order(&release.kubernetes, newest).is_gt()
    {
        let kubernetes = &release.kubernetes;
        return refuse(if minor(oldest) == minor(newest) {
            format!(
                "it has Kubernetes {kubernetes}, and this cluster has {newest}; no minor version can be skipped: upgrade to the one \
                 after {} first",
                minor(newest)
            )
        } else {
            let behind = match behind {
                halite_names::MASTER => "the cluster's objects still have".to_owned(),
                host => format!("{host} still has"),
            };
            format!(
                "it has Kubernetes {kubernetes}, and {behind} {oldest}; no minor version can be skipped: finish the upgrade to {} first",
                minor(newest)
            )
        });
    }
    if order(&release.kubernetes, newest) == Ordering::Less {
        return refuse(format!(
            "its Kubernetes {} is older than {newest}, which this cluster has; Kubernetes cannot be downgraded; `ctl upgrade back` returns \
             the hosts of an upgrade that has not ended",
            release.kubernetes
        ));
    }
    let built = |bundle: &InUse| bundle.manifest.built.parse::<jiff::Timestamp>().ok();
    if built(to) < built(from) {
        return refuse(format!(
            "it was built at {}, before the bundle in use ({}, {}); use one that was built later",
            to.manifest.built, from.facts.version, from.manifest.built
        ));
    }
    let cluster = &declaration.cluster;
    let declared = &cluster.kubernetes.version;
    let keeps_minor = minor(declared) == gets;
    let names_patch = minor(declared) != declared.trim_start_matches('v');
    if names_patch && !to.facts.satisfies(declared) {
        return refuse(format!(
            "the cluster document declares kubernetes.version {declared}, and the bundle has {}; declare {}, which allows each of \
             its patch releases",
            release.kubernetes,
            minor(declared)
        ));
    }
    if !keeps_minor {
        // The document gets it with the objects of the cluster: too late for a problem with it.
        with_kubernetes_version(&cluster.source.file, cluster.source.text(), &gets)
            .map_err(|problem| Refusal::from_problems(&[problem]))?;
    }
    fits_all(declaration, release, &to.facts)
}

/// Checks the documents as they are once all hosts and the cluster have a release.
fn fits_all(
    declaration: &Declaration,
    release: Release,
    bundle: &BundleFacts,
) -> Result<Release, Refusal> {
    let mut after = declaration.clone();
    let names: Vec<String> = after.nodes.keys().map(ToString::to_string).collect();
    after.set_release(halite_names::MASTER, &release);
    for name in names {
        after.set_release(&name, &release);
    }
    let context = Context {
        bundle: Some(bundle),
        ..Context::default()
    };
    let problems = validate(&after, &context);
    if problems.is_empty() {
        Ok(release)
    } else {
        Err(Refusal::from_problems(&problems))
    }
}

/// Writes the documents that change when a minion gets a release. At any moment the documents match
/// the hosts: hosts that stay behind are recorded before the cluster moves on, and records that
/// only repeat the cluster's are written last.
fn write_release(config_dir: &Path, minion: &MinionId, release: &Release) -> Result<(), Refusal> {
    let refused = |problems: Vec<Problem>| Refusal::from_problems(&problems);
    let mut texts = Texts::from_dir(config_dir).map_err(refused)?;
    let before = load(&texts, &Context::default()).map_err(refused)?;
    let mut after = before.clone();
    after.set_release(minion, release);
    let (mut first, mut last): (Vec<(PathBuf, String)>, Vec<_>) = Default::default();
    let written = |problem: Problem| Refusal::invalid(problem.to_string());
    for (name, node) in &after.nodes {
        let same = before.nodes.get(name).map(|before| &before.resolved) == Some(&node.resolved);
        let Some(resolved) = node.resolved.as_ref().filter(|_| !same) else {
            continue;
        };
        let file = &node.source.file;
        let text = record(file, node.source.text(), &node_block(resolved)).map_err(written)?;
        if let Some(document) = texts.nodes.iter_mut().find(|text| text.file == *file) {
            document.text.clone_from(&text);
        }
        let group = if resolved.bundle.is_some() {
            &mut first
        } else {
            &mut last
        };
        group.push((file.into(), text));
    }
    if before.cluster.resolved != after.cluster.resolved
        && let Some(resolved) = &after.cluster.resolved
    {
        let document = &mut texts.cluster;
        let text = record(&document.file, &document.text, &cluster_block(resolved));
        document.text = text.map_err(written)?;
        let declared = &after.cluster.kubernetes.version;
        if before.cluster.kubernetes.version != *declared {
            let (file, text) = (&document.file, &document.text);
            document.text = with_kubernetes_version(file, text, declared).map_err(written)?;
        }
        first.push((document.file.as_str().into(), document.text.clone()));
    }
    load(&texts, &Context::default()).map_err(refused)?;
    for (path, text) in first.iter().chain(&last) {
        write(path, text)?;
        tracing::info!(%minion, bundle = %release.bundle, document = %path.display(), "bundle recorded");
    }
    Ok(())
}

/// Replaces a document; its mode stays, because the cluster document may have secrets.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Refusal> {
    let mode = std::fs::metadata(path).map_or(0o600, |data| data.permissions().mode() & 0o777);
    files::write(path, text, mode).map_err(|error| Refusal::internal(chain(&error)))
}
