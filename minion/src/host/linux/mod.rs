//! The real host. The minion runs as root. Each question reads the host again, except for accounts,
//! packages and images: their answers are remembered until an effect may have changed them.

pub mod accounts;
mod background;
pub mod bus;
mod certificates;
pub mod command;
mod extract;
pub mod files;
pub mod firewalld;
mod founding;
pub(crate) mod http;
pub mod images;
pub mod kernel;
pub mod packages;
mod perform;
pub mod systemd;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::certificate::Signer;
use super::effect::{Command, Effect, Meta, Output, PackageOptions, Trust};
use super::{
    FirewallNames, FirewallView, Group, Host, HostFuture, HostResult, IpsetView, MountPoint,
    PackageManager, Stat, Stop, UnitState, User,
};
use crate::clock;

/// Longest run of a command that names no limit.
const COMMAND: Duration = Duration::from_secs(3600);

/// Longest run of a question (`unless`, `onlyif`) that names no limit.
const QUESTION: Duration = Duration::from_secs(300);

/// The source of files of the state tree and bundle.
pub trait Blobs: Send + Sync {
    /// A file by the SHA-256 (hex) of its content, verified.
    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>>;
}

/// This machine.
pub struct LinuxHost {
    pub(super) signer: Arc<dyn Signer>,
    blobs: Arc<dyn Blobs>,
    names: accounts::NameService,
    bus: bus::Bus,
    installed: packages::Installed,
    images: images::Images,
    release: String,
    stop: Arc<Stop>,
}

impl LinuxHost {
    /// This machine; `signer` signs certificates, `blobs` holds the files that a low state refers
    /// to.
    #[must_use]
    pub fn new(signer: Arc<dyn Signer>, blobs: Arc<dyn Blobs>) -> Self {
        Self {
            signer,
            blobs,
            names: accounts::NameService::default(),
            bus: bus::Bus::default(),
            installed: packages::Installed::default(),
            images: images::Images::default(),
            release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            stop: Arc::default(),
        }
    }

    /// Lets `stop` end programs.
    #[must_use]
    pub fn stoppable(self, stop: Arc<Stop>) -> Self {
        Self { stop, ..self }
    }

    async fn owner(&self, meta: &Meta) -> HostResult<files::Owner> {
        let uid = match &meta.user {
            Some(user) => Some(self.names.uid(user).await?),
            None => None,
        };
        let gid = match &meta.group {
            Some(group) => Some(self.names.gid(group).await?),
            None => None,
        };
        Ok(files::Owner {
            uid,
            gid,
            mode: meta.mode,
        })
    }
}

impl Host for LinuxHost {
    fn stat<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Stat>>> {
        Box::pin(async move {
            let Some(raw) = files::stat(Path::new(path))? else {
                return Ok(None);
            };
            Ok(Some(Stat {
                kind: raw.kind,
                mode: raw.mode,
                user: self.names.user_name(raw.uid).await?,
                group: self.names.group_name(raw.gid).await?,
                size: raw.size,
                target: raw.target,
            }))
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(background::read(Path::new(path), u64::MAX))
    }

    fn head<'a>(
        &'a self,
        path: &'a str,
        bytes: u64,
    ) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(background::read(Path::new(path), bytes))
    }

    fn list<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Vec<String>>> {
        Box::pin(async move { files::list(Path::new(path)) })
    }

    fn unit<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<UnitState>> {
        Box::pin(systemd::state(&self.bus, name))
    }

    fn packages(&self) -> HostFuture<'_, HostResult<Arc<BTreeMap<String, String>>>> {
        Box::pin(self.installed.get())
    }

    fn cut_off_packages(&self) -> HostFuture<'_, HostResult<BTreeMap<String, String>>> {
        Box::pin(packages::cut_off())
    }

    fn removed_by<'a>(
        &'a self,
        install: &'a BTreeMap<String, Option<String>>,
        options: PackageOptions,
    ) -> HostFuture<'a, HostResult<BTreeSet<String>>> {
        Box::pin(packages::removed_by(install, options))
    }

    fn held_packages(&self) -> HostFuture<'_, HostResult<BTreeSet<String>>> {
        Box::pin(packages::held())
    }

    fn package_candidate<'a>(
        &'a self,
        name: &'a str,
        prefers_bundle: bool,
    ) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(packages::candidate(name, prefers_bundle))
    }

    fn package_provider<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(packages::provider(name))
    }

    fn package_manager(&self) -> HostFuture<'_, HostResult<PackageManager>> {
        Box::pin(async { packages::manager() })
    }

    fn user<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<User>>> {
        Box::pin(self.names.user(name))
    }

    fn group<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<Group>>> {
        Box::pin(self.names.group(name))
    }

    fn sysctl<'a>(&'a self, key: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        Box::pin(async move { kernel::sysctl(key) })
    }

    fn kernel_module<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(async move { kernel::has_module(name, &self.release) })
    }

    fn mounts(&self) -> HostFuture<'_, HostResult<Vec<MountPoint>>> {
        Box::pin(async { kernel::mounts() })
    }

    fn swaps(&self) -> HostFuture<'_, HostResult<Vec<String>>> {
        Box::pin(async { kernel::swaps() })
    }

    fn firewall_zone<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(firewalld::view(
            &self.bus,
            firewalld::FirewallKind::Zone,
            name,
        ))
    }

    fn firewall_policy<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        Box::pin(firewalld::view(
            &self.bus,
            firewalld::FirewallKind::Policy,
            name,
        ))
    }

    fn firewall_ipset<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<IpsetView>> {
        Box::pin(firewalld::ipset_view(&self.bus, name))
    }

    fn firewall_names(&self) -> HostFuture<'_, HostResult<FirewallNames>> {
        Box::pin(firewalld::names(&self.bus))
    }

    fn image<'a>(&'a self, reference: &'a str) -> HostFuture<'a, HostResult<bool>> {
        Box::pin(self.images.has(reference))
    }

    fn http_get<'a>(
        &'a self,
        url: &'a str,
        trust: &'a Trust,
    ) -> HostFuture<'a, HostResult<Option<(u16, String)>>> {
        Box::pin(http::get(url, trust))
    }

    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>> {
        self.blobs.blob(sha256)
    }

    fn query<'a>(&'a self, command: &'a Command) -> HostFuture<'a, HostResult<Output>> {
        Box::pin(command::run_until(command, Some(QUESTION), &self.stop))
    }

    fn now(&self) -> i64 {
        clock::seconds()
    }

    fn sleep(&self, seconds: f64) -> HostFuture<'_, ()> {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Box::pin(tokio::time::sleep(time))
    }

    fn stop_reason(&self) -> Option<String> {
        self.stop.reason()
    }

    fn perform<'a>(&'a self, effect: &'a Effect) -> HostFuture<'a, HostResult<Output>> {
        Box::pin(self.carry_out(effect))
    }
}
