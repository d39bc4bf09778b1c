//! Building Go programs from published modules, one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use halite_lab::build_command as command;
use serde::Deserialize;

use super::programs::{Module, ProgramSource};
use super::store::Store;
use super::{packages, store};

/// Increased on every change to the build of programs that the key would not show otherwise.
const REVISION: u32 = 1;

/// The Go installation that builds.
#[derive(Debug)]
pub struct Go {
    version: String,
}

/// Output of `go mod download -json` for a module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    dir: PathBuf,
    info: PathBuf,
    #[serde(default)]
    origin: Origin,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Origin {
    hash: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    time: String,
}

impl Go {
    /// The Go of this machine.
    pub fn find() -> Result<Self> {
        let printed = command::output(go().args(["env", "GOVERSION"]), "asking Go for its version")
            .context(
                "the upstream programs are built with Go 1.26: install it and put it on the PATH",
            )?;
        Ok(Self {
            version: String::from_utf8_lossy(&printed).trim().to_owned(),
        })
    }

    /// Its version: `go1.26.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its directory.
    pub fn root(&self) -> Result<PathBuf> {
        let printed = command::output(go().args(["env", "GOROOT"]), "asking Go where it is")?;
        Ok(PathBuf::from(String::from_utf8_lossy(&printed).trim()))
    }

    /// The directories of modules' own files, by `PATH@VERSION`, downloaded if they are missing.
    /// Unavailable modules are left out.
    pub fn folders(&self, modules: &BTreeSet<String>) -> Result<Vec<(String, PathBuf)>> {
        let work = tempfile::tempdir()?;
        fs::write(work.path().join("go.mod"), "module upstream\n\ngo 1.26\n")?;
        let mut command = go();
        // It exits with a failure if one of them is missing, and also reports that in its answer.
        let said = command
            .current_dir(work.path())
            .args(["mod", "download", "-json"])
            .args(modules)
            .output()?;
        let answers =
            serde_json::Deserializer::from_slice(&said.stdout).into_iter::<serde_json::Value>();
        let mut found = Vec::new();
        for answer in answers {
            let answer = answer.context("downloading modules: Go's answer is not understood")?;
            let text = |name: &str| answer[name].as_str().unwrap_or_default();
            if !text("Dir").is_empty() {
                found.push((
                    format!("{}@{}", text("Path"), text("Version")),
                    PathBuf::from(text("Dir")),
                ));
            }
        }
        Ok(found)
    }

    /// The directory of a module's own files (`PATH@VERSION`), downloaded if it is missing.
    pub fn sources(&self, module: &str) -> Result<PathBuf> {
        let work = tempfile::tempdir()?;
        Ok(download(work.path(), module)?.dir)
    }

    /// Builds the program whose module is in a folder; `what` names the work.
    pub fn build_folder(
        &self,
        folder: &Path,
        program: &Path,
        what: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut go = go();
        go.current_dir(folder)
            .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]);
        command::run(go.arg(program), what, progress)
    }

    /// Builds the missing programs of a module; returns name and file of each.
    pub fn build(
        &self,
        store: &Store,
        module: &Module,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<(&'static str, PathBuf)>> {
        let mut wanted = Vec::new();
        for (name, package) in module.programs {
            let described = (
                module.path,
                module.version,
                module.source,
                module.stamps,
                package,
            );
            wanted.push((
                *name,
                *package,
                store::key(&(REVISION, &self.version, described))?,
            ));
        }
        let missing = || -> Vec<(&str, &str)> {
            let missing = wanted
                .iter()
                .filter(|(name, _, key)| store.find(name, key).is_none());
            missing
                .map(|(name, package, _)| (*name, *package))
                .collect()
        };
        // Checked a second time: another run may have built them while this one waited.
        let _claim = if missing().is_empty() {
            None
        } else {
            Some(store.claim(module.path)?)
        };
        let missing = missing();
        // In one command: each start reads the whole module graph again, and one processor links
        // while the other compiles.
        let ground = if missing.is_empty() {
            None
        } else {
            let what = match &missing[..] {
                [(name, _)] => format!("building {name} {}", module.version),
                more => format!(
                    "building {} programs of {} {}",
                    more.len(),
                    module.path,
                    module.version
                ),
            };
            let start = Instant::now();
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            let ground = Ground::lay(store, module, progress)?;
            ground.build(&packages, &what, progress)?;
            progress(&format!("{what}: {} s", start.elapsed().as_secs()));
            Some(ground)
        };
        let mut built = Vec::new();
        for (name, package, key) in wanted {
            let dir = store.get(name, &key, |out| {
                let ground = ground
                    .as_ref()
                    .with_context(|| format!("{name} disappeared from the store"))?;
                let (from, to) = (ground.out().join(executable(package)), out.join(name));
                fs::copy(&from, &to).with_context(|| format!("Go made no {}", from.display()))?;
                store::set_mode(&to, 0o755)
            })?;
            built.push((name, dir.join(name)));
        }
        Ok(built)
    }
}

/// The name that Go gives the program of a package: the last part of its path that is not a major
/// version.
fn executable(package: &str) -> &str {
    let major = |part: &&str| {
        part.strip_prefix('v')
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    package
        .rsplit('/')
        .find(|part| !major(part))
        .unwrap_or(package)
}

/// The directory from which the programs of one module are built.
struct Ground {
    dir: tempfile::TempDir,
    flags: String,
    tags: &'static str,
    /// The environment of a build with C code.
    c: Vec<(&'static str, String)>,
}

impl Ground {
    fn lay(store: &Store, module: &Module, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let name = format!("{}@{}", module.path, module.version);
        let dir = tempfile::Builder::new()
            .prefix("halite-upstream-")
            .tempdir()?;
        fs::write(dir.path().join("go.mod"), "module upstream\n\ngo 1.26\n")?;
        let download = download(dir.path(), &name)?;
        let (mut tags, mut c) = ("", Vec::new());
        match module.source {
            ProgramSource::Required => require(dir.path(), module, "")?,
            ProgramSource::Kubernetes => {
                let text = fs::read_to_string(download.dir.join("go.mod"))?;
                require(dir.path(), module, &staging(&text, module.version))?;
            }
            ProgramSource::Without {
                folders,
                requirements,
            } => {
                copy(&download.dir, dir.path())?;
                without(dir.path(), module.path, folders, requirements)?;
            }
            ProgramSource::C {
                tags: own,
                package,
                library,
            } => {
                require(dir.path(), module, "")?;
                let root = dir.path().join(".c");
                fs::create_dir(&root)?;
                packages::unpack(&packages::closure(store, &[package], progress)?, &root)?;
                (tags, c) = (own, c_environment(&root, library));
            }
        }
        let info: Info = serde_json::from_slice(&fs::read(&download.info)?)?;
        let mut flags = flags(module, &download.origin.hash, &info.time);
        if !c.is_empty() {
            flags.push_str(" -linkmode external -extldflags -static");
        }
        Ok(Self {
            dir,
            flags,
            tags,
            c,
        })
    }

    /// Directory of the built programs, under the names that Go gives them.
    fn out(&self) -> PathBuf {
        self.dir.path().join(".built")
    }

    fn build(&self, packages: &[&str], what: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let out = self.out();
        fs::create_dir(&out)?;
        let mut go = go();
        go.current_dir(self.dir.path())
            .envs(self.c.iter().map(|(name, value)| (name, value)))
            .args(["build", "-trimpath", "-tags", self.tags])
            .args(["-ldflags", &self.flags, "-o"]);
        command::run(go.arg(out).args(packages), what, progress)
    }
}

/// The environment of a build that links a library of an unpacked Debian package.
fn c_environment(root: &Path, library: &str) -> Vec<(&'static str, String)> {
    let usr = root.join("usr");
    let usr = usr.display();
    vec![
        ("CGO_ENABLED", "1".to_owned()),
        ("CGO_CFLAGS", format!("-I{usr}/include")),
        (
            "CGO_LDFLAGS",
            format!("-L{usr}/lib/x86_64-linux-gnu -l{library}"),
        ),
        // It would search the machine's own libraries; the flags above say all that it would say.
        ("PKG_CONFIG", "true".to_owned()),
    ]
}

/// Go, independent of the caller's environment for modules and targets; the machine still decides
/// where modules come from.
fn go() -> Command {
    let mut command = Command::new("go");
    command
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .envs([
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
            ("CGO_ENABLED", "0"),
        ])
        .envs([("GOOS", "linux"), ("GOARCH", "amd64"), ("GOAMD64", "v1")]);
    command
}

fn download(dir: &Path, module: &str) -> Result<Download> {
    let what = format!("downloading {module}");
    let printed = command::output(
        go().current_dir(dir)
            .args(["mod", "download", "-json", module]),
        &what,
    )?;
    serde_json::from_slice(&printed)
        .with_context(|| format!("{what}: Go's answer is not understood"))
}

fn require(dir: &Path, module: &Module, replaces: &str) -> Result<()> {
    let requirement = format!("require {} {}\n", module.path, module.version);
    fs::write(
        dir.join("go.mod"),
        format!("module upstream\n\ngo 1.26\n\n{requirement}\n{replaces}"),
    )?;
    // The imports keep the packages in the module graph; the file itself is never compiled.
    let imports: String = module
        .programs
        .iter()
        .map(|(_, package)| format!("import _ {package:?}\n"))
        .collect();
    fs::write(
        dir.join("imports.go"),
        format!("package upstream\n\n{imports}"),
    )?;
    Ok(())
}

/// Kubernetes' go.mod points at its own `staging` folder; each of those modules is also published,
/// as `v0.MINOR.PATCH`.
fn staging(go_mod: &str, version: &str) -> String {
    let version = version.replacen("v1.", "v0.", 1);
    go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("replace ")
                .split_once(" => ./staging/")
        })
        .map(|(module, _)| format!("replace {module} => {module} {version}\n"))
        .collect()
}

fn flags(module: &Module, commit: &str, date: &str) -> String {
    let bare = module.version.trim_start_matches('v');
    let mut numbers = bare.split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    let mut flags = "-s -w".to_owned();
    for stamp in module.stamps {
        let stamp = stamp
            .replace("{version}", module.version)
            .replace("{number}", bare)
            .replace("{major}", major)
            .replace("{minor}", minor)
            .replace("{commit}", commit)
            .replace("{date}", date);
        // A proxy need not know the commit; the program's own default shows that better than an
        // empty text.
        if !stamp.ends_with('=') {
            flags.push_str(&format!(" -X {stamp}"));
        }
    }
    flags
}

/// Copies a module, or a folder of it, out of Go's read-only cache.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in store::files(from)? {
        let target = to.join(file.strip_prefix(from)?);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&target, fs::read(&file)?)?;
    }
    Ok(())
}

/// Removes folders from a copied module: the folders, the lines that import them, and their
/// requirements.
fn without(dir: &Path, module: &str, folders: &[&str], requirements: &str) -> Result<()> {
    for folder in folders {
        fs::remove_dir_all(dir.join(folder))
            .with_context(|| format!("{module} has no folder {folder}"))?;
        let import = format!("\"{module}/{folder}\"");
        for file in store::files(dir)?
            .into_iter()
            .filter(|file| file.extension().is_some_and(|e| e == "go"))
        {
            let text = fs::read_to_string(&file)?;
            if text.contains(&import) {
                fs::write(&file, lines_without(&text, &import))?;
            }
        }
    }
    for name in ["go.mod", "go.sum"] {
        let text = fs::read_to_string(dir.join(name))?;
        fs::write(dir.join(name), lines_without(&text, requirements))?;
    }
    Ok(())
}

fn lines_without(text: &str, unwanted: &str) -> String {
    text.lines()
        .filter(|line| !line.contains(unwanted))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_replaced_by_their_published_twins() {
        let go_mod = "module k8s.io/kubernetes\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother => x v1\n)\n";
        assert_eq!(
            staging(go_mod, "v1.36.3"),
            "replace k8s.io/api => k8s.io/api v0.36.3\n"
        );
    }

    #[test]
    fn programs_are_found_under_the_names_that_go_gives_them() {
        for (package, name) in [
            ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
            ("go.etcd.io/etcd/server/v3", "server"),
            ("go.etcd.io/etcd/etcdctl/v3", "etcdctl"),
            ("github.com/flannel-io/flannel", "flannel"),
            ("example.org/cmd/vlan", "vlan"),
        ] {
            assert_eq!(executable(package), name);
        }
    }

    #[test]
    fn stamps_use_known_values() {
        let module = Module {
            path: "example.org/x",
            version: "v1.36.3",
            source: ProgramSource::Required,
            stamps: &[
                "p.gitVersion={version}",
                "p.gitMinor={minor}",
                "p.gitCommit={commit}",
            ],
            programs: &[],
        };
        assert_eq!(
            flags(&module, "", ""),
            "-s -w -X p.gitVersion=v1.36.3 -X p.gitMinor=36"
        );
    }
}
