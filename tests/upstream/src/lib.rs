//! The upstream of the lab's site: everything that a connected site would download. Programs are
//! built from published Go modules, operating system packages come from the machine's own package
//! sources, images are made of both. Everything is kept outside the source tree under a key of its
//! inputs: the first time takes about a quarter of an hour on two cores, and four minutes more for
//! each further release of Kubernetes; afterwards it takes seconds.

pub mod cargo_tool;
pub mod chart;
mod golang;
mod image;
mod images;
mod iso_directory;
mod lab_pod;
mod licences;
mod packages;
mod pause;
pub mod prepare;
mod programs;
mod recipe;
pub mod store;
pub mod versions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use store::Store;
use versions::Release;

pub use images::{LAB_POD, UpstreamImage};
pub use iso_directory::{ISO, iso_directory};
pub use recipe::bundle;

/// Paths of everything that was made for one release.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// The release of Kubernetes.
    pub release: Release,
    /// The directory with all of it.
    pub dir: PathBuf,
    /// Every program under its own name (`kubeadm`, `kubectl`, `etcdctl` …); the CNI plugins as
    /// `cni-NAME`.
    pub bin: PathBuf,
    /// Every image, each in its own layout.
    pub images: Vec<UpstreamImage>,
}

/// Writes the file that lists the inputs of Halite's own programs, by their names in a directory,
/// unless it exists, and returns its path.
///
/// # Errors
/// Cargo does not describe a program, or a file cannot be read or written.
pub fn sbom_inputs(cache: &Path, programs: &Path, names: &[&str]) -> Result<PathBuf> {
    let store = Store::new(std::path::absolute(cache)?.join("bundle"))?;
    licences::inputs(&store, programs, names)
}

/// Makes the missing parts of a release, and returns the paths of everything.
pub fn ensure(cache: &Path, release: &Release, progress: &mut dyn FnMut(&str)) -> Result<Upstream> {
    let dir = cache.join("upstream");
    let store = Store::new(dir.clone())?;
    let go = golang::Go::find()?;
    let mut built = BTreeMap::new();
    for module in programs::modules(release) {
        built.extend(go.build(&store, &module, progress)?);
    }
    built.insert("pause", pause::ensure(&store, &go, release, progress)?);
    built.insert(lab_pod::NAME, lab_pod::ensure(&store, &go, progress)?);
    let bin = store.get("bin", &store::key(&built)?, |out| {
        for (name, file) in &built {
            fs::hard_link(file, out.join(name))
                .with_context(|| format!("cannot link {}", file.display()))?;
        }
        Ok(())
    })?;
    let images = images::make(&store, release, &built, progress)?;
    Ok(Upstream {
        release: *release,
        dir,
        bin,
        images,
    })
}

/// The program of a registry, for the tests of registry clients.
pub fn registry(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    tool(cache, &programs::REGISTRY, progress)
}

/// Helm, for the tests of chart rendering.
pub fn helm(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    tool(cache, &programs::HELM, progress)
}

/// Prometheus and promtool, for the tests of metrics.
///
/// # Errors
/// The source is unavailable or does not build.
pub fn prometheus(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<(PathBuf, PathBuf)> {
    let store = Store::new(cache.join("upstream"))?;
    let built = golang::Go::find()?.build(&store, &programs::PROMETHEUS, progress)?;
    let program = |name: &str| {
        let found = built.iter().find(|(built, _)| *built == name);
        let found = found.map(|(_, program)| program.clone());
        found.with_context(|| format!("{name} was not built"))
    };
    Ok((program("prometheus")?, program("promtool")?))
}

/// kube-bench, for the tests of a hardened cluster; returns the program and the directory of its
/// benchmarks.
///
/// # Errors
/// The source is unavailable or does not build.
pub fn kube_bench(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<(PathBuf, PathBuf)> {
    let program = tool(cache, &programs::KUBE_BENCH, progress)?;
    let store = Store::new(cache.join("upstream"))?;
    let module = format!(
        "{}@{}",
        programs::KUBE_BENCH.path,
        programs::KUBE_BENCH.version
    );
    let benchmarks = store.get("kube-bench-cfg", &store::key(&module)?, |out| {
        let sources = golang::Go::find()?.sources(&module)?;
        golang::copy(&sources.join("cfg"), out)
    })?;
    Ok((program, benchmarks))
}

/// etcd, for the tests of membership changes.
pub fn etcd(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    tool(cache, &programs::ETCD, progress)
}

/// Builds `etcdutl`, which restores snapshots of etcd; returns the program.
///
/// # Errors
/// The source is unavailable or does not build.
pub fn etcdutl(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    tool(cache, &programs::ETCDUTL, progress)
}

/// The vectors of age's specification, as a module of Go's proxy.
const AGE_VECTORS: &str = "c2sp.org/CCTV/age@v0.0.0-20251208015420-e9274a7bdbfd";

/// Fetches Debian's `age` and the vectors of its specification; returns the program and the
/// directory of the vectors.
///
/// # Errors
/// They are unavailable.
pub fn age(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<(PathBuf, PathBuf)> {
    let store = Store::new(cache.join("upstream"))?;
    let archives = packages::closure(&store, &["age"], progress)?;
    let key = store::key(&("age", &archives))?;
    let root = store.get("programs", &key, |out| packages::unpack(&archives, out))?;
    let vectors = golang::Go::find()?.sources(AGE_VECTORS)?.join("testdata");
    Ok((root.join("usr/bin/age"), vectors))
}

fn tool(
    cache: &Path,
    module: &programs::Module,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let store = Store::new(cache.join("upstream"))?;
    let built = golang::Go::find()?.build(&store, module, progress)?;
    built
        .into_iter()
        .next()
        .map(|(_, program)| program)
        .context("no program was built")
}
