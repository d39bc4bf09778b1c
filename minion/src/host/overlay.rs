//! Test mode: a host that predicts effects over another host, so that later checks see the results
//! of earlier ones as if they had been applied.
//!
//! The host below is never changed. Values that only apply can determine (content of a certificate,
//! files of a package) are [`KNOWN_AFTER_APPLY`], or missing while [`super::Host::uncertain`]
//! returns `true`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::accounts::PredictedAccounts;
use super::effect::{Command, Effect, Output, PackageOptions, Trust};
use super::overlay_files::{Covered, Files, PredictedEntry, PredictedPath};
use super::{
    FileKind, FirewallNames, FirewallView, Group, Host, HostFuture, HostResult, IpsetView,
    MountPoint, PackageManager, Stat, UnitState, User, beginning,
};

/// Stands for content and versions that only apply can determine.
pub const KNOWN_AFTER_APPLY: &str = "known after apply";

/// Predicted effects over `below`.
pub struct Overlay<'h> {
    pub(super) below: &'h dyn Host,
    predicted: Mutex<Predicted>,
    slept: AtomicI64,
    pub(super) assumed: AtomicBool,
    pub(super) any_predicted: AtomicBool,
}

#[derive(Default)]
pub(super) struct Predicted {
    pub files: Files,
    pub packages: BTreeMap<String, Option<String>>,
    pub repositories: bool,
    pub uncertain: bool,
    pub reloaded: bool,
    pub units: BTreeMap<String, UnitState>,
    pub accounts: PredictedAccounts,
    pub sysctls: BTreeMap<String, String>,
    pub modules: BTreeSet<String>,
    pub mounts: Vec<MountPoint>,
    pub unmounted: BTreeSet<String>,
    /// Mount points whose files changed with a predicted mount.
    pub covered: BTreeMap<String, Covered>,
    pub swaps_off: BTreeSet<String>,
    pub zones: BTreeMap<String, FirewallView>,
    pub policies: BTreeMap<String, FirewallView>,
    pub ipsets: BTreeMap<String, IpsetView>,
    pub images: BTreeSet<String>,
}

/// The place of a file's content.
enum Source {
    /// Here: the predicted content; `None` if no file exists.
    Predicted(Option<Vec<u8>>),
    /// The host below, at this path.
    Below(String),
}

impl<'h> Overlay<'h> {
    /// An overlay that has predicted nothing yet.
    #[must_use]
    pub fn new(below: &'h dyn Host) -> Self {
        Self {
            below,
            predicted: Mutex::default(),
            slept: AtomicI64::new(0),
            assumed: AtomicBool::new(false),
            any_predicted: AtomicBool::new(false),
        }
    }

    pub(super) fn predicted(&self) -> MutexGuard<'_, Predicted> {
        self.predicted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a file's content.
    async fn source(&self, path: &str) -> Source {
        let path = self.resolve(path, true).await;
        let known = self.predicted().files.get(&path);
        match known {
            PredictedPath::Entry(PredictedEntry {
                content: Some(content),
                ..
            }) => Source::Predicted(Some(content)),
            PredictedPath::Entry(PredictedEntry {
                stat:
                    Stat {
                        kind: FileKind::File,
                        ..
                    },
                ..
            })
            | PredictedPath::Below => Source::Below(path),
            PredictedPath::Entry(_) => Source::Predicted(None),
            PredictedPath::Gone => {
                self.note_covered(&path);
                Source::Predicted(None)
            }
        }
    }

    /// The answer of the host below. While the outcome of predicted effects is open, an error (no
    /// firewalld yet, no containerd yet) counts as absence.
    fn allow_missing<T: Default>(&self, answer: HostResult<T>) -> HostResult<T> {
        if !self.uncertain() {
            return answer;
        }
        Ok(answer.unwrap_or_else(|_| {
            self.assumed.store(true, Ordering::Relaxed);
            T::default()
        }))
    }

    /// Returns whether an answer since the last call was assumed because the host below could not
    /// be asked. A comment that follows from it says [`KNOWN_AFTER_APPLY`].
    pub fn take_assumed(&self) -> bool {
        self.assumed.swap(false, Ordering::Relaxed)
    }
}

impl Host for Overlay<'_> {
    fn stat<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Stat>>> {
        Box::pin(async move {
            if self.predicted().files.is_empty() {
                return self.below.stat(path).await;
            }
            let path = self.resolve(path, false).await;
            let known = self.predicted().files.get(&path);
            match known {
                PredictedPath::Entry(entry) => {
                    if self.predicted().covered.contains_key(&path) {
                        self.note_covered(&path);
                    }
                    Ok(Some(entry.stat))
                }
                PredictedPath::Gone => {
                    self.note_covered(&path);
                    Ok(None)
                }
                PredictedPath::Below => self.below.stat(&path).await,
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(async move {
            if self.predicted().files.is_empty() {
                return self.below.read(path).await;
            }
            match self.source(path).await {
                Source::Predicted(content) => Ok(content),
                Source::Below(path) => self.below.read(&path).await,
            }
        })
    }

    fn head<'a>(
        &'a self,
        path: &'a str,
        bytes: u64,
    ) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(async move {
            if self.predicted().files.is_empty() {
                return self.below.head(path, bytes).await;
            }
            match self.source(path).await {
                Source::Predicted(content) => Ok(content.map(|all| beginning(all, bytes))),
                Source::Below(path) => self.below.head(&path, bytes).await,
            }
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Vec<String>>> {
        Box::pin(async move {
            if self.predicted().files.is_empty() {
                return self.below.list(path).await;
            }
            let path = self.resolve(path, true).await;
            let known = self.predicted().files.get(&path);
            let mut names: BTreeSet<String> = match known {
                PredictedPath::Entry(PredictedEntry { fresh: true, .. }) | PredictedPath::Gone => {
                    self.note_covered(&path);
                    BTreeSet::new()
                }
                PredictedPath::Entry(_) | PredictedPath::Below => {
                    self.below.list(&path).await?.into_iter().collect()
                }
            };
            let (added, removed) = self.predicted().files.names(&path);
            names.extend(added);
            removed.iter().for_each(|name| {
                names.remove(name);
            });
            Ok(names.into_iter().collect())
        })
    }

    fn unit<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<UnitState>> {
        Box::pin(async move {
            let (predicted, reloaded) = {
                let predicted = self.predicted();
                (predicted.units.get(name).cloned(), predicted.reloaded)
            };
            if let Some(state) = predicted {
                return Ok(state);
            }
            let mut state = self.allow_missing(self.below.unit(name).await)?;
            if state.load == "not-found" || state.load.is_empty() {
                self.predict_unit(name, &mut state).await;
            }
            state.needs_reload &= !reloaded;
            Ok(state)
        })
    }

    fn packages(&self) -> HostFuture<'_, HostResult<Arc<BTreeMap<String, String>>>> {
        Box::pin(async move {
            let mut all = self.below.packages().await?;
            for (name, version) in &self.predicted().packages {
                let all = Arc::make_mut(&mut all);
                match version {
                    Some(version) => all.insert(name.clone(), version.clone()),
                    None => all.remove(name),
                };
            }
            Ok(all)
        })
    }

    fn cut_off_packages(&self) -> HostFuture<'_, HostResult<BTreeMap<String, String>>> {
        Box::pin(async move {
            let mut all = self.below.cut_off_packages().await?;
            let predicted = self.predicted();
            all.retain(|name, _| !predicted.packages.contains_key(name));
            Ok(all)
        })
    }

    fn removed_by<'a>(
        &'a self,
        install: &'a BTreeMap<String, Option<String>>,
        options: PackageOptions,
    ) -> HostFuture<'a, HostResult<BTreeSet<String>>> {
        Box::pin(async move {
            // The package manager of the host does not know predicted changes.
            let is_predicted = {
                let predicted = self.predicted();
                predicted.repositories || !predicted.packages.is_empty()
            };
            if is_predicted {
                return Ok(BTreeSet::new());
            }
            self.below.removed_by(install, options).await
        })
    }

    fn held_packages(&self) -> HostFuture<'_, HostResult<BTreeSet<String>>> {
        self.below.held_packages()
    }

    fn package_candidate<'a>(
        &'a self,
        name: &'a str,
        prefers_bundle: bool,
    ) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move {
            let candidate = self.below.package_candidate(name, prefers_bundle).await?;
            let open = self.predicted().repositories;
            Ok(candidate.or_else(|| open.then(|| KNOWN_AFTER_APPLY.to_owned())))
        })
    }

    fn package_provider<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move {
            let provider = self.below.package_provider(name).await?;
            let removed = |package: &String| self.predicted().packages.get(package) == Some(&None);
            Ok(provider.filter(|package| !removed(package)))
        })
    }

    fn package_manager(&self) -> HostFuture<'_, HostResult<PackageManager>> {
        self.below.package_manager()
    }

    fn user<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<User>>> {
        Box::pin(async move {
            let predicted = self.predicted().accounts.user(name);
            match predicted {
                Some(user) => Ok(user),
                None => {
                    let below = self.below.user(name).await?;
                    let accounts = &self.predicted().accounts;
                    Ok(below
                        .filter(|user| user.name == name || accounts.user(&user.name).is_none()))
                }
            }
        })
    }

    fn group<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<Group>>> {
        Box::pin(async move {
            let predicted = self.predicted().accounts.group(name);
            match predicted {
                Some(group) => Ok(group),
                None => {
                    let below = self.below.group(name).await?;
                    let accounts = &self.predicted().accounts;
                    Ok(below.filter(|group| {
                        group.name == name || accounts.group(&group.name).is_none()
                    }))
                }
            }
        })
    }

    fn sysctl<'a>(&'a self, key: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move {
            let predicted = self.predicted().sysctls.get(key).cloned();
            match predicted {
                Some(value) => Ok(Some(value)),
                None => self.below.sysctl(key).await,
            }
        })
    }

    fn kernel_module<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(async move {
            let predicted = self.predicted().modules.contains(name);
            if predicted {
                Ok(true)
            } else {
                self.below.kernel_module(name).await
            }
        })
    }

    fn mounts(&self) -> HostFuture<'_, HostResult<Vec<MountPoint>>> {
        Box::pin(async move {
            let mut mounts = self.below.mounts().await?;
            let predicted = self.predicted();
            mounts.retain(|m| !predicted.unmounted.contains(&m.path));
            mounts.extend(predicted.mounts.iter().cloned());
            Ok(mounts)
        })
    }

    fn swaps(&self) -> HostFuture<'_, HostResult<Vec<String>>> {
        Box::pin(async move {
            let mut swaps = self.below.swaps().await?;
            let predicted = self.predicted();
            swaps.retain(|s| !predicted.swaps_off.contains(s));
            Ok(swaps)
        })
    }

    fn firewall_zone<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(async move {
            let predicted = self.predicted().zones.get(name).cloned();
            match predicted {
                Some(view) => Ok(view),
                None => self.allow_missing(self.below.firewall_zone(name).await),
            }
        })
    }

    fn firewall_policy<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(async move {
            let predicted = self.predicted().policies.get(name).cloned();
            match predicted {
                Some(view) => Ok(view),
                None => self.allow_missing(self.below.firewall_policy(name).await),
            }
        })
    }

    fn firewall_ipset<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<IpsetView>> {
        Box::pin(async move {
            let predicted = self.predicted().ipsets.get(name).cloned();
            match predicted {
                Some(view) => Ok(view),
                None => self.allow_missing(self.below.firewall_ipset(name).await),
            }
        })
    }

    fn firewall_names(&self) -> HostFuture<'_, HostResult<FirewallNames>> {
        Box::pin(async move {
            let names = self.allow_missing(self.below.firewall_names().await)?;
            let predicted = self.predicted();
            Ok(FirewallNames {
                zones: merged(names.zones, &predicted.zones, |v| v.permanent.is_some()),
                policies: merged(names.policies, &predicted.policies, |v| {
                    v.permanent.is_some()
                }),
                ipsets: merged(names.ipsets, &predicted.ipsets, |v| v.permanent.is_some()),
            })
        })
    }

    fn image<'a>(&'a self, reference: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(async move {
            let predicted = self.predicted().images.contains(reference);
            if predicted {
                Ok(true)
            } else {
                self.allow_missing(self.below.image(reference).await)
            }
        })
    }

    fn http_get<'a>(
        &'a self,
        url: &'a str,
        trust: &'a Trust,
    ) -> HostFuture<'a, HostResult<Option<(u16, String)>>> {
        Box::pin(async move {
            let answer = self.below.http_get(url, trust).await?;
            // The answer may depend on any predicted effect: a served file, an opened port.
            if self.any_predicted.load(Ordering::Relaxed) {
                self.assumed.store(true, Ordering::Relaxed);
            }
            Ok(answer)
        })
    }

    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>> {
        self.below.blob(sha256)
    }

    fn query<'a>(&'a self, command: &'a Command) -> HostFuture<'a, HostResult<Output>> {
        self.below.query(command)
    }

    fn now(&self) -> i64 {
        self.below.now() + self.slept.load(Ordering::Relaxed) / 1000
    }

    /// Only moves this overlay's clock: test mode never waits.
    fn sleep(&self, seconds: f64) -> HostFuture<'_, ()> {
        self.slept
            .fetch_add((seconds * 1000.0) as i64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn uncertain(&self) -> bool {
        self.predicted().uncertain || self.below.uncertain()
    }

    /// Predicts the effect.
    fn perform<'a>(&'a self, effect: &'a Effect) -> HostFuture<'a, HostResult<Output>> {
        Box::pin(async move {
            self.predict(effect).await;
            Ok(Output::default())
        })
    }
}

fn merged<V>(
    below: Vec<String>,
    predicted: &BTreeMap<String, V>,
    exists: impl Fn(&V) -> bool,
) -> Vec<String> {
    let mut names: BTreeSet<String> = below.into_iter().collect();
    for (name, view) in predicted {
        if exists(view) {
            names.insert(name.clone());
        } else {
            names.remove(name);
        }
    }
    names.into_iter().collect()
}
