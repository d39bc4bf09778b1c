//! Building a bundle.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use crate::{
    apt,
    complete::{self, Needs, Stock},
    error::Error,
    files,
    lock::{Item, Lock},
    manifest::{self, Entry, Manifest},
    nginx, oci, package,
    part::{Part, Parts},
    recipe::{Recipe, Reference},
};

/// The program at the top of a bundle.
const INSTALL: &str = "#!/bin/sh
# Makes this host the first one of a cluster; takes the options of `ctl bootstrap`.
set -e
here=$(cd \"$(dirname \"$0\")\" && pwd)
exec \"$here/bin/ctl\" bootstrap --bundle \"$here\" \"$@\"
";

/// How to build.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Record in the lock what is found now, instead of refusing what differs from it.
    pub update: bool,
}

/// Renders the state tree of the bundle in a directory for every option that a cluster made from it may have.
pub type Render<'a> = dyn Fn(&Path, &Manifest) -> Result<Needs, Error> + 'a;

/// Builds the bundle of a recipe into `out`, replacing a bundle that is there already. The same recipe, lock and
/// inputs give the same bytes, but for the signatures of the apt repository. Nothing is at `out` before all of it is, and
/// before everything is in it that `render` comes to.
///
/// # Errors
/// When the recipe has problems, something that goes in differs from the lock or is damaged, the packages cannot be
/// installed on a bare host, something that a cluster could ask for is missing, a program of the build fails, or a file
/// cannot be written.
pub fn build(
    recipe_file: &Path,
    out: &Path,
    options: &Options,
    render: &Render<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let recipe = Recipe::load(recipe_file)?;
    let occupied = out.file_name().is_none() || (out.exists() && !out.join(manifest::FILE).is_file());
    if occupied {
        return Err(Error::Occupied(out.to_owned()));
    }
    let work = files::sibling(out, "new");
    let scratch = files::sibling(out, "parts");
    files::remove_dir(&work)?;
    let built = (|| {
        files::make_dir(&work)?;
        let cache = recipe.cache.clone().unwrap_or_else(|| scratch.clone());
        let (manifest, lock) = fill(recipe_file, &recipe, &work, &cache, options, progress)?;
        progress("looking for what a cluster could ask for and would not find");
        let missing = render(&work, &manifest)?.missing(&Stock::read(&work, &manifest)?);
        if !missing.is_empty() {
            return Err(Error::Missing(missing));
        }
        lock.save(recipe_file)?;
        swap(&work, out)?;
        Ok(manifest)
    })();
    if built.is_err() {
        files::remove_dir(&work)?;
    }
    files::remove_dir(&scratch)?;
    built
}

/// Puts the new bundle in the place of the old one.
fn swap(new: &Path, out: &Path) -> Result<(), Error> {
    let old = files::sibling(out, "old");
    files::remove_dir(&old)?;
    if out.exists() {
        fs::rename(out, &old).map_err(Error::file("move", out))?;
    }
    fs::rename(new, out).map_err(Error::file("move", new))?;
    files::remove_dir(&old)
}

fn fill(
    recipe_file: &Path,
    recipe: &Recipe,
    work: &Path,
    cache: &Path,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(Manifest, Lock), Error> {
    let recorded = Lock::load(recipe_file)?.filter(|_| !options.update);
    progress("looking at images");
    let images = images(recipe)?;
    progress("gathering packages");
    let archives = apt::fetch(&recipe.apt, &recipe.base, &cache.join("archives"), recorded.as_ref())?;
    let lock = settle(recipe_file, recipe, &images, &archives, recorded)?;
    let date: Timestamp = lock.resolved.parse().map_err(|error| {
        Error::content(crate::lock::path_of(recipe_file), format!("`resolved` is no date: {error}"))
    })?;
    let parts = Parts::new(cache)?;
    let mut listed = BTreeMap::new();

    progress(&format!("gathering {} images", images.len()));
    image_part(&parts, &images)?.place(work, "images", &mut listed)?;
    let repository = apt_part(&parts, recipe, &archives, date, progress)?;
    repository.place(work, "apt", &mut listed)?;

    progress("gathering programs and states");
    let mut put = |name: String, mode: u32, content: &[u8]| -> Result<(), Error> {
        files::write(&work.join(&name), mode, content)?;
        listed.insert(name, Entry { sha256: files::sha256(content), size: content.len() as u64 });
        Ok(())
    };
    let served: Vec<_> =
        images.iter().map(|(reference, _, image)| (reference.clone(), image.clone())).collect();
    put(nginx::MAPS.to_owned(), 0o644, nginx::maps(&served).as_bytes())?;
    put(nginx::SERVER.to_owned(), 0o644, nginx::LOCATIONS.as_bytes())?;
    let base = fs::read_to_string(&recipe.base).map_err(Error::file("read", &recipe.base))?;
    put(complete::BASE.to_owned(), 0o644, complete::essence(&base).as_bytes())?;
    put("install".to_owned(), 0o755, INSTALL.as_bytes())?;
    let mut copied = |name: String, from: &Path, mode: u32| -> Result<(), Error> {
        let (sha256, size) = files::copy(from, &work.join(&name), mode)?;
        listed.insert(name, Entry { sha256, size });
        Ok(())
    };
    for (name, from) in &recipe.binaries {
        copied(format!("bin/{name}"), from, 0o755)?;
    }
    for name in files::walk(&recipe.states)? {
        let from = recipe.states.join(&name);
        let status = fs::metadata(&from).map_err(Error::file("read", &from))?;
        let executable = status.permissions().mode() & 0o100 != 0;
        copied(format!("states/{name}"), &from, if executable { 0o755 } else { 0o644 })?;
    }

    let manifest = Manifest {
        format: manifest::FORMAT,
        name: "halite".to_owned(),
        version: recipe.version.clone(),
        built: lock.resolved.clone(),
        kubernetes: recipe.kubernetes.clone(),
        components: recipe.components(),
        images: recipe
            .images
            .iter()
            .map(|image| (image.component.clone(), image.reference.to_string()))
            .collect(),
        options: recipe.options.clone(),
        packages: repository.note().clone(),
        files: listed,
    };
    let bytes = manifest.to_bytes()?;
    files::write(&work.join(manifest::FILE), 0o644, &bytes)?;
    files::write(&work.join(manifest::CHECKSUM), 0o644, Manifest::checksum(&bytes).as_bytes())?;
    Ok((manifest, lock))
}

type Found<'a> = (Reference, &'a Path, oci::Image);

fn images(recipe: &Recipe) -> Result<Vec<Found<'_>>, Error> {
    let find = |image: &'_ crate::recipe::Image| oci::find(&image.layout, &image.reference.to_string());
    recipe
        .images
        .iter()
        .map(|image| Ok((image.reference.clone(), image.layout.as_path(), find(image)?)))
        .collect()
}

/// What everything came to, compared with what is recorded.
fn settle(
    recipe_file: &Path,
    recipe: &Recipe,
    images: &[Found<'_>],
    archives: &[PathBuf],
    recorded: Option<Lock>,
) -> Result<Lock, Error> {
    let dir = recipe_file.parent().unwrap_or(Path::new("."));
    let images = recipe.images.iter().zip(images).map(|(wanted, (reference, layout, image))| {
        let item = Item {
            sha256: image.manifest.hex().unwrap_or_default().to_owned(),
            size: image.size(),
            source: layout.strip_prefix(dir).unwrap_or(layout).display().to_string(),
            why: format!("component {}", wanted.component),
        };
        (reference.to_string(), item)
    });
    let mut lock = Lock {
        format: 1,
        resolved: String::new(),
        request: apt::request(&recipe.apt, &recipe.base)?,
        images: images.collect(),
        packages: packages(&recipe.apt, archives)?,
    };
    if let Some(recorded) = recorded {
        let differences = recorded.differences(&lock);
        if !differences.is_empty() {
            let lock = crate::lock::path_of(recipe_file).display().to_string();
            return Err(Error::Lock { lock, differences });
        }
        lock.resolved.clone_from(&recorded.resolved);
        if lock == recorded {
            return Ok(lock);
        }
    }
    lock.resolved = now()?.to_string();
    Ok(lock)
}

/// `SOURCE_DATE_EPOCH` where it is set, so that a build from nothing can be repeated too; else the time, in seconds.
fn now() -> Result<Timestamp, Error> {
    let wrong = |error: String| Error::content("SOURCE_DATE_EPOCH", error);
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().map_err(|_| wrong(format!("{text:?} is no number of seconds")))?,
        Err(_) => Timestamp::now().as_second(),
    };
    Timestamp::from_second(seconds).map_err(|error| wrong(error.to_string()))
}

/// The archives as the lock records them, each with the packages that need it.
fn packages(asked: &[String], archives: &[PathBuf]) -> Result<BTreeMap<String, Item>, Error> {
    let mut controls = Vec::new();
    for archive in archives {
        controls.push((archive, apt::Control::read(archive)?));
    }
    let mut found = BTreeMap::new();
    for (archive, control) in &controls {
        let name = control.field("Package");
        let why = if asked.iter().any(|wanted| wanted == name) {
            "asked for".to_owned()
        } else {
            let users = controls.iter().filter(|(_, user)| user.needs().contains(&name));
            let users: Vec<_> = users.map(|(_, user)| user.field("Package")).collect();
            if users.is_empty() {
                "a newer one than the base has is needed".to_owned()
            } else {
                format!("needed by {}", users.join(", "))
            }
        };
        let (sha256, size) = files::digest(archive)?;
        found.insert(control.file_name(), Item { sha256, size, source: "apt".to_owned(), why });
    }
    Ok(found)
}

fn image_part(parts: &Parts, images: &[Found<'_>]) -> Result<Part, Error> {
    let named: Vec<_> = images
        .iter()
        .map(|(reference, layout, image)| (reference.to_string(), *layout, image.clone()))
        .collect();
    let mut inputs: Vec<_> =
        named.iter().map(|(reference, _, image)| format!("{reference} {}", image.manifest.digest)).collect();
    inputs.sort_unstable();
    parts.get("images", &inputs.join("\n"), |dir| {
        oci::gather(&named, dir)?;
        Ok(BTreeMap::new())
    })
}

fn apt_part(
    parts: &Parts,
    recipe: &Recipe,
    archives: &[PathBuf],
    date: Timestamp,
    progress: &mut dyn FnMut(&str),
) -> Result<Part, Error> {
    // Before the key of the part: the key file is one of its inputs.
    let signer = apt::Signer::open(&recipe.signing_key)?;
    let mut inputs = vec![date.to_string()];
    for file in archives.iter().chain([&recipe.base, &recipe.signing_key]) {
        inputs.push(files::digest(file)?.0);
    }
    let made = recipe.made.iter().map(|made| made.package(&recipe.states)).collect::<Result<Vec<_>, _>>()?;
    for package in &made {
        inputs.push(package.fingerprint()?);
    }
    parts.get("apt", &inputs.join("\n"), |dir| {
        let pool = dir.join("pool");
        files::make_dir(&pool)?;
        for archive in archives {
            files::copy(archive, &pool.join(apt::Control::read(archive)?.file_name()), 0o644)?;
        }
        for package in &made {
            progress(&format!("making the package {} {}", package.name, package.full_version()));
            package::deb::write(package, &pool)?;
        }
        progress("writing and proving the package repository");
        let versions = apt::write(dir, date, &signer)?;
        let mut wanted = recipe.apt.clone();
        wanted.extend(recipe.made.iter().map(|made| format!("{}={}", made.package, made.version)));
        apt::prove(dir, &recipe.base, &wanted)?;
        Ok(versions)
    })
}
