//! `init`, `lock`, `update` and `build`: from a recipe to a bundle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use halite_builder::{Options, Resolved, Start};
use halite_cli::builder::Signing;
use halite_fetch::progress::Status;
use halite_seal::keys::{SecretKey, load_all};
use halite_terminal::{Screen, count, megabytes, seconds, table};
use serde_json::json;

use super::coverage;

/// The directory of everything but programs when Halite is installed as a package.
const SHARED: &str = "/usr/share/halite";

/// The directory of the programs that go into bundles when Halite is installed as a package.
const PROGRAMS: &str = "/usr/lib/halite";

/// The directories of a release: programs that go into bundles, and other content.
struct Shipped {
    programs: PathBuf,
    /// That of another release would not match the programs.
    content: Option<PathBuf>,
}

impl Shipped {
    /// Finds the release to which a program in the directory `own` belongs; `given` is the
    /// directory of the programs if the operator names it.
    fn find(own: &Path, given: Option<PathBuf>) -> Self {
        let is_complete = |dir: &Path| dir.join("halite-master").is_file();
        let installed = PathBuf::from(PROGRAMS);
        let programs = match given {
            Some(given) => given,
            None if !is_complete(own) && is_complete(&installed) => installed,
            None => own.to_owned(),
        };
        let content = if programs == Path::new(PROGRAMS) {
            Some(PathBuf::from(SHARED))
        } else {
            // In an archive and in a bundle, the content is beside `bin`.
            programs.parent().map(Path::to_owned)
        };
        Self { programs, content }
    }

    /// The path of an item, if the release has it; `part` is the path of a file in the item.
    fn item(&self, name: &str, part: &str) -> Option<PathBuf> {
        let item = self.content.as_ref()?.join(name);
        let is_there = match part {
            "" => item.is_file(),
            part => item.join(part).is_file(),
        };
        is_there.then_some(item)
    }
}

/// Runs `halite-builder init`.
///
/// # Errors
/// A recipe already exists, or the version is unknown.
pub fn init(
    directory: &Path,
    kubernetes: String,
    programs: Option<PathBuf>,
    states: Option<PathBuf>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    let own = own.context("the path of this program is unknown")?;
    let shipped = Shipped::find(own.parent().unwrap_or(Path::new("/")), programs);
    let states = states.or_else(|| shipped.item("states", "top.sls"));
    let start = Start {
        kubernetes,
        docs: item(&shipped, "docs", "index.html")?,
        sbom_inputs: item(&shipped, "sbom-inputs.json", "")?,
        states: absolute(states.unwrap_or_else(|| "states".into()))?,
        programs: absolute(shipped.programs)?,
    };
    let recipe = halite_builder::init(directory, &start)?;
    screen.answer(&json!({"recipe": recipe}), |_| {
        let next = if recipe == Path::new("./recipe.yaml") {
            "ctl bundle lock".to_owned()
        } else {
            format!("ctl bundle lock --recipe {}", recipe.display())
        };
        format!(
            "{} names everything that a cluster needs; edit it, put the `base` that it names beside it, then run: {next}\n",
            recipe.display()
        )
    })?;
    Ok(0)
}

fn item(shipped: &Shipped, name: &str, part: &str) -> anyhow::Result<Option<PathBuf>> {
    shipped.item(name, part).map(absolute).transpose()
}

fn absolute(path: PathBuf) -> anyhow::Result<PathBuf> {
    std::path::absolute(&path).with_context(|| format!("{} is not a valid path", path.display()))
}

/// Runs `halite-builder lock`.
///
/// # Errors
/// An item cannot be resolved or differs from the lock.
pub fn lock(recipe: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let options = options(false, screen);
    let resolved = halite_builder::lock(recipe, &options, &mut |text| screen.progress(text))?;
    answer(recipe, &resolved, "recorded", screen)
}

/// Runs `halite-builder update`.
///
/// # Errors
/// An item cannot be resolved.
pub fn update(recipe: &Path, test: bool, screen: &mut Screen) -> anyhow::Result<u8> {
    let options = options(false, screen);
    let resolved =
        halite_builder::update(recipe, &options, !test, &mut |text| screen.progress(text))?;
    answer(
        recipe,
        &resolved,
        if test {
            "would be recorded"
        } else {
            "recorded"
        },
        screen,
    )
}

fn answer(
    recipe: &Path,
    resolved: &Resolved,
    done: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let file = halite_builder::lock::path_of(recipe);
    let unlicensed = resolved.lock.unlicensed();
    let document = json!({"lock": file, "changes": resolved.changes, "size": resolved.lock.size(),
        "unlicensed": unlicensed});
    screen.answer(&document, |paint| {
        let size = megabytes(resolved.lock.size());
        let mut text = match resolved.changes.len() {
            0 => format!("nothing changes in {}, {size}\n", file.display()),
            changes => {
                let rows = resolved
                    .changes
                    .iter()
                    .map(|c| (c.name.as_str(), c.old.as_deref(), c.new.as_deref()));
                let table = table::changes("what", rows);
                format!(
                    "{table}{} {done} in {}, {size}\n",
                    count(changes, "change"),
                    file.display()
                )
            }
        };
        if !unlicensed.is_empty() {
            let text_of = "the licences of these are unknown; set `licence:` in the recipe";
            text.push_str(&format!(
                "{}: {}\n",
                paint.notable(text_of),
                unlicensed.join(", ")
            ));
        }
        text
    })?;
    Ok(0)
}

/// Runs `halite-builder build`.
///
/// # Errors
/// The bundle cannot be built.
pub fn build(
    recipe: &Path,
    out: &Path,
    offline: bool,
    signing: &Signing,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let iso = out.extension().is_some_and(|suffix| suffix == "iso");
    // An unreadable key or a wrong password is reported before the long work.
    let keys = if iso { signers(signing)? } else { Vec::new() };
    let people = screen.is_for_people();
    let options = Options {
        coverage: coverage()?,
        ..options(offline, screen)
    };
    let mut told = |text: &str| {
        if people {
            screen.line(text)
        } else {
            screen.progress(text)
        }
    };
    let manifest = if iso {
        halite_builder::build_image(recipe, out, &keys, &options, &mut told)?
    } else {
        halite_builder::build(recipe, out, &options, &mut told)?
    };
    let size: u64 = manifest.files.values().map(|entry| entry.size).sum();
    let signers: Vec<_> = keys.iter().map(|key| key.public().id()).collect();
    let document = json!({"bundle": out.display().to_string(), "version": manifest.version,
        "kubernetes": manifest.kubernetes, "files": manifest.files.len(), "size": size, "signers": signers});
    screen.document(&document)?;
    Ok(0)
}

/// Reads the keys that sign the image.
fn signers(signing: &Signing) -> anyhow::Result<Vec<SecretKey>> {
    if signing.key.is_empty() && !signing.unsigned {
        bail!(
            "name the key that signs the image with --key (`ctl bundle key` makes one), or leave it --unsigned"
        );
    }
    Ok(load_all(&signing.key, signing.password_file.as_deref())?)
}

fn options(offline: bool, screen: &Screen) -> Options {
    let live = Arc::clone(screen.live());
    Options {
        offline,
        watcher: Some(Arc::new(move |status: &Status| live.set("", &told(status)))),
        ..Options::default()
    }
}

/// The progress for display: `8.1 MB/s, 120.0 of 412.0 MB, 36 s left: registry.k8s.io/etcd:3.6.8-0
/// ab12cd34ef56`.
fn told(status: &Status) -> String {
    let left = status.left.map_or_else(String::new, |left| {
        format!(", {} left", seconds(left.as_secs_f64()))
    });
    let (done, total) = (
        megabytes(status.all_done),
        megabytes(status.all_total.max(status.all_done)),
    );
    format!(
        "{}/s, {} of {total}{left}: {}",
        megabytes(status.rate as u64),
        done.trim_end_matches(" MB"),
        status.name
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_content_of_a_release_is_beside_its_programs() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, other) = (dir.path().join("bin"), dir.path().join("other/bin"));
        for file in ["states/top.sls", "docs/index.html", "sbom-inputs.json"] {
            halite_durable::files::write(&dir.path().join(file), 0o644, b"").unwrap();
        }
        let shipped = Shipped::find(&bin, None);
        assert_eq!(shipped.programs, bin);
        let states = shipped.item("states", "top.sls");
        assert_eq!(states, Some(dir.path().join("states")));
        let inputs = shipped.item("sbom-inputs.json", "");
        assert_eq!(inputs, Some(dir.path().join("sbom-inputs.json")));
        assert_eq!(shipped.item("licences", "index.html"), None);
        assert_eq!(Shipped::find(&bin, Some(other.clone())).programs, other);
    }

    #[test]
    fn only_the_installed_programs_have_the_installed_content() {
        let content =
            |programs: &str| Shipped::find(Path::new("/b"), Some(programs.into())).content;
        assert_eq!(content("/usr/lib/halite/"), Some(SHARED.into()));
        assert_eq!(content("/srv/halite/bin"), Some("/srv/halite".into()));
    }

    #[test]
    fn how_far_it_is_fits_on_a_line() {
        let status = Status {
            name: "kubelet".into(),
            done: 1,
            total: None,
            all_done: 120_000_000,
            all_total: 412_000_000,
            rate: 8_100_000.0,
            left: Some(Duration::from_secs(36)),
        };
        assert_eq!(
            told(&status),
            "8.1 MB/s, 120.0 of 412.0 MB, 36 s left: kubelet"
        );
        let status = Status {
            left: None,
            ..status
        };
        assert_eq!(told(&status), "8.1 MB/s, 120.0 of 412.0 MB: kubelet");
    }
}
