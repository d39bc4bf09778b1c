//! Halite's own packages, installed by the real dpkg in a bare root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::{output, run};
use halite_lab::progress::Board;
use halite_upstream::prepare;

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<()>] = &[Test {
    name: "packages: ours are installed, work and are removed without starting anything",
    run: come_and_go,
}];

/// The packages, each with one of its main files.
const OURS: &[(&str, &str)] = &[
    ("halite-ctl", "usr/bin/ctl"),
    (
        "halite-master",
        "usr/lib/systemd/system/halite-master.service",
    ),
    (
        "halite-minion",
        "usr/lib/systemd/system/halite-minion.service",
    ),
];

/// Manual pages of every section in the packages.
const PAGES: &[(&str, &str)] = &[
    ("1", "ctl"),
    ("1", "ctl-bundle-build"),
    ("5", "halite-master.yaml"),
    ("5", "halite-minion.yaml"),
    ("8", "halite-master"),
    ("8", "halite-minion-enrol"),
];

fn come_and_go((): &()) -> Result<Counts> {
    let bundle = prepare::bundle(&Board::silent())?;
    let root = Root::new("packages-")?;
    let mut archives = vec!["dpkg".to_owned(), "--install".to_owned()];
    for (package, _) in OURS {
        let pool = bundle.join("apt/pool");
        let archive = fs::read_dir(&pool)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{package}_")))
            });
        let archive = archive.with_context(|| format!("{} has no {package}", pool.display()))?;
        let name = format!("/tmp/{package}.deb");
        fs::copy(&archive, root.path(&name))?;
        archives.push(name);
    }
    // The second installation is an upgrade to the same version: the scripts run again.
    for _ in 0..2 {
        root.run(&archives)?;
    }
    for (package, file) in OURS {
        let status = root.run(&[
            "dpkg-query",
            "--show",
            "--showformat=${db:Status-Abbrev}",
            package,
        ])?;
        ensure!(status.trim() == "ii", "{package} is {status}");
        let changed = root.run(&["dpkg", "--verify", package])?;
        ensure!(changed.is_empty(), "{package} was changed: {changed}");
        ensure!(root.path(file).exists(), "{package} has no {file}");
    }
    ensure!(
        root.run(&["ctl", "--version"])?.starts_with("ctl "),
        "ctl does not run"
    );
    units(&root)?;
    pages(&root)?;
    completions(&root)?;
    let mut gone = vec!["dpkg", "--purge"];
    gone.extend(OURS.iter().map(|(package, _)| *package));
    root.run(&gone)?;
    let at = root.path("/").display().to_string();
    let search = [
        at.as_str(),
        "-path",
        "*/tmp",
        "-prune",
        "-o",
        "-name",
        "*halite*",
        "-print",
    ];
    let left = String::from_utf8(output("find", &search)?.stdout)?;
    let left: Vec<&str> = left
        .lines()
        .filter(|path| !path.contains("/var/log/"))
        .collect();
    ensure!(left.is_empty(), "the packages left {left:?}");
    Ok(Counts::ONE)
}

/// Checks that systemd accepts the units, and that none is enabled.
fn units(root: &Root) -> Result<()> {
    let units = ["halite-master.service", "halite-minion.service"];
    let mut verify = vec!["systemd-analyze", "--man=no", "verify"];
    verify.extend(units);
    let said = root.run(&verify)?;
    ensure!(said.is_empty(), "systemd reports about the units: {said}");
    for unit in units {
        let state = root.command(&["systemctl", "is-enabled", unit]).output()?;
        let state = String::from_utf8_lossy(&state.stdout);
        ensure!(state.trim() == "disabled", "{unit} is {state}");
    }
    Ok(())
}

/// Checks that the machine's `man` reads the root's pages without a complaint.
fn pages(root: &Root) -> Result<()> {
    let pages = root.path("usr/share/man");
    for (section, page) in PAGES {
        let shown = Command::new("man")
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8")
            .args(["--warnings=w", "-E", "UTF-8", "-P", "cat", "-M"])
            .arg(&pages)
            .args([section, page])
            .output()
            .context("man is not installed")?;
        let complaints = String::from_utf8_lossy(&shown.stderr);
        ensure!(
            shown.status.success() && complaints.is_empty(),
            "{page}({section}): {complaints}"
        );
        let text = String::from_utf8_lossy(&shown.stdout);
        ensure!(
            text.contains("NAME") && text.contains("DESCRIPTION"),
            "{page}({section}): {text}"
        );
    }
    Ok(())
}

/// Checks the installed completion for bash, in the root.
fn completions(root: &Root) -> Result<()> {
    let ask = ". /usr/share/bash-completion/completions/ctl; COMP_WORDS=(ctl bundle ver); COMP_CWORD=2; \
               _clap_complete_ctl ctl ver bundle; echo \"${COMPREPLY[*]}\"";
    let said = root.run(&["bash", "-c", ask])?;
    ensure!(said.trim() == "verify", "bash would complete: {said}");
    for path in [
        "usr/share/zsh/vendor-completions/_ctl",
        "usr/share/fish/vendor_completions.d/ctl.fish",
    ] {
        ensure!(root.path(path).is_file(), "there is no {path}");
    }
    Ok(())
}

/// The base root with an overlay that is removed on drop.
pub(super) struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    /// Mounts it; `prefix` begins the name of its directory.
    pub(super) fn new(prefix: &str) -> Result<Self> {
        let cache = halite_lab::cache();
        let base = halite_lab::base::ensure(&cache, &mut |_| ())?;
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(&cache)?;
        for name in ["upper", "work", "root"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let at = |name: &str| dir.path().join(name).display().to_string();
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            base.display(),
            at("upper"),
            at("work")
        );
        run(
            "mount",
            &["-t", "overlay", "overlay", "-o", &layers, &at("root")],
        )?;
        Ok(Self { dir })
    }

    /// The path of one of its files, on the machine.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.dir
            .path()
            .join("root")
            .join(below.trim_start_matches('/'))
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("chroot");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C.UTF-8")
            .arg(self.path("/"))
            .args(words);
        command
    }

    /// Runs a program in the root; returns its output, on both streams.
    fn run<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Result<String> {
        let done = self.command(words).output()?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        let name = words
            .first()
            .map(|word| word.as_ref().to_string_lossy().into_owned())
            .unwrap_or_default();
        ensure!(
            done.status.success(),
            "{name} ended with {}: {said}",
            done.status
        );
        Ok(said)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A failure has no remedy; the directory is not used again.
        let root: &Path = &self.path("/");
        let _ = run("umount", &["--lazy", &root.to_string_lossy()]);
    }
}
