//! A second bundle of the cluster's Kubernetes version, on its own ISO: made from the lab's recipe
//! with another version, one package less, and one chart more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::with_builder;
use halite_lab::cluster::Cluster;
use halite_lab::command::run;
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::chart::Chart;
use halite_upstream::versions::{FULL, Release};
use halite_upstream::{ISO, prepare};
use serde_json::{Value, json};

use crate::iso::{builder, recipe_of};

/// Version of the bundle.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-next");

/// Mount point of its ISO on the bootstrap host.
pub const MOUNT_POINT: &str = "/media/next";

/// Directory with the content of the ISO, bind-mounted at [`MOUNT_POINT`].
const STORE: &str = "/srv/next";

/// Limit for nginx and the master to close the files of the ISO.
const FREE: Duration = Duration::from_secs(60);

/// The package that it lacks. No host has it installed.
pub const WITHOUT: &str = "halite-ctl";

/// Makes the bundle, and mounts it on the bootstrap host.
pub fn carry(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    // Remove leftovers of an earlier run, if a cluster is used again.
    take_away(cluster)?;
    let work = tempfile::Builder::new()
        .prefix("second-")
        .tempdir_in(halite_lab::cache())?;
    let iso = build(work.path())?;
    let out = format!("-o{}", host.file(STORE).display());
    run("7z", &["x", "-bd", "-y", &out, &iso.to_string_lossy()])?;
    mount(cluster)
}

/// Mounts the ISO.
pub fn mount(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap.sh(&format!(
        "mkdir -p {MOUNT_POINT} && mount --bind {STORE} {MOUNT_POINT}"
    ))?;
    Ok(())
}

/// A file of the ISO, by its path on the machine: mounts inside a host are visible only there.
pub fn file(cluster: &Cluster, path: &str) -> PathBuf {
    cluster.bootstrap.file(STORE).join(path)
}

/// Unmounts the ISO, once no process has a file of it open.
pub fn unmount(cluster: &Cluster) -> Result<()> {
    wait::until("the ISO to be unused", FREE, || {
        cluster.bootstrap.run(&["umount", MOUNT_POINT]).map(drop)
    })
}

/// Removes the ISO and its content.
pub fn take_away(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let mounted = host.output(&["mountpoint", "-q", MOUNT_POINT])?;
    if mounted.status.success() {
        unmount(cluster)?;
    }
    host.run(&["rm", "-rf", MOUNT_POINT, STORE]).map(drop)
}

fn build(work: &Path) -> Result<PathBuf> {
    variant(work, VERSION, 1, |recipe, first| {
        let hello = Chart::Hello.entry(|component| {
            // By its tag, as in charts: the builder adds the digest.
            let image = first["images"][component].as_str();
            let image = image.and_then(|image| image.split('@').next());
            Ok(image
                .with_context(|| format!("the bundle has no {component}"))?
                .to_owned())
        })?;
        recipe["charts"]
            .as_array_mut()
            .context("the lab's recipe has no chart")?
            .push(hello);
        let made = recipe["packages"]["made"]
            .as_array_mut()
            .context("the lab's recipe makes no package")?;
        made.retain(|package| package["package"] != WITHOUT);
        Ok(())
    })
}

/// Makes a signed ISO from the recipe of [`FULL`] with a difference, as [`variant_of`] does.
pub(super) fn variant(
    work: &Path,
    version: &str,
    minutes: u32,
    change: impl FnOnce(&mut Value, &Value) -> Result<()>,
) -> Result<PathBuf> {
    variant_of(&FULL, work, version, minutes, change)
}

/// Makes a signed ISO from a release's recipe with a difference: `change` gets the recipe, and the
/// manifest of the bundle that was made from it. All artifacts come from the cache that this build
/// filled. The new bundle's date is the given number of minutes later, the same each time, so that
/// its parts stay in the cache, too.
pub fn variant_of(
    release: &Release,
    work: &Path,
    version: &str,
    minutes: u32,
    change: impl FnOnce(&mut Value, &Value) -> Result<()>,
) -> Result<PathBuf> {
    let bundle = prepare::bundle_of(release, &Board::plain())?;
    let first = recipe_of(&bundle)?;
    let text =
        fs::read_to_string(&first).with_context(|| format!("cannot read {}", first.display()))?;
    let mut recipe: Value = serde_json::from_str(&text)?;
    let manifest: Value = serde_json::from_slice(&fs::read(bundle.join("manifest.json"))?)?;
    recipe["version"] = json!(version);
    change(&mut recipe, &manifest)?;
    let (file, iso) = (work.join("recipe.yaml"), work.join(ISO));
    fs::write(&file, recipe.to_string())?;
    fs::copy(
        first.with_extension("lock.yaml"),
        file.with_extension("lock.yaml"),
    )?;
    let built = manifest["built"]
        .as_str()
        .context("the bundle does not say when it was built")?;
    let date = run(
        "date",
        &["-d", &format!("{built} + {minutes} minutes"), "+%s"],
    )?;
    let mut ctl = Command::new(bundle.join("bin/ctl"));
    let output = with_builder(&mut ctl, release.programs)?
        .args(["bundle", "build", "--offline", "--recipe"])
        .arg(&file)
        .arg("--out")
        .arg(&iso)
        .arg("--key")
        .arg(builder()?)
        .env("SOURCE_DATE_EPOCH", date.trim())
        .output()?;
    ensure!(
        output.status.success(),
        "ctl bundle build ended with {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(iso)
}
