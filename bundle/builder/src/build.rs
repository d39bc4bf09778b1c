//! The build of a bundle.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use halite_bundle::nginx;
use halite_durable::{FileLock, digest, files};
use halite_errors::chain;
use halite_fetch::{oci_layout, yum};
use halite_iso9660::portable;
use halite_manifest::{Manifest, ManifestEntry, manifest};
use halite_pillar::option_sets::Coverage;
use jiff::Timestamp;

use crate::build_cache::{BuildCache, CachedArtifact};
use crate::completeness::compile::requirements;
use crate::completeness::{Inventory, Requirements};
use crate::error::Error;
use crate::gather::{Archive, Contents, Gather, Mode};
use crate::lock::Lock;
use crate::recipe::{Recipe, Watcher};
use crate::rpm::Base;
use crate::signer::{KeyKind, Signer};
use crate::{apt, build_cache, bundle_documents, chart, completeness, package, recipe, rpm};

/// The shell script `install` at the top of a bundle.
const INSTALL: &str = "#!/bin/sh
# Makes this host the first one of a cluster; takes the options of `ctl bootstrap`.
set -e
here=$(cd \"$(dirname \"$0\")\" && pwd)
exec \"$here/bin/ctl\" bootstrap --bundle \"$here\" \"$@\"
";

/// The alert rules for Prometheus servers of the site, and their path in a bundle.
const ALERTS: &str = include_str!("alerts.yaml");
const ALERTS_FILE: &str = "prometheus/halite-alerts.yaml";

/// Options of a build.
#[derive(Clone, Default)]
pub struct Options {
    /// Offline mode: contacts no other machine; everything comes from this machine and from the
    /// cache.
    pub offline: bool,
    /// Receives the progress of downloads.
    pub watcher: Option<Watcher>,
    /// The sets of options for which the state tree is compiled.
    pub coverage: Coverage,
}

/// Computes the requirements of the bundle in a directory.
pub type RequirementsOf<'a> = dyn Fn(&Path, &Manifest) -> Result<Requirements, Error> + 'a;

/// Builds the bundle of a recipe into `out`, replacing an existing bundle. Content from other
/// machines is exactly the content recorded in the lock. The same recipe, lock, keys and inputs
/// give the same bytes. `out` appears only when the bundle is complete and has everything that its
/// state tree can request.
///
/// # Errors
/// The recipe has problems; an item is not in the lock, differs from it or is damaged; a file
/// cannot be fetched or written; the packages cannot be installed on a bare host; an item that a
/// cluster could request is missing; or a program of the build fails.
pub fn build(
    recipe_file: &Path,
    out: &Path,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let requirements: &RequirementsOf<'_> =
        &|directory, manifest| requirements(directory, manifest, options.coverage);
    build_with(recipe_file, out, options, requirements, progress)
}

/// Builds like [`build()`], but with requirements that the caller computes; tests use it for state
/// trees that cannot be compiled.
///
/// # Errors
/// As for [`build()`].
pub fn build_with(
    recipe_file: &Path,
    out: &Path,
    options: &Options,
    requirements: &RequirementsOf<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    // apt resolves a relative path against its own directories.
    let recipe_file =
        &std::path::absolute(recipe_file).map_err(Error::file("read", recipe_file))?;
    let recipe = Recipe::load(recipe_file)?;
    let occupied =
        out.file_name().is_none() || (out.exists() && !out.join(manifest::FILE).is_file());
    if occupied {
        return Err(Error::Occupied(out.to_owned()));
    }
    let _out = FileLock::new(out)?;
    // The lock beside the recipe is read, and written at the end.
    let _recipe = FileLock::wait(recipe_file, progress)?;
    let work = files::sibling(out, "new");
    let scratch = files::sibling(out, "parts");
    files::remove_dir(&work)?;
    let built = (|| {
        files::make_dir(&work)?;
        let cache = recipe.cache.clone().unwrap_or_else(|| scratch.clone());
        let held = build_cache::claim(&cache, progress)?;
        let gather = Gather::new(
            recipe_file,
            &recipe,
            &cache,
            options.offline,
            options.watcher.clone(),
        )?;
        let (manifest, lock) = fill(recipe_file, &recipe, &gather, &work, &cache, progress)?;
        if let Err(error) = build_cache::prune(&cache) {
            progress(&format!(
                "cannot remove parts that no build needs any more: {}",
                chain(&error)
            ));
        }
        drop(held);
        progress("checking that the bundle is complete");
        let missing = requirements(&work, &manifest)?.missing(&Inventory::read(&work, &manifest)?);
        if !missing.is_empty() {
            return Err(Error::Missing(
                missing.iter().map(ToString::to_string).collect(),
            ));
        }
        lock.save(recipe_file)?;
        files::settle(&work)?;
        files::put_in_place(&work, out)?;
        Ok(manifest)
    })();
    if built.is_err() {
        // Best effort: the first error is the one that matters.
        let _ = files::remove_dir(&work);
    }
    let removed = files::remove_dir(&scratch);
    let manifest = built?;
    removed?;
    Ok(manifest)
}

fn fill(
    recipe_file: &Path,
    recipe: &Recipe,
    gather: &Gather<'_>,
    work: &Path,
    cache: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<(Manifest, Lock), Error> {
    progress("inspecting images and packages");
    let settled = gather.settle(Lock::load(recipe_file)?.as_ref(), Mode::Exact)?;
    let lock = settled.lock.clone();
    let contents = gather.fetch(settled, progress)?;
    let Contents {
        images,
        archives,
        charts,
        releases,
        rpms,
    } = &contents;
    let date: Timestamp = lock.resolved.parse().map_err(|error| {
        Error::content(
            crate::lock::path_of(recipe_file),
            format!("`resolved` is not a date: {error}"),
        )
    })?;
    let parts = BuildCache::new(cache)?;
    let mut listed = BTreeMap::new();

    progress(&format!("gathering {} images", images.len()));
    image_part(&parts, images)?.place(work, "images", &mut listed)?;
    let repository = apt_part(&parts, recipe, &recipe.base, archives, date, progress)?;
    repository.place(work, "apt", &mut listed)?;
    for (codename, release) in &recipe.releases {
        let archives = releases.get(codename).map_or(&[][..], Vec::as_slice);
        let repository = apt_part(&parts, recipe, &release.base, archives, date, progress)?;
        repository.place(work, &release_directory(codename), &mut listed)?;
    }
    let yum = match &recipe.rpm {
        Some(rpm) => Some(rpm_part(&parts, recipe, rpm, rpms, date, progress)?),
        None => None,
    };
    if let Some(yum) = &yum {
        yum.place(work, "rpm", &mut listed)?;
    }

    progress("gathering programs and states");
    let mut put = |name: String, mode: u32, content: &[u8]| -> Result<(), Error> {
        files::write(&work.join(&name), mode, content)?;
        listed.insert(
            name,
            ManifestEntry {
                sha256: digest::sha256(content),
                size: content.len() as u64,
            },
        );
        Ok(())
    };
    let served = contents.served(&recipe.images);
    for (name, entries) in nginx::maps(&recipe.version, &served) {
        put(name.to_owned(), 0o644, entries.as_bytes())?;
    }
    put(
        nginx::SERVER.to_owned(),
        0o644,
        nginx::locations().as_bytes(),
    )?;
    let base = fs::read_to_string(&recipe.base).map_err(Error::file("read", &recipe.base))?;
    put(
        completeness::BASE.to_owned(),
        0o644,
        completeness::essence(&base).as_bytes(),
    )?;
    if let Some(rpm) = &recipe.rpm {
        let repository = yum::Repository::local(&work.join("rpm"))?;
        let base = Base::load(&rpm.base)?.essence(&repository.required_files());
        put(completeness::RPM_BASE.to_owned(), 0o644, base.as_bytes())?;
    }
    put("install".to_owned(), 0o755, INSTALL.as_bytes())?;
    put(ALERTS_FILE.to_owned(), 0o644, ALERTS.as_bytes())?;
    let digests = images
        .iter()
        .map(|found| (&*found.reference, &*found.image.manifest.digest))
        .collect();
    for rendered in charts {
        let text = fs::read_to_string(&rendered.path);
        let text = text.map_err(Error::file("read", &rendered.path))?;
        let text = chart::pinned::pin(&text, &digests);
        put(chart::place(&rendered.name), 0o644, text.as_bytes())?;
    }
    let mut copied = |name: String, from: &Path, mode: u32| -> Result<(), Error> {
        let (sha256, size) = files::copy(from, &work.join(&name), mode)?;
        listed.insert(name, ManifestEntry { sha256, size });
        Ok(())
    };
    for (name, from) in &recipe.binaries {
        copied(format!("bin/{name}"), from, 0o755)?;
    }
    for name in files::walk(&recipe.states)? {
        let from = recipe.states.join(&name);
        let status = fs::metadata(&from).map_err(Error::file("read", &from))?;
        let executable = status.permissions().mode() & 0o100 != 0;
        copied(
            format!("states/{name}"),
            &from,
            if executable { 0o755 } else { 0o644 },
        )?;
    }

    let mut manifest = Manifest {
        format: manifest::FORMAT,
        name: "halite".to_owned(),
        version: recipe.version.clone(),
        built: lock.resolved.clone(),
        kubernetes: recipe.kubernetes.clone(),
        components: recipe.components(),
        images: contents.pinned(&recipe.images),
        options: recipe.options.clone(),
        not_images: recipe.not_images.clone(),
        charts: charts
            .iter()
            .map(|chart| (chart.name.clone(), chart.version.clone()))
            .collect(),
        packages: repository.note().clone(),
        rpms: yum.map(|yum| yum.note().clone()).unwrap_or_default(),
        files: listed,
    };
    bundle_documents::add(recipe, work, &parts, &mut manifest, progress)?;
    let names = portable::problems(manifest.files.keys().map(String::as_str));
    if !names.is_empty() {
        return Err(Error::Names(names));
    }
    let bytes = manifest.to_bytes()?;
    files::write(&work.join(manifest::FILE), 0o644, &bytes)?;
    files::write(
        &work.join(manifest::CHECKSUM),
        0o644,
        Manifest::checksum(&bytes).as_bytes(),
    )?;
    Ok((manifest, lock))
}

fn image_part(
    parts: &BuildCache,
    images: &[oci_layout::StoredImage],
) -> Result<CachedArtifact, Error> {
    let digest = |found: &oci_layout::StoredImage| {
        let image = &found.image;
        let index = image
            .index
            .as_ref()
            .map(|index| format!(" {}", index.digest));
        let manifest = &image.manifest.digest;
        format!(
            "{} {manifest}{}",
            found.reference,
            index.unwrap_or_default()
        )
    };
    let mut inputs: Vec<_> = images.iter().map(digest).collect();
    inputs.sort_unstable();
    parts.get("images", &inputs.join("\n"), |dir| {
        oci_layout::gather(images, dir)?;
        Ok(BTreeMap::new())
    })
}

/// The directory of a further release's repository in a bundle. The state tree has it too
/// (`halite/host/repository`).
fn release_directory(codename: &str) -> String {
    format!("apt-{codename}")
}

fn apt_part(
    parts: &BuildCache,
    recipe: &Recipe,
    base: &Path,
    archives: &[Archive],
    date: Timestamp,
    progress: &mut dyn FnMut(&str),
) -> Result<CachedArtifact, Error> {
    // The signer comes before the part's cache key, because the key file is one of the inputs.
    let signer = signer(recipe)?;
    let mut inputs = vec![date.to_string()];
    inputs.extend(archives.iter().map(|archive| archive.sha256.clone()));
    for file in [base, &recipe.signing_key] {
        inputs.push(files::digest(file)?.0);
    }
    let made = recipe
        .made
        .iter()
        .map(|made| made.package(&recipe.states))
        .collect::<Result<Vec<_>, _>>()?;
    for package in &made {
        inputs.push(package.fingerprint()?);
    }
    parts.get("apt", &inputs.join("\n"), |dir| {
        let pool = dir.join("pool");
        files::make_dir(&pool)?;
        for archive in archives {
            archive
                .copy(&pool.join(apt::package::file_name(&apt::package::read(&archive.path)?)))?;
        }
        for package in &made {
            progress(&format!(
                "making the package {} {}",
                package.name,
                package.full_version()
            ));
            package::deb::write(package, &pool)?;
        }
        progress("writing and proving the package repository");
        let versions = apt::write(dir, date, &signer)?;
        let mut wanted = recipe.apt.clone();
        wanted.extend(
            recipe
                .made
                .iter()
                .map(|made| format!("{}={}", made.package, made.version)),
        );
        apt::prove(dir, base, &wanted)?;
        Ok(versions)
    })
}

fn signer(recipe: &Recipe) -> Result<Signer, Error> {
    let kind = if recipe.rpm.is_some() {
        KeyKind::Rsa
    } else {
        KeyKind::Ed25519
    };
    Signer::open(&recipe.signing_key, kind)
}

fn rpm_part(
    parts: &BuildCache,
    recipe: &Recipe,
    wanted: &recipe::Rpm,
    fetched: &[Archive],
    date: Timestamp,
    progress: &mut dyn FnMut(&str),
) -> Result<CachedArtifact, Error> {
    let signer = signer(recipe)?;
    if !signer.is_rsa()? {
        let message = "is not an RSA key, and rpm on Red Hat's distributions up to version 9 can check no other kind: name \
                       a file that does not exist yet, and a key is made; existing hosts get it with their next bundle";
        return Err(Error::content(&recipe.signing_key, message));
    }
    let mut keys: Vec<PathBuf> = wanted
        .repositories
        .iter()
        .map(|repository| repository.key.clone())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let mut inputs = vec![date.to_string(), wanted.names.join(" ")];
    for file in keys.iter().chain([&wanted.base, &recipe.signing_key]) {
        inputs.push(files::digest(file)?.0);
    }
    inputs.extend(
        fetched
            .iter()
            .map(|archive| format!("{} {}", archive.name, archive.sha256)),
    );
    let made = recipe
        .made
        .iter()
        .map(|made| made.package(&recipe.states))
        .collect::<Result<Vec<_>, _>>()?;
    for package in &made {
        inputs.push(package.fingerprint()?);
    }
    parts.get("rpm", &inputs.join("\n"), |dir| {
        let packages = dir.join(rpm::PACKAGES);
        files::make_dir(&packages)?;
        let mut taken = Vec::new();
        for archive in fetched {
            let place = packages.join(rpm::file_name(&archive.name, &archive.sha256));
            archive.copy(&place)?;
            taken.push(place);
        }
        rpm::check(&taken, &keys)?;
        let mut ours = Vec::new();
        for package in &made {
            progress(&format!(
                "making the RPM package {} {}",
                package.name,
                package.full_version()
            ));
            ours.push(package::rpm::write(package, &packages)?);
        }
        signer.sign_rpms(&ours, date)?;
        progress("writing and proving the yum repository");
        let versions = rpm::write(dir, date, &signer, &keys)?;
        let base = Base::load(&wanted.base)?;
        let mut names: Vec<String> = wanted
            .names
            .iter()
            .map(|name| name.replace('=', "-"))
            .collect();
        names.extend(
            made.iter()
                .map(|package| format!("{}-{}", package.name, versions[&package.name])),
        );
        rpm::prove(dir, &base, &names)?;
        Ok(versions)
    })
}
