//! One real host: `systemd-nspawn -b` on an overlay of the base root, in a network namespace and
//! cgroups of its own.

mod disks;

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use disks::DATA;
use serde::{Deserialize, Serialize};

use super::command::{output, run};
use super::groups::PREFIX;
use super::net::{Network, Router, namespace_exists};
use super::role::Role;
use super::{groups, wait, watched};

/// Parameters of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Host name, unique in its lab.
    pub name: String,
    /// Host number in each of its networks.
    pub number: u8,
    /// `true` if its control-plane interface is in the second of the control-plane networks.
    pub second_network: bool,
    /// Read-only directories: machine path to path in the host.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// Inotify instances that it takes once everything is installed; see [`super::capacity`].
    #[serde(default = "super::capacity::unknown")]
    pub inotify: usize,
    /// Its roles in the lab's cluster; empty for a host outside of it.
    #[serde(default)]
    pub roles: Vec<Role>,
    /// Its base root, if it is not the lab's.
    #[serde(default)]
    pub base: Option<PathBuf>,
}

/// A host of a lab.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its parameters.
    pub spec: Spec,
    lab: String,
    dir: PathBuf,
    base: PathBuf,
}

impl Host {
    /// The host `spec` of the lab `lab`, with its files below `dir`, on the base root `base`.
    #[must_use]
    pub fn new(lab: &str, dir: &Path, base: &Path, spec: Spec) -> Self {
        Self {
            dir: dir.join("hosts").join(&spec.name),
            lab: lab.to_owned(),
            base: spec.base.clone().unwrap_or_else(|| base.to_owned()),
            spec,
        }
    }

    /// Its network namespace.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.machine()
    }

    fn control_plane_network(&self) -> Network {
        if self.spec.second_network {
            Network::ControlPlane1
        } else {
            Network::ControlPlane0
        }
    }

    /// Its networks, in the order of its interfaces.
    pub(crate) fn networks(&self) -> [Network; 2] {
        [self.control_plane_network(), Network::Workload]
    }

    /// Its address in the control plane.
    #[must_use]
    pub fn control_plane_address(&self) -> String {
        self.control_plane_network().address(self.spec.number)
    }

    /// Its address in the workload plane.
    #[must_use]
    pub fn workload_address(&self) -> String {
        Network::Workload.address(self.spec.number)
    }

    /// Its name among all labs' hosts; its control groups have it too.
    pub(super) fn machine(&self) -> String {
        format!("{PREFIX}{}-{}", self.lab, self.spec.name)
    }

    /// Boots the host and waits until systemd reports that it runs. Booting again after
    /// [`Self::power_cut`] finds the disk unchanged, the cables plugged in, and nothing else.
    pub fn boot(&self, router: &Router) -> Result<()> {
        if self.init().is_some() {
            return Ok(());
        }
        self.plug(router)?;
        self.mount()?;
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn
            .args([
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
                "--console=pipe",
                "--capability=all",
            ])
            // All hosts share one clock, the machine's.
            .arg("--drop-capability=CAP_SYS_TIME")
            .args([
                "--system-call-filter=add_key keyctl bpf @keyring",
                "--link-journal=no",
            ])
            .args(["--resolv-conf=off", "--timezone=off"])
            .arg(format!("--machine={}", self.machine()))
            .arg(format!("--hostname={}", self.spec.name))
            .arg(format!(
                "--network-namespace-path=/run/netns/{}",
                self.namespace()
            ))
            .arg("--directory")
            .arg(self.root());
        for data in DATA {
            let source = self.data(data);
            fs::create_dir_all(&source)?;
            nspawn.arg(format!("--bind={}:/{data}", source.display()));
        }
        for (source, target) in &self.spec.read_only {
            nspawn.arg(format!(
                "--bind-ro={}:{}",
                source.display(),
                target.display()
            ));
        }
        let groups = groups::make(&self.machine())?;
        let console = fs::File::create(self.dir.join("console.log"))?;
        // The shell moves itself into the host's groups, then becomes nspawn, whose cgroup
        // namespace starts there.
        let joins: String = groups
            .iter()
            .map(|g| format!("echo $$ > {}/cgroup.procs; ", g.display()))
            .collect();
        let child = Command::new("sh")
            .arg("-ec")
            .arg(format!("{joins} exec \"$@\""))
            .arg("sh")
            .arg(nspawn.get_program())
            .args(nspawn.get_args())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            .process_group(0)
            .spawn()
            .context("cannot start systemd-nspawn")?;
        fs::write(self.dir.join("nspawn.pid"), child.id().to_string())?;
        wait::until(
            &format!("{} to boot", self.spec.name),
            Duration::from_secs(180),
            || {
                let state = self.output(&["systemctl", "is-system-running"])?;
                let text = String::from_utf8_lossy(&state.stdout).trim().to_owned();
                if text == "running" || text == "degraded" {
                    Ok(())
                } else {
                    // Others may have taken the inotify instances since the check; systemd then
                    // waits forever.
                    Err(anyhow!(
                        "systemd says {text:?}; if its journal says \"Failed to create inotify object\", stop another lab \
                     or raise fs.inotify.max_user_instances"
                    ))
                }
            },
        )
    }

    fn plug(&self, router: &Router) -> Result<()> {
        let ns = self.namespace();
        if namespace_exists(&ns) {
            return Ok(());
        }
        run("ip", &["netns", "add", &ns])?;
        run("ip", &["-n", &ns, "link", "set", "lo", "up"])?;
        router.plug(&ns, "eth0", self.control_plane_network(), self.spec.number)?;
        router.plug(&ns, "eth1", Network::Workload, self.spec.number)?;
        let gateway = format!("{}.1", self.control_plane_network().prefix());
        run(
            "ip",
            &["-n", &ns, "route", "add", "default", "via", &gateway],
        )?;
        Ok(())
    }

    /// Pid of its container manager, the nspawn process, if that runs.
    #[must_use]
    pub fn nspawn(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.dir.join("nspawn.pid"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        line.contains(&format!("--machine={}", self.machine()))
            .then_some(pid)
    }

    /// Pid of the host's init on the machine, if the host runs.
    #[must_use]
    pub fn init(&self) -> Option<u32> {
        // The init, and the host with it, outlives its container manager.
        self.of_nspawn().or_else(|| groups::init(&self.machine()))
    }

    /// The child of its container manager, which is found at once.
    fn of_nspawn(&self) -> Option<u32> {
        let nspawn = self.nspawn()?;
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// The pid of its init; refuses a host that is off, and names the command that boots it.
    pub fn is_on(&self) -> Result<u32> {
        self.init().with_context(|| {
            format!(
                "{0} is off; cargo lab power-on {0} --lab {1} boots it",
                self.spec.name, self.lab
            )
        })
    }

    /// A command that will run inside the host as root, as if logged in.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Command> {
        let init = self.is_on()?;
        let mut command = Command::new("nsenter");
        command
            .args([
                "-t",
                &init.to_string(),
                "--all",
                "--wdns=/root",
                "env",
                "-i",
            ])
            .args(["HOME=/root", "TERM=dumb", "LANG=C.UTF-8"])
            .arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .args(args);
        Ok(command)
    }

    /// Runs a command inside and returns its status and output. No step that a `ctl` shows may be
    /// silent.
    pub fn output<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output> {
        let mut command = self.command(args)?;
        command.stdin(Stdio::null());
        if is_ctl(args) {
            let words = displayed(args);
            return watched::run(command.stderr(Stdio::piped()), &words, |_| Ok(()));
        }
        command.output().context("cannot start nsenter")
    }

    /// Runs a command of `ctl` inside, and shows its output. None of its steps may be silent.
    pub fn show<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<ExitStatus> {
        let mut command = self.command(args)?;
        if std::io::stdout().is_terminal() {
            // There, it has a line that changes all the time.
            return command.status().context("cannot start nsenter");
        }
        let done = watched::run(&mut command, &displayed(args), watched::show)?;
        Ok(done.status)
    }

    /// Runs a command inside and returns its standard output; fails if it fails.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        let output = self.output(args)?;
        if !output.status.success() {
            bail!(
                "on {}: {} ended with {}: {}{}",
                self.spec.name,
                displayed(args),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a shell line inside.
    pub fn sh(&self, line: &str) -> Result<String> {
        self.run(&["sh", "-c", line])
    }

    /// Cuts the power: every process of the host is gone at once, nothing is shut down, and the
    /// kernel's state for it (addresses, routes, packet filter, control groups) is gone too.
    pub fn power_cut(&self) -> Result<()> {
        cut_power(std::slice::from_ref(self))
    }

    fn unplug(&self) -> Result<()> {
        let ns = self.namespace();
        if namespace_exists(&ns) {
            // A namespace is removed some time after its deletion; its cables must be free at once.
            for interface in ["eth0", "eth1"] {
                output("ip", &["-n", &ns, "link", "del", interface])?;
            }
            run("ip", &["netns", "del", &ns])?;
        }
        Ok(())
    }
}

/// Returns whether it is a command of `ctl`.
fn is_ctl<S: AsRef<OsStr>>(args: &[S]) -> bool {
    let program = args.first().map(|program| Path::new(program.as_ref()));
    program.and_then(Path::file_name) == Some(OsStr::new("ctl"))
}

fn displayed<S: AsRef<OsStr>>(args: &[S]) -> String {
    let words = args.iter().map(|word| word.as_ref().to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// Cuts the power of several hosts at the same moment; see [`Host::power_cut`].
pub fn cut_power(hosts: &[Host]) -> Result<()> {
    let inits: Vec<String> = hosts
        .iter()
        .filter_map(Host::init)
        .map(|pid| pid.to_string())
        .collect();
    if !inits.is_empty() {
        let kill = [&["-9".to_owned()], inits.as_slice()].concat();
        run("kill", &kill)?;
    }
    for host in hosts {
        wait::until(
            &format!("{} to lose power", host.spec.name),
            Duration::from_secs(90),
            || {
                if host.nspawn().is_none() && host.init().is_none() {
                    return Ok(());
                }
                groups::thaw(&host.machine())?;
                Err(anyhow!("its init or its container manager still runs"))
            },
        )?;
        host.unplug()?;
        groups::remove(&host.machine())?;
    }
    Ok(())
}
