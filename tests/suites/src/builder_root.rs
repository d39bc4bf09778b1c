//! A bare Debian as the builder's machine: it has the files of a release. For bundles, the lab's
//! mirror takes the place of the public servers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::OPTION_SETS;
use halite_lab::command::run;
use halite_lab::progress::Board;
use halite_upstream::prepare;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::iso::recipe_of;
use crate::packages::Root;

/// The settings of the machine with which apt reaches its servers.
const APT: [&str; 3] = ["/etc/apt", "/etc/resolv.conf", "/etc/ssl/certs"];

/// The directory of Halite's programs after the installation of its packages.
const PROGRAMS: &str = "/usr/lib/halite";

/// An image of a recipe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecipeImage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) component: Option<String>,
    pub(super) reference: String,
    /// The OCI layout that contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) licence: Option<String>,
}

/// The root of a bare Debian with the files of a release.
pub(super) struct BuilderRoot {
    root: Root,
}

impl BuilderRoot {
    /// Makes a release, and a root with its files in the directory `downloaded`, in which apt knows
    /// its servers' packages.
    pub(super) fn new(downloaded: &str) -> Result<Self> {
        let options = halite_release::Options {
            out: Some(halite_lab::cache().join("release")),
            key: None,
        };
        let release = halite_release::make(&options, &Board::silent())?;
        let root = Root::new("release-")?;
        for path in APT {
            copy(OsStr::new("-aT"), Path::new(path), &root.path(path))?;
        }
        copy(OsStr::new("-r"), &release, &root.path(downloaded))?;
        let root = Self { root };
        root.shell("apt-get update -qq")?;
        Ok(root)
    }

    /// The path of one of its files, on the machine.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.path(below)
    }

    /// Runs a script in the root, in the machine's network; returns its output on both streams.
    pub(super) fn shell(&self, script: &str) -> Result<String> {
        self.run(Command::new("unshare"), script)
    }

    /// The same in a network namespace.
    pub(super) fn shell_in(&self, namespace: &str, script: &str) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}"));
        command.arg("unshare");
        self.run(command, script)
    }

    /// The root has `/proc` and the lab's cache while the script runs. The mounts are in a
    /// namespace of their own, so nothing that removes the root can reach the cache.
    fn run(&self, mut unshare: Command, script: &str) -> Result<String> {
        let mounts = "set -e; mount -t proc proc \"$1/proc\"; mkdir -p \"$1$2\"; mount --bind \"$2\" \"$1$2\"; \
                      exec chroot \"$1\" sh -ec \"$3\"";
        let output = unshare
            .args(["--mount", "sh", "-c", mounts, "sh"])
            .arg(self.path("/"))
            .arg(std::path::absolute(halite_lab::cache())?)
            .arg(script)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("HOME", "/root")
            .env("LC_ALL", "C.UTF-8")
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            // A quarter of an operator's sets of options.
            .env(OPTION_SETS, "covering")
            .output()?;
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        ensure!(
            output.status.success(),
            "in a bare Debian, this ended with {}:\n{script}\n{}",
            output.status,
            said.concat()
        );
        Ok(said.concat())
    }

    /// Writes the recipe and the lock of the lab's mirror into a directory of the root: its images,
    /// packages and programs, with everything of Halite from the installed packages. `change` may
    /// add images.
    pub(super) fn use_the_mirror(
        &self,
        work: &str,
        change: impl FnOnce(&mut Vec<RecipeImage>) -> Result<()>,
    ) -> Result<()> {
        let bundle = prepare::bundle(&Board::silent())?;
        let first = recipe_of(&bundle)?;
        let mut recipe: Value = serde_json::from_str(&fs::read_to_string(&first)?)?;
        for name in ["ctl", "halite-master", "halite-minion"] {
            let before = recipe["binaries"][name].to_string();
            // The program is there twice: as a program, and in a package.
            let text = recipe.to_string();
            let own = json!(Path::new(PROGRAMS).join(name)).to_string();
            recipe = serde_json::from_str(&text.replace(&before, &own))?;
        }
        for (key, path) in [
            ("states", "states"),
            ("docs", "docs"),
            ("sbom-inputs", "sbom-inputs.json"),
        ] {
            recipe[key] = json!(format!("/usr/share/halite/{path}"));
        }
        let mut images = serde_json::from_value(recipe["images"].take())?;
        change(&mut images)?;
        recipe["images"] = json!(images);
        let work = self.path(work);
        fs::write(work.join("recipe.yaml"), recipe.to_string())?;
        fs::copy(
            first.with_extension("lock.yaml"),
            work.join("recipe.lock.yaml"),
        )?;
        Ok(())
    }
}

/// Copies to a path whose directory is made.
fn copy(how: &OsStr, from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("no directory")?)?;
    run("cp", &[how, from.as_os_str(), to.as_os_str()]).map(drop)
}
