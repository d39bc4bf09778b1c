//! The predictions of [`super::overlay`] for each effect.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use super::accounts::{is_account_command, other_accounts};
use super::effect::{
    CertificateRequest, Command, Effect, FirewallChange, IpsetSettings, Meta, PackageOptions,
    UnitAction,
};
use super::founding::{FirstStart, JOINING_MARK};
use super::overlay::{KNOWN_AFTER_APPLY, Overlay};
use super::overlay_files::{PredictedEntry, PredictedPath, stat_after};
use super::{FileKind, FirewallView, Host, IpsetView, MountPoint, mode_of_mounted_root};

/// A path through more links than this is a loop.
const MAX_LINKS: u32 = 40;

impl Overlay<'_> {
    /// Lets later questions see the host as if `effect` had been carried out. An entry that the
    /// host below cannot read now counts as missing: a prediction never fails.
    pub async fn predict(&self, effect: &Effect) {
        self.any_predicted.store(true, Ordering::Relaxed);
        match effect {
            Effect::Write {
                path,
                content,
                meta,
            } => self.put_file(path, content.clone(), meta).await,
            Effect::Mkdir { path, meta } => self.put_directory(path, meta).await,
            Effect::Symlink { path, target } => {
                let size = target.len() as u64;
                let stat = stat_after(
                    None,
                    FileKind::Symlink,
                    &Meta::default(),
                    size,
                    Some(target.clone()),
                );
                let path = self.resolve(path, false).await;
                self.predicted().files.put(
                    &path,
                    PredictedEntry {
                        stat,
                        content: None,
                        fresh: true,
                    },
                );
            }
            Effect::SetMeta { path, meta } => self.set_meta(path, meta).await,
            Effect::Remove { path } => {
                let resolved = self.resolve(path, false).await;
                self.predicted().files.remove(&resolved);
                self.unit_file_changed(path).await;
            }
            Effect::Packages {
                install,
                remove,
                options,
            } => self.change_packages(install, remove, *options).await,
            Effect::RefreshPackages { .. } => {
                let mut predicted = self.predicted();
                predicted.repositories = true;
                predicted.uncertain = true;
            }
            Effect::Unit { name, action } => self.change_unit(name, *action).await,
            Effect::DaemonReload => {
                let mut predicted = self.predicted();
                predicted.reloaded = true;
                predicted
                    .units
                    .values_mut()
                    .for_each(|unit| unit.needs_reload = false);
            }
            Effect::Run(command) => self.run(command).await,
            Effect::Sysctl { key, value } => {
                self.predicted().sysctls.insert(key.clone(), value.clone());
            }
            Effect::LoadModule { name } => {
                let mut predicted = self.predicted();
                predicted.modules.insert(name.clone());
                predicted.uncertain = true;
            }
            Effect::Mount {
                device,
                path,
                fstype,
                options,
            } => {
                if !options.split(',').any(|option| option == "remount") {
                    let mode = mode_of_mounted_root(fstype, options);
                    self.cover(path, mode, fstype != "tmpfs").await;
                }
                let mut predicted = self.predicted();
                let (device, path, fstype, options) = (
                    device.clone(),
                    path.clone(),
                    fstype.clone(),
                    options.clone(),
                );
                predicted.mounts.retain(|m| m.path != path);
                predicted.unmounted.insert(path.clone());
                predicted.mounts.push(MountPoint {
                    device,
                    root: "/".to_owned(),
                    path,
                    fstype,
                    options,
                });
            }
            Effect::Unmount { path } => {
                self.uncover(path).await;
                let mut predicted = self.predicted();
                predicted.mounts.retain(|m| m.path != *path);
                predicted.unmounted.insert(path.clone());
            }
            Effect::SwapOff { device } => {
                self.predicted().swaps_off.insert(device.clone());
            }
            Effect::Firewall(change) => self.change_firewall(change),
            Effect::Extract { target, .. } => {
                let path = self.resolve(target, true).await;
                let old = self.stat(&path).await.ok().flatten();
                let stat = stat_after(old.as_ref(), FileKind::Directory, &Meta::default(), 0, None);
                let mut predicted = self.predicted();
                predicted.files.put(
                    &path,
                    PredictedEntry {
                        stat,
                        content: None,
                        fresh: old.is_none(),
                    },
                );
                predicted.uncertain = true;
            }
            Effect::PullImage { reference } => {
                self.predicted().images.insert(reference.clone());
            }
            Effect::Certificate(request) => self.certificate(request).await,
            Effect::Rename { from, to } => self.rename(from, to).await,
            Effect::FoundEtcd(first) => {
                self.begin_log(first).await;
                self.put_directory(&first.scratch(), &Meta::default()).await;
            }
            Effect::JoinEtcd(first) => {
                self.begin_log(first).await;
                self.predicted().files.remove(JOINING_MARK);
            }
            // Waiting changes nothing.
            Effect::WaitHttp { .. } | Effect::StaticPod(_) => {}
        }
    }

    /// The entry gets its new name; the content of a directory is not predicted.
    async fn rename(&self, from: &str, to: &str) {
        let (from, to) = (
            self.resolve(from, false).await,
            self.resolve(to, false).await,
        );
        let Ok(Some(stat)) = self.stat(&from).await else {
            return;
        };
        let content = self.read(&from).await.ok().flatten();
        let mut predicted = self.predicted();
        predicted.files.remove(&from);
        predicted.files.put(
            &to,
            PredictedEntry {
                stat,
                content,
                fresh: true,
            },
        );
    }

    /// The log of an etcd that is started once. Its content is known after apply.
    async fn begin_log(&self, first: &FirstStart) {
        let meta = Meta::default();
        let log = first.log();
        let directories: Vec<&str> = log.match_indices('/').map(|(at, _)| &log[..at]).collect();
        for directory in directories.iter().skip(1) {
            self.put_directory(directory, &meta).await;
        }
        self.put_file(&log, Vec::new(), &meta).await;
    }

    fn is_fresh(&self, path: &str) -> bool {
        matches!(self.predicted().files.get(path), PredictedPath::Entry(entry) if entry.fresh)
    }

    /// The path itself, without links in it: links in the directories are followed, and a final one
    /// if `last` is set. A path through too many links stays unchanged.
    pub(super) async fn resolve(&self, path: &str, last: bool) -> String {
        let mut left: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let mut at = String::new();
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or_default());
                    continue;
                }
                _ => {}
            }
            let next = format!("{at}/{part}");
            let target = if last || !left.is_empty() {
                self.link(&next).await
            } else {
                None
            };
            match target {
                Some(target) if links < MAX_LINKS => {
                    links += 1;
                    if target.starts_with('/') {
                        at.clear();
                    }
                    for part in target.split('/').rev() {
                        left.push_front(part.to_owned());
                    }
                }
                _ => at = next,
            }
        }
        if at.is_empty() { "/".to_owned() } else { at }
    }

    /// The target of the link at a path whose directories are already resolved.
    async fn link(&self, path: &str) -> Option<String> {
        let known = self.predicted().files.get(path);
        match known {
            PredictedPath::Entry(entry) => entry.stat.target,
            PredictedPath::Gone => None,
            PredictedPath::Below => self
                .below
                .stat(path)
                .await
                .ok()
                .flatten()
                .and_then(|s| s.target),
        }
    }

    async fn put_directory(&self, path: &str, meta: &Meta) {
        let path = self.resolve(path, true).await;
        let old = self.stat(&path).await.ok().flatten();
        let stat = stat_after(old.as_ref(), FileKind::Directory, meta, 0, None);
        let shows = old.is_some_and(|s| s.kind == FileKind::Directory) && !self.is_fresh(&path);
        self.predicted().files.put(
            &path,
            PredictedEntry {
                stat,
                content: None,
                fresh: !shows,
            },
        );
    }

    async fn put_file(&self, path: &str, content: Vec<u8>, meta: &Meta) {
        let target = self.resolve(path, true).await;
        let old = self.stat(&target).await.ok().flatten();
        let stat = stat_after(
            old.as_ref(),
            FileKind::File,
            meta,
            content.len() as u64,
            None,
        );
        self.predicted().files.put(
            &target,
            PredictedEntry {
                stat,
                content: Some(content),
                fresh: true,
            },
        );
        self.unit_file_changed(path).await;
    }

    async fn set_meta(&self, path: &str, meta: &Meta) {
        let path = self.resolve(path, true).await;
        let Ok(Some(old)) = self.stat(&path).await else {
            return;
        };
        let stat = stat_after(Some(&old), old.kind, meta, old.size, old.target.clone());
        let mut predicted = self.predicted();
        let (content, fresh) = match predicted.files.get(&path) {
            PredictedPath::Entry(entry) => (entry.content, entry.fresh),
            _ => (None, false),
        };
        predicted.files.put(
            &path,
            PredictedEntry {
                stat,
                content,
                fresh,
            },
        );
    }

    /// systemd would notice a changed unit file or drop-in of a unit that it has loaded.
    async fn unit_file_changed(&self, path: &str) {
        let Some((_, rest)) = path.split_once("/systemd/system/") else {
            return;
        };
        let name = rest.split('/').next().unwrap_or_default();
        let name = name.strip_suffix(".d").unwrap_or(name);
        if let Ok(mut state) = self.below.unit(name).await
            && state.load == "loaded"
        {
            let mut predicted = self.predicted();
            state = predicted.units.get(name).cloned().unwrap_or(state);
            state.needs_reload = true;
            predicted.units.insert(name.to_owned(), state);
        }
    }

    async fn change_packages(
        &self,
        install: &BTreeMap<String, Option<String>>,
        remove: &[String],
        options: PackageOptions,
    ) {
        let in_the_way = self.removed_by(install, options).await.unwrap_or_default();
        for (name, version) in install {
            let version = match version {
                Some(version) => version.clone(),
                None => self
                    .package_candidate(name, false)
                    .await
                    .ok()
                    .flatten()
                    .unwrap_or_else(|| KNOWN_AFTER_APPLY.to_owned()),
            };
            self.predicted()
                .packages
                .insert(name.clone(), Some(version));
        }
        let mut predicted = self.predicted();
        predicted.uncertain |= !install.is_empty();
        for name in remove.iter().chain(&in_the_way) {
            predicted.packages.insert(name.clone(), None);
        }
    }

    async fn change_unit(&self, name: &str, action: UnitAction) {
        let mut state = self.unit(name).await.unwrap_or_default();
        match action {
            UnitAction::Start | UnitAction::Restart => {
                state.load = "loaded".into();
                state.active = "active".into();
            }
            UnitAction::Stop => state.active = "inactive".into(),
            UnitAction::Reload | UnitAction::Verify => {}
            UnitAction::Enable => state.file = "enabled".into(),
            UnitAction::Disable => state.file = "disabled".into(),
            UnitAction::Mask => {
                state.load = "masked".into();
                state.file = "masked".into();
            }
            UnitAction::Unmask => {
                if state.file == "masked" {
                    state.load = "loaded".into();
                    state.file = "disabled".into();
                }
            }
        }
        let mut predicted = self.predicted();
        predicted.uncertain |= matches!(action, UnitAction::Start | UnitAction::Restart);
        predicted.units.insert(name.to_owned(), state);
    }

    async fn run(&self, command: &Command) {
        if !is_account_command(&command.argv) {
            self.predicted().uncertain = true;
            return;
        }
        let name = command.argv.last().cloned().unwrap_or_default();
        let user = self.user(&name).await.ok().flatten();
        // Of groupadd and groupmod, it is the group's own new number.
        let is_of_user = command
            .argv
            .first()
            .is_some_and(|program| program.contains("user"));
        let primary = command.argv.iter().position(|w| w == "-g" || w == "--gid");
        let group = primary
            .filter(|_| is_of_user)
            .and_then(|at| command.argv.get(at + 1))
            .unwrap_or(&name)
            .clone();
        let group = self.group(&group).await.ok().flatten();
        let (users, groups) = other_accounts(&command.argv, user.as_ref(), group.as_ref());
        for other in users {
            if let Ok(Some(other)) = self.user(&other).await {
                self.predicted().accounts.add_user(other);
            }
        }
        for other in groups {
            if let Ok(Some(other)) = self.group(&other).await {
                self.predicted().accounts.add_group(other);
            }
        }
        let old_home = user.as_ref().map(|user| user.home.clone());
        self.predicted().accounts.run(&command.argv, user, group);
        self.change_home(&command.argv, &name, old_home).await;
    }

    /// The home that `useradd -m` makes and `userdel -r` removes.
    async fn change_home(&self, argv: &[String], name: &str, old: Option<String>) {
        let has = |flag: &str| argv.iter().any(|word| word == flag);
        match (argv.first().map(String::as_str), old) {
            (Some("useradd"), None) if has("-m") => {
                let Ok(Some(user)) = self.user(name).await else {
                    return;
                };
                if !matches!(self.stat(&user.home).await, Ok(None)) {
                    return;
                }
                let primary = argv.iter().position(|word| word == "-g");
                let primary = primary.and_then(|at| argv.get(at + 1));
                let meta = Meta {
                    user: Some(user.name.clone()),
                    group: Some(primary.cloned().unwrap_or(user.name)),
                    mode: None,
                };
                self.put_directory(&user.home, &meta).await;
            }
            (Some("userdel"), Some(home)) if has("-r") => {
                let home = self.resolve(&home, false).await;
                self.predicted().files.remove(&home);
            }
            _ => {}
        }
    }

    fn change_firewall(&self, change: &FirewallChange) {
        let mut predicted = self.predicted();
        let predicted = &mut *predicted;
        let set = |settings: Option<&IpsetSettings>| IpsetView {
            permanent: settings.cloned(),
            runtime: settings.cloned(),
        };
        let (map, name, settings) = match change {
            FirewallChange::Zone { name, settings } => (&mut predicted.zones, name, Some(settings)),
            FirewallChange::Policy { name, settings } => {
                (&mut predicted.policies, name, Some(settings))
            }
            FirewallChange::RemoveZone { name } => (&mut predicted.zones, name, None),
            FirewallChange::RemovePolicy { name } => (&mut predicted.policies, name, None),
            FirewallChange::Ipsets { sets } => {
                let all = sets
                    .iter()
                    .map(|(name, new)| (name.clone(), set(Some(new))));
                predicted.ipsets.extend(all);
                return;
            }
            FirewallChange::RemoveIpset { name } => {
                predicted.ipsets.insert(name.clone(), set(None));
                return;
            }
        };
        map.insert(
            name.clone(),
            FirewallView {
                permanent: settings.cloned(),
                runtime: settings.cloned(),
            },
        );
    }

    async fn certificate(&self, request: &CertificateRequest) {
        let unknown = || KNOWN_AFTER_APPLY.as_bytes().to_vec();
        let secret = Meta {
            mode: Some(0o600),
            ..request.meta.clone()
        };
        if request.kubeconfig.is_none() && request.key_path != request.cert_path {
            self.put_file(&request.key_path, unknown(), &secret).await;
            self.put_file(&request.cert_path, unknown(), &request.meta)
                .await;
        } else {
            let mode = request.meta.mode.or(secret.mode);
            self.put_file(
                &request.cert_path,
                unknown(),
                &Meta {
                    mode,
                    ..request.meta.clone()
                },
            )
            .await;
        }
    }
}
