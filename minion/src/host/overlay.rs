//! Test mode: predicted effects laid over another host, so that later checks see what an earlier
//! apply would have made.
//!
//! Nothing below is ever changed. What cannot be known before it was done (content of a
//! certificate, files of a package) answers [`KNOWN_AFTER_APPLY`], or is missing while
//! [`super::Host::uncertain`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::accounts::Accounts;
use super::effect::{Command, Effect, Output};
use super::overlay_files::{Entry, Files, Known};
use super::{
    FileKind, FirewallNames, FirewallView, Group, Host, HostFuture, HostResult, MountPoint,
    PackageManager, Stat, UnitState, User,
};

/// Content and version of what only apply can tell.
pub const KNOWN_AFTER_APPLY: &str = "known after apply";

/// Predicted effects over `below`.
pub struct Overlay<'h> {
    pub(super) below: &'h dyn Host,
    laid: Mutex<Laid>,
    slept: AtomicI64,
    guessed: AtomicBool,
    pub(super) laid_any: AtomicBool,
}

#[derive(Default)]
pub(super) struct Laid {
    pub files: Files,
    pub packages: BTreeMap<String, Option<String>>,
    pub repositories: bool,
    pub uncertain: bool,
    pub reloaded: bool,
    pub units: BTreeMap<String, UnitState>,
    pub accounts: Accounts,
    pub sysctls: BTreeMap<String, String>,
    pub modules: BTreeSet<String>,
    pub mounts: Vec<MountPoint>,
    pub unmounted: BTreeSet<String>,
    pub swaps_off: BTreeSet<String>,
    pub zones: BTreeMap<String, FirewallView>,
    pub policies: BTreeMap<String, FirewallView>,
    pub images: BTreeSet<String>,
}

impl<'h> Overlay<'h> {
    /// Nothing predicted yet.
    #[must_use]
    pub fn new(below: &'h dyn Host) -> Self {
        Self {
            below,
            laid: Mutex::default(),
            slept: AtomicI64::new(0),
            guessed: AtomicBool::new(false),
            laid_any: AtomicBool::new(false),
        }
    }

    pub(super) fn laid(&self) -> MutexGuard<'_, Laid> {
        self.laid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer of the host below; while the outcome of predicted effects is open, a question that
    /// it cannot answer (no firewalld yet, no containerd yet) counts as nothing found.
    fn lenient<T: Default>(&self, answer: HostResult<T>) -> HostResult<T> {
        if !self.uncertain() {
            return answer;
        }
        Ok(answer.unwrap_or_else(|_| {
            self.guessed.store(true, Ordering::Relaxed);
            T::default()
        }))
    }

    /// Whether an answer since the last call was not one of the host below, which could not be
    /// asked: what was made of it is known only after apply.
    pub fn take_guessed(&self) -> bool {
        self.guessed.swap(false, Ordering::Relaxed)
    }
}

impl Host for Overlay<'_> {
    fn stat<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Stat>>> {
        Box::pin(async move {
            if self.laid().files.is_empty() {
                return self.below.stat(path).await;
            }
            let path = self.resolve(path, false).await;
            let known = self.laid().files.get(&path);
            match known {
                Known::Entry(entry) => Ok(Some(entry.stat)),
                Known::Gone => Ok(None),
                Known::Below => self.below.stat(&path).await,
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(async move {
            if self.laid().files.is_empty() {
                return self.below.read(path).await;
            }
            let path = self.resolve(path, true).await;
            let known = self.laid().files.get(&path);
            match known {
                Known::Entry(Entry {
                    content: Some(content),
                    ..
                }) => Ok(Some(content)),
                Known::Entry(Entry {
                    stat:
                        Stat {
                            kind: FileKind::File,
                            ..
                        },
                    ..
                })
                | Known::Below => self.below.read(&path).await,
                Known::Entry(_) | Known::Gone => Ok(None),
            }
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Vec<String>>> {
        Box::pin(async move {
            if self.laid().files.is_empty() {
                return self.below.list(path).await;
            }
            let path = self.resolve(path, true).await;
            let known = self.laid().files.get(&path);
            let mut names: BTreeSet<String> = match known {
                Known::Entry(Entry { fresh: true, .. }) | Known::Gone => BTreeSet::new(),
                Known::Entry(_) | Known::Below => {
                    self.below.list(&path).await?.into_iter().collect()
                }
            };
            let (added, removed) = self.laid().files.names(&path);
            names.extend(added);
            removed.iter().for_each(|name| {
                names.remove(name);
            });
            Ok(names.into_iter().collect())
        })
    }

    fn unit<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<UnitState>> {
        Box::pin(async move {
            let (laid, reloaded) = {
                let laid = self.laid();
                (laid.units.get(name).cloned(), laid.reloaded)
            };
            if let Some(state) = laid {
                return Ok(state);
            }
            let mut state = self.lenient(self.below.unit(name).await)?;
            if state.load == "not-found" || state.load.is_empty() {
                let own = self
                    .stat(&format!("/etc/systemd/system/{name}"))
                    .await
                    .ok()
                    .flatten();
                if own.is_some() || self.uncertain() {
                    // A package that is about to come may well bring it. None starts anything by
                    // itself here, but Debian's enable what they bring.
                    let debian =
                        matches!(self.below.package_manager().await, Ok(PackageManager::Apt));
                    let enabled = own.is_none() && debian;
                    if own.is_none() {
                        self.guessed.store(true, Ordering::Relaxed);
                    }
                    state.load = "loaded".into();
                    state.active = "inactive".into();
                    state.file = if enabled { "enabled" } else { "disabled" }.into();
                }
            }
            state.needs_reload &= !reloaded;
            Ok(state)
        })
    }

    fn packages(&self) -> HostFuture<'_, HostResult<BTreeMap<String, String>>> {
        Box::pin(async move {
            let mut all = self.below.packages().await?;
            for (name, version) in &self.laid().packages {
                match version {
                    Some(version) => all.insert(name.clone(), version.clone()),
                    None => all.remove(name),
                };
            }
            Ok(all)
        })
    }

    fn package_candidate<'a>(
        &'a self,
        name: &'a str,
    ) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move {
            let candidate = self.below.package_candidate(name).await?;
            let open = self.laid().repositories;
            Ok(candidate.or_else(|| open.then(|| KNOWN_AFTER_APPLY.to_owned())))
        })
    }

    fn package_manager(&self) -> HostFuture<'_, HostResult<PackageManager>> {
        self.below.package_manager()
    }

    fn user<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<User>>> {
        Box::pin(async move {
            let laid = self.laid().accounts.users.get(name).cloned();
            match laid {
                Some(user) => Ok(user),
                None => self.below.user(name).await,
            }
        })
    }

    fn group<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<Group>>> {
        Box::pin(async move {
            let laid = self.laid().accounts.groups.get(name).cloned();
            match laid {
                Some(group) => Ok(group),
                None => self.below.group(name).await,
            }
        })
    }

    fn sysctl<'a>(&'a self, key: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move {
            let laid = self.laid().sysctls.get(key).cloned();
            match laid {
                Some(value) => Ok(Some(value)),
                None => self.below.sysctl(key).await,
            }
        })
    }

    fn kernel_module<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(async move {
            let laid = self.laid().modules.contains(name);
            if laid {
                Ok(true)
            } else {
                self.below.kernel_module(name).await
            }
        })
    }

    fn mounts(&self) -> HostFuture<'_, HostResult<Vec<MountPoint>>> {
        Box::pin(async move {
            let mut mounts = self.below.mounts().await?;
            let laid = self.laid();
            mounts.retain(|m| !laid.unmounted.contains(&m.path));
            mounts.extend(laid.mounts.iter().cloned());
            Ok(mounts)
        })
    }

    fn swaps(&self) -> HostFuture<'_, HostResult<Vec<String>>> {
        Box::pin(async move {
            let mut swaps = self.below.swaps().await?;
            let laid = self.laid();
            swaps.retain(|s| !laid.swaps_off.contains(s));
            Ok(swaps)
        })
    }

    fn firewall_zone<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(async move {
            let laid = self.laid().zones.get(name).cloned();
            match laid {
                Some(view) => Ok(view),
                None => self.lenient(self.below.firewall_zone(name).await),
            }
        })
    }

    fn firewall_policy<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(async move {
            let laid = self.laid().policies.get(name).cloned();
            match laid {
                Some(view) => Ok(view),
                None => self.lenient(self.below.firewall_policy(name).await),
            }
        })
    }

    fn firewall_names(&self) -> HostFuture<'_, HostResult<FirewallNames>> {
        Box::pin(async move {
            let names = self.lenient(self.below.firewall_names().await)?;
            let laid = self.laid();
            Ok(FirewallNames {
                zones: merged(names.zones, &laid.zones),
                policies: merged(names.policies, &laid.policies),
            })
        })
    }

    fn image<'a>(&'a self, reference: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(async move {
            let laid = self.laid().images.contains(reference);
            if laid {
                Ok(true)
            } else {
                self.lenient(self.below.image(reference).await)
            }
        })
    }

    fn http_get<'a>(
        &'a self,
        url: &'a str,
        ca: Option<&'a str>,
    ) -> HostFuture<'a, HostResult<Option<(u16, String)>>> {
        Box::pin(async move {
            let answer = self.below.http_get(url, ca).await?;
            // Whatever was laid may be what the answer depends on: a file that is served, a port
            // that is opened.
            if self.laid_any.load(Ordering::Relaxed) {
                self.guessed.store(true, Ordering::Relaxed);
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

    /// Only moves this overlay's clock: test mode waits for nothing.
    fn sleep(&self, seconds: f64) -> HostFuture<'_, ()> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a wait of whole milliseconds"
        )]
        self.slept
            .fetch_add((seconds * 1000.0) as i64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn uncertain(&self) -> bool {
        self.laid().uncertain || self.below.uncertain()
    }

    /// Lays the effect.
    fn perform<'a>(&'a self, effect: &'a Effect) -> HostFuture<'a, HostResult<Output>> {
        Box::pin(async move {
            self.lay(effect).await;
            Ok(Output::default())
        })
    }
}

fn merged(below: Vec<String>, laid: &BTreeMap<String, FirewallView>) -> Vec<String> {
    let mut names: BTreeSet<String> = below.into_iter().collect();
    for (name, view) in laid {
        if view.permanent.is_some() {
            names.insert(name.clone());
        } else {
            names.remove(name);
        }
    }
    names.into_iter().collect()
}
