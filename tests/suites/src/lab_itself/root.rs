//! A root that contains only the shipped programs, and a network in which they run.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use halite_api::{Document, from_text};
use halite_lab::build::Programs;
use halite_lab::command::{output, run};
use halite_lab::progress::Board;
use tempfile::TempDir;

/// Directory of the programs, in the root as on a host.
const PROGRAMS: &str = "usr/local/bin";

/// A root, the network of its programs, and its running daemons.
pub struct Root {
    dir: TempDir,
    namespace: String,
    running: Vec<(&'static str, Child)>,
}

impl Drop for Root {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // The daemon may already have exited.
            let _ = child.kill();
            let _ = child.wait();
        }
        // A failure here has no remedy; the name is not used again.
        let _ = output("ip", &["netns", "del", &self.namespace]);
    }
}

impl Root {
    /// Makes the root, and a network with the addresses of a bootstrap host and a worker.
    pub fn new(programs: Programs) -> Result<Self> {
        let programs = programs.build(&Board::plain())?;
        let namespace = format!("hl-bare-root-{}", std::process::id());
        run("ip", &["netns", "add", &namespace])?;
        let root = Self {
            dir: tempfile::tempdir()?,
            namespace,
            running: Vec::new(),
        };
        for name in ["ctl", "halite-master", "halite-minion"] {
            let target = root.path(PROGRAMS).join(name);
            fs::create_dir_all(root.path(PROGRAMS))?;
            fs::copy(programs.join(name), target)
                .with_context(|| format!("no {name} was built"))?;
        }
        for directory in ["tmp", "dev", "etc/halite", "media/halite/states/motd"] {
            fs::create_dir_all(root.path(directory))?;
        }
        // Devices that every kernel provides: a static program reads the random devices, not libc.
        for (device, minor) in [("null", "3"), ("random", "8"), ("urandom", "9")] {
            let path = root.path("dev").join(device);
            run(
                "mknod",
                &["-m", "666", &path.to_string_lossy(), "c", "1", minor],
            )?;
        }
        // The two ends of a veth pair: the bootstrap host's address and the worker's.
        let ns = root.namespace.as_str();
        run("ip", &["-n", ns, "link", "set", "lo", "up"])?;
        run(
            "ip",
            &[
                "-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1",
            ],
        )?;
        for (interface, address) in [("eth0", "10.10.0.11/24"), ("eth1", "10.10.1.12/24")] {
            run("ip", &["-n", ns, "addr", "add", address, "dev", interface])?;
            run("ip", &["-n", ns, "link", "set", interface, "up"])?;
        }
        Ok(root)
    }

    /// The path of the root's file on the machine.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    /// Writes a file.
    pub fn put(&self, inside: &str, text: &str) -> Result<()> {
        fs::write(self.path(inside), text).with_context(|| format!("cannot write {inside}"))
    }

    /// A command that will run in the root, with an empty environment.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace, "chroot"])
            .arg(self.dir.path());
        command.arg(format!("/{PROGRAMS}/{program}")).args(args);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Runs a program and returns its output, whatever its exit status.
    pub fn output(&self, program: &str, args: &[&str]) -> Result<Output> {
        self.command(program, args)
            .output()
            .with_context(|| format!("cannot start {program}"))
    }

    /// Runs a program that must succeed, and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self.output(program, args)?;
        succeeded(&format!("{program} {}", args.join(" ")), &output)
    }

    /// Runs `ctl` and reads the document of `halite-api` that it prints.
    pub fn document<T: Document>(&self, args: &[&str]) -> Result<T> {
        let text = self.run("ctl", &[args, ["-o", "json"].as_slice()].concat())?;
        from_text(&text).with_context(|| format!("the answer of ctl {}", args.join(" ")))
    }

    /// Starts a daemon; its log goes to a file next to the root.
    pub fn start(&mut self, program: &'static str) -> Result<()> {
        let log = fs::File::create(self.path(&format!("{program}.log")))?;
        let child = self
            .command(program, &["run"])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.running.push((program, child));
        Ok(())
    }

    /// The daemons' logs, for the message of a failure.
    pub fn said(&self) -> String {
        let log =
            |name: &str| fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        self.running
            .iter()
            .map(|(name, _)| format!("\n{name} said:\n{}", log(name)))
            .collect()
    }
}

/// The output of a command; an error with its messages if it failed.
pub fn succeeded(what: &str, output: &Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{what} ended with {}: {said}{}",
            output.status,
            errors.trim()
        );
    }
    Ok(said)
}
