//! The effects on the fake host: each changes its state, with one counted write at each point at
//! which a real host could be interrupted.

use std::collections::BTreeMap;

use halite_minion::host::archive::{ArchiveEntry, unpack};
use halite_minion::host::effect::{CertificateRequest, Effect, FirewallChange, Meta, Output};
use halite_minion::host::founding::JOINING_MARK;
use halite_minion::host::linux::kernel::parameter;
use halite_minion::host::{
    FirewallView, HostError, HostResult, MountPoint, certificate, mode_of_mounted_root,
};

use crate::ca::rsa_key;
use crate::disk::Node;
use crate::host::FakeState;

fn refuse<T>(reason: String) -> HostResult<T> {
    Err(HostError::refused(reason))
}

impl FakeState {
    pub(crate) fn perform(&mut self, effect: &Effect) -> HostResult<Output> {
        match effect {
            Effect::Write {
                path,
                content,
                meta,
            } => {
                let meta = self.owner(meta)?;
                self.disk.write(path, content, &meta)?;
                self.unit_file_changed(path);
            }
            Effect::Mkdir { path, meta } => {
                let meta = self.owner(meta)?;
                self.disk.mkdir(path, &meta)?;
            }
            Effect::Symlink { path, target } => self.disk.symlink(path, target)?,
            Effect::SetMeta { path, meta } => {
                let meta = self.owner(meta)?;
                self.disk.set_meta(path, &meta)?;
            }
            Effect::Remove { path } => {
                self.disk.remove(path)?;
                self.unit_file_changed(path);
            }
            Effect::Packages {
                install, remove, ..
            } => self.change_packages(install, remove)?,
            Effect::RefreshPackages { .. } => {
                self.disk.tick()?;
                self.refreshes += 1;
            }
            Effect::Unit { name, action } => self.change_unit(name, *action)?,
            Effect::DaemonReload => {
                self.disk.tick()?;
                for unit in self.units.values_mut() {
                    unit.needs_reload = false;
                }
            }
            Effect::Run(command) => {
                self.disk.tick()?;
                self.ran.push(command.clone());
                return Ok(self.command(command));
            }
            Effect::Sysctl { key, value } => {
                self.disk.tick()?;
                let Some(name) = self.sysctl_name(key)? else {
                    return refuse(format!("this kernel has no parameter {key}"));
                };
                self.sysctls.insert(name, value.clone());
            }
            Effect::LoadModule { name } => {
                self.disk.tick()?;
                if !self.loadable.contains(name) {
                    return refuse(format!("modprobe {name}: module not found"));
                }
                self.modules.insert(name.clone());
            }
            Effect::Mount {
                device,
                path,
                fstype,
                options,
            } => {
                self.disk.tick()?;
                if self.unmountable.contains(device) {
                    return refuse(format!("mount: {path}: {device} does not exist"));
                }
                let point = self.mount_point(device, path, fstype, options);
                let has = |wanted: &str| options.split(',').any(|option| option == wanted);
                if !has("remount") {
                    let files = if has("bind") || has("rbind") {
                        self.disk.tree(device)
                    } else {
                        let root = Node {
                            mode: mode_of_mounted_root(fstype, options),
                            ..Node::directory()
                        };
                        let mut files = BTreeMap::from([(String::new(), root)]);
                        files.extend(self.volumes.get(device).cloned().unwrap_or_default());
                        files
                    };
                    let covered = self.disk.cover(&point.path, &files);
                    self.covered.entry(point.path.clone()).or_insert(covered);
                }
                self.mounts.retain(|m| m.path != point.path);
                self.mounts.push(point);
            }
            Effect::Unmount { path } => {
                self.disk.tick()?;
                let path = self.disk.follow(path);
                if let Some(covered) = self.covered.remove(&path) {
                    self.disk.uncover(&path, covered);
                }
                self.mounts.retain(|m| m.path != path);
            }
            Effect::SwapOff { device } => {
                self.disk.tick()?;
                self.swaps.retain(|s| s != device);
            }
            Effect::Firewall(change) => self.change_firewall(change)?,
            Effect::Extract {
                archive,
                target,
                strip,
            } => self.extract(archive, target, *strip)?,
            Effect::PullImage { reference } => {
                self.disk.tick()?;
                if !self.registry.contains(reference) {
                    return refuse(format!("ctr images pull {reference}: not found"));
                }
                self.images.insert(reference.clone());
            }
            Effect::Certificate(request) => self.make_certificate(request)?,
            Effect::WaitHttp {
                url,
                trust,
                status,
                body,
                seconds,
                ..
            } => {
                self.disk.tick()?;
                let mut last = "nothing answers there".to_owned();
                for _ in 0..=*seconds {
                    let answers = self.http.entry(url.clone()).or_default();
                    let answer = if answers.len() > 1 {
                        answers.pop_front()
                    } else {
                        answers.front().cloned()
                    };
                    if let Some(Some((code, text))) = answer
                        && self.trusts(url, trust)
                    {
                        if code == *status && body.as_ref().is_none_or(|part| text.contains(part)) {
                            return Ok(Output::default());
                        }
                        let line = text.lines().next().unwrap_or_default();
                        last = format!("the last answer was {code}: {line}");
                    }
                    self.clock += 1000;
                }
                return refuse(format!(
                    "{url} did not answer {status} within {seconds} s: {last}"
                ));
            }
            Effect::Rename { from, to } => self.disk.rename(from, to)?,
            Effect::FoundEtcd(founding) => {
                self.disk.tick()?;
                if !self.images.contains(&founding.image) {
                    return refuse(format!("etcd: image {} not found", founding.image));
                }
                let log = format!("{}/wal/0-0.wal", founding.member());
                self.disk
                    .put(&log, Node::file(founding.command.join(" ").as_bytes()));
                self.disk.put(&founding.scratch(), Node::directory());
            }
            Effect::JoinEtcd(first) => {
                self.disk.tick()?;
                self.disk.take(JOINING_MARK);
                let log = first.log();
                // Existing data are kept and used.
                if self
                    .disk
                    .list(&format!("{}/wal", first.member()))
                    .is_empty()
                {
                    let node = Node::file(first.command.join(" ").as_bytes());
                    self.disk.put(&log, node);
                }
            }
            // The rest belongs to the host itself: it asks and writes.
            Effect::StaticPod(_) => self.disk.tick()?,
        }
        Ok(Output::default())
    }

    /// The name in `sysctls` of a parameter in any spelling.
    pub(crate) fn sysctl_name(&self, key: &str) -> HostResult<Option<String>> {
        let file = parameter(key)?;
        let is_it = |name: &&String| parameter(name).is_ok_and(|found| found == file);
        Ok(self.sysctls.keys().find(is_it).cloned())
    }

    /// A mount in the kernel's form: the path without links, for a bind mount the file system of
    /// its source, for a file its loop device.
    fn mount_point(&mut self, device: &str, path: &str, fstype: &str, options: &str) -> MountPoint {
        let has = |wanted: &str| options.split(',').any(|option| option == wanted);
        let mut point = MountPoint {
            device: device.to_owned(),
            root: "/".to_owned(),
            path: self.disk.follow(path),
            fstype: fstype.to_owned(),
            options: options.to_owned(),
        };
        let source = self.disk.follow(device);
        let is_below = |m: &&MountPoint| {
            let below = source.strip_prefix(m.path.trim_end_matches('/'));
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let holder = self.mounts.iter().filter(is_below);
        if let Some(old) = self.mounts.iter().find(|m| m.path == point.path)
            && has("remount")
        {
            (point.device, point.root) = (old.device.clone(), old.root.clone());
        } else if has("bind")
            && let Some(holder) = holder.max_by_key(|m| m.path.len())
        {
            let below = source.get(holder.path.len()..).unwrap_or_default();
            point.device.clone_from(&holder.device);
            point.root = format!("{}{below}", holder.root);
        } else if has("loop") {
            let note = "/sys/block/loop0/loop/backing_file";
            self.put_file(note, format!("{source}\n").as_bytes());
            "/dev/loop0".clone_into(&mut point.device);
        }
        point
    }

    /// Owner and group as the host's name service shows them: names, and numbers without a name.
    fn owner(&self, meta: &Meta) -> HostResult<Meta> {
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let user = match &meta.user {
            None => None,
            Some(user) => match self.accounts.user(user) {
                Some(known) => Some(known.name.clone()),
                None if is_number(user) => Some(user.clone()),
                None => return refuse(format!("there is no user `{user}` on this host")),
            },
        };
        let group = match &meta.group {
            None => None,
            Some(group) => match self.accounts.group(group) {
                Some(known) => Some(known.name.clone()),
                None if is_number(group) => Some(group.clone()),
                None => return refuse(format!("there is no group `{group}` on this host")),
            },
        };
        Ok(Meta {
            user,
            group,
            mode: meta.mode,
        })
    }

    fn change_firewall(&mut self, change: &FirewallChange) -> HostResult<()> {
        let (map, name, settings) = match change {
            FirewallChange::Zone { name, settings } => (&mut self.zones, name, Some(settings)),
            FirewallChange::Policy { name, settings } => (&mut self.policies, name, Some(settings)),
            FirewallChange::RemoveZone { name } => (&mut self.zones, name, None),
            FirewallChange::RemovePolicy { name } => (&mut self.policies, name, None),
            FirewallChange::Ipsets { sets } => {
                self.disk.tick()?;
                for (name, settings) in sets {
                    self.ipsets.entry(name.clone()).or_default().permanent = Some(settings.clone());
                }
                self.disk.tick()?;
                for (name, settings) in sets {
                    self.ipsets.entry(name.clone()).or_default().runtime = Some(settings.clone());
                }
                return Ok(());
            }
            FirewallChange::RemoveIpset { name } => {
                self.disk.tick()?;
                if let Some(view) = self.ipsets.get_mut(name) {
                    view.permanent = None;
                }
                self.disk.tick()?;
                self.ipsets.remove(name);
                return Ok(());
            }
        };
        // The permanent configuration is written first; a host cut off between the two comes up
        // with it.
        self.disk.tick()?;
        let view: &mut FirewallView = map.entry(name.clone()).or_default();
        view.permanent = settings.cloned();
        self.disk.tick()?;
        view.runtime = settings.cloned();
        if settings.is_none() {
            map.remove(name);
        }
        Ok(())
    }

    fn extract(&mut self, archive: &str, target: &str, strip: u32) -> HostResult<()> {
        let Some(bytes) = self.disk.read(archive).map(<[u8]>::to_vec) else {
            return refuse(format!("{archive} does not exist"));
        };
        if self.disk.stat(target).is_none() {
            self.disk.mkdir(target, &Meta::default())?;
        }
        unpack(archive, bytes.as_slice(), strip, |path, mode, entry| {
            let path = format!("{target}/{path}");
            let meta = Meta {
                mode: Some(mode),
                user: Some("root".to_owned()),
                group: Some("root".to_owned()),
            };
            match entry {
                ArchiveEntry::Directory => self.disk.mkdir(&path, &meta),
                ArchiveEntry::File(content) => {
                    if let Some((directory, _)) = path.rsplit_once('/')
                        && self.disk.stat(directory).is_none()
                    {
                        self.disk.mkdir(directory, &Meta::default())?;
                    }
                    let mut bytes = Vec::new();
                    content
                        .read_to_end(&mut bytes)
                        .map_err(|e| HostError::failed(format!("cannot read {archive}"), e))?;
                    self.disk.write(&path, &bytes, &meta)
                }
                ArchiveEntry::Symlink(to) => self.disk.symlink(&path, &to),
                ArchiveEntry::Hardlink(to) => {
                    let content = self
                        .disk
                        .read(&format!("{target}/{to}"))
                        .unwrap_or_default()
                        .to_vec();
                    self.disk.write(&path, &content, &meta)
                }
            }
        })
    }

    fn make_certificate(&mut self, request: &CertificateRequest) -> HostResult<()> {
        let file = if request.kubeconfig.is_some() {
            &request.cert_path
        } else {
            &request.key_path
        };
        let kept = self
            .disk
            .read(file)
            .and_then(|content| certificate::key_in_file(request, content));
        let key = match (kept, certificate::is_rsa(&request.algorithm)) {
            (Some(key), _) => key,
            (None, Some(bits)) => rsa_key(bits)?,
            (None, None) => certificate::new_key(&request.algorithm)?,
        };
        let csr = certificate::signing_request(request, &key)?;
        let signed = self.cas.sign(request, &csr, self.clock / 1000)?;
        for (path, content, meta) in certificate::files(request, &key, &signed)? {
            self.disk.write(&path, &content, &meta)?;
        }
        Ok(())
    }
}
