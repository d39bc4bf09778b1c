//! The recipe of the lab's bundle, and the bundle that `ctl` makes from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use halite_lab::base::Debian;
use halite_lab::build;
use halite_lab::build::{Programs, source_root};
use halite_lab::build_command as command;
use serde_json::{Value, json};

use super::golang::Go;
use super::image::file_digest;
use super::programs::{CNI_PREFIX, CNI_PROGRAMS, modules};
use super::store::Store;
use super::{Upstream, licences, store, versions};

/// The revision of the packages that the build makes.
const REVISION: u32 = 1;

/// The options that a light bundle leaves out: each is disabled, as if a document does not name it.
const LEFT_OUT: [&str; 3] = [
    "addons.localPath",
    "addons.metricsServer",
    "siteRegistry.enabled",
];

/// Halite's own programs in a bundle.
const BINARIES: &[&str] = &["ctl", "halite-master", "halite-minion"];

/// The program that builds bundles; no bundle contains it.
const BUILDER: &str = "halite-builder";

/// Makes the bundle of the lab's site with the `ctl` in `programs`, unless one with the same
/// content exists, and returns its directory. The base root must exist: the bundle contains what
/// the root lacks.
pub fn bundle(
    cache: &Path,
    upstream: &Upstream,
    programs: &Path,
    tree: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let programs = &std::path::absolute(programs)?;
    let tree = &std::path::absolute(tree)?;
    let dir = std::path::absolute(cache)?.join("bundle");
    let store = Store::new(dir.clone())?;
    let charts = charts(upstream)?;
    let helm = if charts.is_empty() {
        None
    } else {
        Some(super::helm(cache, progress)?)
    };
    // The recipe of a site is one file.
    let _claim = store.claim("site")?;
    let base = cache.join("base-root/var/lib/dpkg/status");
    let mut site = store::key(&(
        REVISION,
        &upstream.bin,
        upstream
            .images
            .iter()
            .map(|image| &image.layout)
            .collect::<Vec<_>>(),
        upstream.release.contents.is_full(),
        versions::HOST_PACKAGES,
        versions::TEST_PACKAGES,
        file_digest(&base)?,
    ))?;
    if helm.is_some() {
        site = store::key(&(site, chart_key(upstream, &charts)?))?;
    }
    for debian in upstream.release.debian {
        let base = debian.root(cache).join("var/lib/dpkg/status");
        site = store::key(&(site, debian.codename(), file_digest(&base)?))?;
    }
    // The lock of a site has one date, and another release has the same content.
    if upstream.release.programs == Programs::Earlier {
        site = store::key(&(site, upstream.release.suffix))?;
    }
    let documents = Documents::make(&store, cache, upstream, programs, progress)?;
    let mut content = vec![site.clone(), documents.key()?];
    for name in BINARIES.iter().chain(&[BUILDER]) {
        content.push(file_digest(&programs.join(name))?);
    }
    for file in store::files(tree)? {
        content.push(format!(
            "{} {}",
            file.strip_prefix(tree)?.display(),
            file_digest(&file)?
        ));
    }
    let made = store.get("bundle", &store::key(&content)?, |out| {
        // The packages' versions are recorded next to the recipe, once for each site.
        let recipe = dir.join(format!("site-{site}")).join("recipe.yaml");
        fs::create_dir_all(recipe.parent().unwrap_or(&dir))?;
        let mut document = document(&dir, &base, upstream, programs, tree, &documents)?;
        if let Some(helm) = &helm {
            document["helm"] = json!(std::path::absolute(helm)?);
            document["charts"] = json!(charts);
        }
        for debian in upstream.release.debian {
            document["packages"]["releases"][debian.codename()] = of_release(cache, *debian)?;
        }
        fs::write(&recipe, serde_json::to_string_pretty(&document)?)
            .with_context(|| format!("cannot write {}", recipe.display()))?;
        if !upstream.release.debian.is_empty() {
            // Their packages come from a mirror, so they are recorded first.
            let mut ctl = Command::new(programs.join("ctl"));
            ctl.args(["bundle", "lock", "--recipe"]).arg(&recipe);
            command::run(
                &mut ctl,
                "resolving the packages of further releases",
                progress,
            )?;
        }
        let mut ctl = Command::new(programs.join("ctl"));
        build::with_fewer_option_sets(&mut ctl)
            .args(["bundle", "build", "--recipe"])
            .arg(&recipe)
            .arg("--out")
            .arg(out.join("bundle"));
        if let Some(resolved) = upstream.release.resolved {
            ctl.env("SOURCE_DATE_EPOCH", resolved.to_string());
        }
        command::run(&mut ctl, "building the bundle", progress)
    })?;
    Ok(made.join("bundle"))
}

/// The recipe's entry of a further Debian release.
fn of_release(cache: &Path, debian: Debian) -> Result<Value> {
    let cache = std::path::absolute(cache)?;
    let repository = json!({
        "url": debian.mirror(&cache)?, "suite": debian.codename(), "components": ["main"],
        "key": "/usr/share/keyrings/debian-archive-keyring.gpg",
    });
    let base = debian.root(&cache).join("var/lib/dpkg/status");
    Ok(json!({"base": base, "repositories": [repository]}))
}

/// Entries of the recipe for the release's charts, whose pods run its own images.
fn charts(upstream: &Upstream) -> Result<Vec<Value>> {
    let image = |component: &str| -> Result<String> {
        let image = upstream
            .images
            .iter()
            .find(|image| image.component == component);
        let image = image.with_context(|| format!("no image {component} is made"))?;
        Ok(image.reference.clone())
    };
    let charts = upstream.release.contents.charts();
    charts.iter().map(|chart| chart.entry(image)).collect()
}

/// Key of the charts and their values: the rendered charts are recorded too.
fn chart_key(upstream: &Upstream, entries: &[Value]) -> Result<String> {
    let mut content: Vec<String> = entries.iter().map(Value::to_string).collect();
    for chart in upstream.release.contents.charts() {
        let folder = chart.folder();
        for file in store::files(&folder)? {
            content.push(format!(
                "{} {}",
                file.strip_prefix(&folder)?.display(),
                file_digest(&file)?
            ));
        }
    }
    store::key(&content)
}

/// Inputs of the bundle's own documents.
struct Documents {
    /// Manual pages and completions, one folder for each of our own packages.
    pages: PathBuf,
    licences: PathBuf,
    inputs: PathBuf,
    /// A few pages of HTML: the book needs mdBook, which only a release builds.
    docs: PathBuf,
}

impl Documents {
    fn make(
        store: &Store,
        cache: &Path,
        upstream: &Upstream,
        programs: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let ctl = programs.join("ctl");
        let pages = store.get("pages", &store::key(&file_digest(&ctl)?)?, |out| {
            let mut write = Command::new(&ctl);
            command::run(
                write.arg("generate").arg(out.join("pages")),
                "writing the manual pages",
                progress,
            )
        })?;
        let common = cache.join("base-root/usr/share/common-licenses");
        Ok(Self {
            pages: pages.join("pages"),
            licences: licences::gather(
                store,
                &Go::find()?,
                &modules(&upstream.release),
                &upstream.bin,
                &common,
                progress,
            )?,
            inputs: licences::inputs(store, programs, BINARIES)?,
            docs: source_root().join("tests/upstream/docs"),
        })
    }

    /// A key that changes with any of them.
    fn key(&self) -> Result<String> {
        let mut content = vec![format!("{:?}", (&self.pages, &self.licences, &self.inputs))];
        for file in store::files(&self.docs)? {
            content.push(format!(
                "{} {}",
                file.strip_prefix(&self.docs)?.display(),
                file_digest(&file)?
            ));
        }
        store::key(&content)
    }

    /// One of our own packages.
    fn package(&self, name: &str, program: &str, programs: &Path) -> Value {
        let version = format!("{}-{REVISION}", env!("CARGO_PKG_VERSION"));
        let pages = self.pages.join(name);
        json!({"package": name, "version": version, "programs": {program: programs.join(program)},
            "files": {"usr/share": pages}})
    }
}

/// The recipe; JSON is YAML.
fn document(
    dir: &Path,
    base: &Path,
    upstream: &Upstream,
    programs: &Path,
    tree: &Path,
    documents: &Documents,
) -> Result<Value> {
    let images: Vec<Value> = upstream
        .images
        .iter()
        .map(|image| json!({"component": image.component, "reference": image.reference, "layout": image.layout}))
        .collect();
    let package = |name: &str, version: &str, files: &[&str]| {
        let programs: serde_json::Map<String, Value> = files
            .iter()
            .map(|file| {
                (
                    file.trim_start_matches(CNI_PREFIX).to_owned(),
                    json!(upstream.bin.join(file)),
                )
            })
            .collect();
        let version = format!("{}-{REVISION}", version.trim_start_matches('v'));
        json!({"package": name, "version": version, "programs": programs})
    };
    let plugins: Vec<&str> = CNI_PROGRAMS.iter().map(|(name, _)| *name).collect();
    let runtime = upstream.release.runtime;
    let kubernetes = upstream.release.kubernetes;
    let mut made = vec![
        package("kubelet", kubernetes, &["kubelet"]),
        package("kubeadm", kubernetes, &["kubeadm"]),
        package("kubectl", kubernetes, &["kubectl"]),
        package("kubernetes-cni", runtime.cni_plugins, &plugins),
        package(
            "containerd",
            runtime.containerd,
            &["containerd", "containerd-shim-runc-v2", "ctr"],
        ),
        documents.package("halite-ctl", "ctl", programs),
        documents.package("halite-master", "halite-master", programs),
        documents.package("halite-minion", "halite-minion", programs),
    ];
    let mut options = json!({});
    let mut debian = versions::HOST_PACKAGES.to_vec();
    if let Some(version) = runtime.runc {
        debian.retain(|package| *package != "runc");
        made.push(package("runc", version, &["runc"]));
    }
    if upstream.release.contents.is_full() {
        debian.extend(versions::TEST_PACKAGES);
        made.push(package(
            "distribution-registry",
            versions::REGISTRY,
            &["registry"],
        ));
    } else {
        for option in LEFT_OUT {
            options[option] = json!(["false"]);
        }
    }
    Ok(json!({
        "format": 1,
        "version": upstream.release.bundle(),
        "kubernetes": kubernetes,
        "images": images,
        "packages": {
            "base": base,
            "apt": debian,
            "made": made,
        },
        "options": options,
        "binaries": BINARIES.iter().map(|name| ((*name).to_owned(), json!(programs.join(name)))).collect::<serde_json::Map<_, _>>(),
        "states": tree,
        "signing-key": dir.join("signing-key.asc"),
        "cache": dir.join("parts"),
        "docs": documents.docs,
        "licences": documents.licences,
        "sbom-inputs": documents.inputs,
    }))
}
