//! The fake host's state, and its answers from that state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_minion::host::accounts::Accounts;
use halite_minion::host::effect::{Command, Effect, Output, PackageOptions, Trust};
use halite_minion::host::{
    FirewallNames, FirewallView, Group, Host, HostError, HostFuture, HostResult, IpsetView,
    MountPoint, PackageManager, Stat, UnitState, User, static_pod,
};

use crate::ca::FakeCas;
use crate::disk::{CRASHED, Covered, Disk, Node};

/// A package that a repository offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Version.
    pub version: String,
    /// Its files.
    pub files: Vec<(String, Vec<u8>)>,
    /// Its units, loaded and disabled.
    pub units: Vec<String>,
    /// Virtual packages that it provides.
    pub provides: Vec<String>,
}

/// A path and its new content; `None` removes it.
pub type Later = (String, Option<Vec<u8>>);

/// Answers a command that the fake does not know; `None` passes it on.
pub type CommandHook = fn(&mut FakeState, &Command) -> Option<Output>;

/// The whole state of the fake host. A test reads and changes any field.
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each is what Host asks for under the same name"
)]
pub struct FakeState {
    pub disk: Disk,
    pub manager: PackageManager,
    pub packages: BTreeMap<String, String>,
    /// Packages whose installation or removal was cut off.
    pub cut_off: BTreeMap<String, String>,
    /// Packages on hold.
    pub held: BTreeSet<String>,
    /// Packages that the installation of another one removes, by the name of that one.
    pub conflicts: BTreeMap<String, Vec<String>>,
    /// Packages that the repositories offer.
    pub offered: BTreeMap<String, Offer>,
    pub units: BTreeMap<String, UnitState>,
    /// Number of starts of each unit: on a real host, the invocation id shows this.
    pub starts: BTreeMap<String, u64>,
    /// Units that fail when started.
    pub failing: BTreeSet<String>,
    /// Units whose program ends at once after a successful start.
    pub dying: BTreeSet<String>,
    pub accounts: Accounts,
    /// Current values.
    pub sysctls: BTreeMap<String, String>,
    /// Values at boot.
    pub boot_sysctls: BTreeMap<String, String>,
    pub modules: BTreeSet<String>,
    /// Modules that can be loaded.
    pub loadable: BTreeSet<String>,
    pub mounts: Vec<MountPoint>,
    /// Files of devices, by their path in the file system.
    pub volumes: BTreeMap<String, BTreeMap<String, Node>>,
    /// Files under mount points.
    pub(crate) covered: BTreeMap<String, Covered>,
    /// Devices that mount(8) refuses.
    pub unmountable: BTreeSet<String>,
    pub swaps: Vec<String>,
    pub zones: BTreeMap<String, FirewallView>,
    pub policies: BTreeMap<String, FirewallView>,
    pub ipsets: BTreeMap<String, IpsetView>,
    pub images: BTreeSet<String>,
    /// Images that can be pulled.
    pub registry: BTreeSet<String>,
    /// Answers by URL; each is given once, the last one repeatedly.
    pub http: BTreeMap<String, VecDeque<Option<(u16, String)>>>,
    /// URLs of servers whose certificates no CA of the host has signed.
    pub untrusted: BTreeSet<String>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Results by `argv`; `true`, `false`, `exit N`, `echo …` and `test -e|-f|-d PATH` need no
    /// entry.
    pub answers: BTreeMap<Vec<String>, Output>,
    /// Asked before everything else.
    pub hook: Option<CommandHook>,
    /// Commands that were run as effects.
    pub ran: Vec<Command>,
    /// Commands that a hook recorded.
    pub asked: Vec<Command>,
    /// Effects that were carried out.
    pub performed: Vec<Effect>,
    /// Number of repository refreshes.
    pub refreshes: u64,
    /// Milliseconds since the epoch.
    pub clock: i64,
    /// Files that the host's other programs write or (`None`) remove while the host sleeps, by the
    /// time of the clock.
    pub later: BTreeMap<i64, Vec<Later>>,
    /// CAs that sign on this host.
    pub cas: FakeCas,
}

impl Default for FakeState {
    fn default() -> Self {
        let root = User {
            name: "root".into(),
            home: "/root".into(),
            shell: "/bin/bash".into(),
            ..User::default()
        };
        let group = Group {
            name: "root".into(),
            ..Group::default()
        };
        let mut disk = Disk::default();
        for path in [
            "/etc/systemd/system",
            "/etc/sysctl.d",
            "/etc/modules-load.d",
            "/usr/bin",
            "/usr/lib/systemd/system",
            "/var/lib",
            "/run",
            "/tmp",
            "/root",
        ] {
            disk.put(path, Node::directory());
        }
        Self {
            disk,
            manager: PackageManager::Apt,
            packages: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            held: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            offered: BTreeMap::new(),
            units: BTreeMap::new(),
            starts: BTreeMap::new(),
            failing: BTreeSet::new(),
            dying: BTreeSet::new(),
            accounts: Accounts {
                users: BTreeMap::from([("root".into(), Some(root))]),
                groups: BTreeMap::from([("root".into(), Some(group))]),
            },
            sysctls: BTreeMap::new(),
            boot_sysctls: BTreeMap::new(),
            modules: BTreeSet::new(),
            loadable: BTreeSet::new(),
            mounts: Vec::new(),
            volumes: BTreeMap::new(),
            covered: BTreeMap::new(),
            unmountable: BTreeSet::new(),
            swaps: Vec::new(),
            zones: BTreeMap::new(),
            policies: BTreeMap::new(),
            ipsets: BTreeMap::new(),
            images: BTreeSet::new(),
            registry: BTreeSet::new(),
            http: BTreeMap::new(),
            untrusted: BTreeSet::new(),
            blobs: BTreeMap::new(),
            answers: BTreeMap::new(),
            hook: None,
            ran: Vec::new(),
            asked: Vec::new(),
            performed: Vec::new(),
            refreshes: 0,
            clock: 1_750_000_000_000,
            later: BTreeMap::new(),
            cas: FakeCas::default(),
        }
    }
}

impl FakeState {
    /// A file of root's, mode 0644, with its directories.
    pub fn put_file(&mut self, path: &str, content: &[u8]) {
        self.disk.put(path, Node::file(content));
    }

    /// A loaded unit: `active` or not, `enabled` or not.
    pub fn put_unit(&mut self, name: &str, active: bool, enabled: bool) {
        let state = UnitState {
            load: "loaded".into(),
            active: if active { "active" } else { "inactive" }.into(),
            file: if enabled { "enabled" } else { "disabled" }.into(),
            needs_reload: false,
        };
        self.units.insert(name.to_owned(), state);
    }

    /// A user with a home, which is not created.
    pub fn put_user(&mut self, name: &str, home: &str) {
        let user = User {
            name: name.to_owned(),
            home: home.to_owned(),
            ..User::default()
        };
        self.accounts.users.insert(name.to_owned(), Some(user));
    }

    /// A kernel parameter with its value at boot.
    pub fn put_sysctl(&mut self, key: &str, value: &str) {
        self.sysctls.insert(key.to_owned(), value.to_owned());
        self.boot_sysctls.insert(key.to_owned(), value.to_owned());
    }

    /// Result of a command.
    pub fn answer(&mut self, argv: &[&str], code: i32, stdout: &str) {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        self.answers.insert(
            argv,
            Output {
                code,
                stdout: stdout.to_owned(),
                stderr: String::new(),
            },
        );
    }

    /// Lets the host's other programs write files whose time has come.
    fn catch_up(&mut self) {
        let coming = self.later.split_off(&(self.clock + 1));
        let due = std::mem::replace(&mut self.later, coming);
        for (path, content) in due.into_values().flatten() {
            match content {
                Some(content) => self.disk.put(&path, Node::file(&content)),
                None => self.disk.take(&path),
            }
        }
    }

    /// Cuts the power and restarts: files that were not fsynced are lost, and so is everything in
    /// memory.
    pub fn reboot(&mut self) {
        self.disk.reboot();
        self.sysctls.clone_from(&self.boot_sysctls);
        self.modules.clear();
        self.mounts.clear();
        for unit in self.units.values_mut() {
            unit.active = if unit.file == "enabled" {
                "active"
            } else {
                "inactive"
            }
            .to_owned();
            unit.needs_reload = false;
        }
        for view in self.zones.values_mut().chain(self.policies.values_mut()) {
            view.runtime.clone_from(&view.permanent);
        }
        for view in self.ipsets.values_mut() {
            view.runtime.clone_from(&view.permanent);
        }
        self.ipsets.retain(|_, v| v.permanent.is_some());
        let gone = |view: &FirewallView| view.permanent.is_some();
        self.zones.retain(|_, v| gone(v));
        self.policies.retain(|_, v| gone(v));
    }

    /// Tests whether a server's certificate is accepted; a given CA has signed all of them.
    pub(crate) fn trusts(&self, url: &str, trust: &Trust) -> bool {
        *trust != Trust::Host || !self.untrusted.contains(url)
    }
}

/// The fake host. It starts as a bare Debian: root, a few directories, nothing else.
#[derive(Debug, Default)]
pub struct FakeHost(Mutex<FakeState>);

impl FakeHost {
    /// A bare host.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state, to inspect or change. Do not hold it across an await.
    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power after `n` more primitive writes; see [`Disk::crash_after`].
    pub fn crash_after(&self, n: u64) {
        self.state().disk.crash_after(n);
    }

    /// Number of primitive writes so far.
    pub fn writes(&self) -> u64 {
        self.state().disk.writes()
    }

    /// See [`FakeState::reboot`].
    pub fn reboot(&self) {
        self.state().reboot();
    }

    /// A file's content as text, for assertions.
    pub fn text(&self, path: &str) -> Option<String> {
        self.state()
            .disk
            .read(path)
            .map(|c| String::from_utf8_lossy(c).into_owned())
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        question: impl FnOnce(&mut FakeState) -> HostResult<T>,
    ) -> HostFuture<'a, HostResult<T>> {
        let mut state = self.state();
        let answer = if state.disk.crashed() {
            Err(HostError::refused(CRASHED))
        } else {
            question(&mut state)
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Host for FakeHost {
    fn stat<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Stat>>> {
        self.ask(|s| Ok(s.disk.stat(path)))
    }

    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        self.ask(|s| Ok(s.disk.read(path).map(<[u8]>::to_vec)))
    }

    fn list<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Vec<String>>> {
        self.ask(|s| Ok(s.disk.list(path)))
    }

    fn unit<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<UnitState>> {
        self.ask(|s| Ok(s.unit_state(name)))
    }

    fn packages(&self) -> HostFuture<'_, HostResult<Arc<BTreeMap<String, String>>>> {
        self.ask(|s| Ok(Arc::new(s.packages.clone())))
    }

    fn cut_off_packages(&self) -> HostFuture<'_, HostResult<BTreeMap<String, String>>> {
        self.ask(|s| Ok(s.cut_off.clone()))
    }

    fn removed_by<'a>(
        &'a self,
        install: &'a BTreeMap<String, Option<String>>,
        _: PackageOptions,
    ) -> HostFuture<'a, HostResult<BTreeSet<String>>> {
        self.ask(move |s| Ok(s.in_the_way(install)))
    }

    fn held_packages(&self) -> HostFuture<'_, HostResult<BTreeSet<String>>> {
        self.ask(|s| Ok(s.held.clone()))
    }

    fn package_candidate<'a>(
        &'a self,
        name: &'a str,
        _: bool,
    ) -> HostFuture<'a, HostResult<Option<String>>> {
        self.ask(|s| Ok(s.offered.get(name).map(|o| o.version.clone())))
    }

    fn package_provider<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        self.ask(|s| {
            let found = s.offer_for(name).map(|(package, _)| package.clone());
            Ok(found.filter(|package| s.packages.contains_key(package)))
        })
    }

    fn package_manager(&self) -> HostFuture<'_, HostResult<PackageManager>> {
        self.ask(|s| Ok(s.manager))
    }

    fn user<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<User>>> {
        self.ask(|s| Ok(s.accounts.user(name).cloned()))
    }

    fn group<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<Group>>> {
        self.ask(|s| Ok(s.accounts.group(name).cloned()))
    }

    fn sysctl<'a>(&'a self, key: &'a str) -> HostFuture<'a, HostResult<Option<String>>> {
        self.ask(|s| {
            Ok(s.sysctl_name(key)?
                .and_then(|name| s.sysctls.get(&name).cloned()))
        })
    }

    fn kernel_module<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<bool>> {
        self.ask(|s| Ok(s.modules.contains(name)))
    }

    fn mounts(&self) -> HostFuture<'_, HostResult<Vec<MountPoint>>> {
        self.ask(|s| Ok(s.mounts.clone()))
    }

    fn swaps(&self) -> HostFuture<'_, HostResult<Vec<String>>> {
        self.ask(|s| Ok(s.swaps.clone()))
    }

    fn firewall_zone<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        self.ask(|s| Ok(s.zones.get(name).cloned().unwrap_or_default()))
    }

    fn firewall_policy<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>> {
        self.ask(|s| Ok(s.policies.get(name).cloned().unwrap_or_default()))
    }

    fn firewall_ipset<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<IpsetView>> {
        self.ask(|s| Ok(s.ipsets.get(name).cloned().unwrap_or_default()))
    }

    fn firewall_names(&self) -> HostFuture<'_, HostResult<FirewallNames>> {
        self.ask(|s| {
            Ok(FirewallNames {
                zones: s.zones.keys().cloned().collect(),
                policies: s.policies.keys().cloned().collect(),
                ipsets: s.ipsets.keys().cloned().collect(),
            })
        })
    }

    fn image<'a>(&'a self, reference: &'a str) -> HostFuture<'a, HostResult<bool>> {
        self.ask(|s| Ok(s.images.contains(reference)))
    }

    fn http_get<'a>(
        &'a self,
        url: &'a str,
        trust: &'a Trust,
    ) -> HostFuture<'a, HostResult<Option<(u16, String)>>> {
        self.ask(|s| {
            if !s.trusts(url, trust) {
                return Ok(None);
            }
            let Some(answers) = s.http.get_mut(url) else {
                return Ok(None);
            };
            let answer = if answers.len() > 1 {
                answers.pop_front()
            } else {
                answers.front().cloned()
            };
            Ok(answer.flatten())
        })
    }

    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>> {
        self.ask(|s| {
            s.blobs
                .get(sha256)
                .cloned()
                .ok_or_else(|| HostError::refused(format!("there is no blob {sha256}")))
        })
    }

    fn query<'a>(&'a self, command: &'a Command) -> HostFuture<'a, HostResult<Output>> {
        self.ask(|s| Ok(s.command(command)))
    }

    fn now(&self) -> i64 {
        self.state().clock / 1000
    }

    fn sleep(&self, seconds: f64) -> HostFuture<'_, ()> {
        let milliseconds = (seconds * 1000.0) as i64;
        let mut state = self.state();
        state.clock += milliseconds;
        state.catch_up();
        Box::pin(std::future::ready(()))
    }

    fn perform<'a>(&'a self, effect: &'a Effect) -> HostFuture<'a, HostResult<Output>> {
        let performed = self.ask(|s| {
            s.performed.push(effect.clone());
            s.perform(effect)
        });
        match effect {
            Effect::StaticPod(pod) => Box::pin(async move {
                performed.await?;
                static_pod::wait(self, pod).await
            }),
            _ => performed,
        }
    }
}
