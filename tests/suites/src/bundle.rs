//! The bundle from which the lab installs: the completeness check reports any removed artifact by
//! name, with the part that needs it.

mod coverage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::{Programs, with_builder};
use halite_lab::progress::Board;
use halite_upstream::{prepare, versions};
use serde_json::{Map, Value};

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<()>] = &[Test {
    name: "bundle: it is complete, and a removed image or state is reported as missing",
    run: lacks_nothing,
}];

/// For the bundle with everything that a cluster can choose: it satisfies each part of the state
/// tree.
pub(super) const FULL: &[Test<()>] = &[
    Test {
        name: "bundle: anything removed is reported as missing",
        run: taken_away,
    },
    Test {
        name: "bundle: pairs of options and the covering array have the same requirements",
        run: coverage::need_the_same,
    },
];

/// Files of the bundle that only people read: paths, or prefixes of paths.
const FOR_PEOPLE: &[&str] = &[
    "states/README.md",
    "states/custom/README.md",
    "docs/",
    "licences/",
    "prometheus/",
    "sbom.spdx.json",
];

/// A part of the state tree that each host has.
const SLS: &str = "states/halite/host/init.sls";

/// Images that only the lab's tests run.
const OF_THE_LAB: &[&str] = &["lab-pod"];

/// Packages that no state names. The lab's recipe requests some itself (`ipset` brings its library,
/// and `openssh-server`, for tests, its dependencies). `perl-base` is included for packages that
/// conflict with the base system's older version. Halite's own packages are for operators: states
/// install the programs directly.
const PACKAGES_BESIDES: &[&str] = &[
    "halite-ctl",
    "halite-master",
    "halite-minion",
    "ipset",
    "kmod",
    "libcbor0.8",
    "libfido2-1",
    "libipset13",
    "openssh-client",
    "openssh-server",
    "openssh-sftp-server",
    "perl-base",
    "runit-helper",
];

fn lacks_nothing((): &()) -> Result<Counts> {
    let bundle = prepare::bundle(&Board::silent())?;
    let report = needs(&bundle)?;
    let paths = [an_image(&bundle)?, SLS.to_owned()];
    each_is_reported(&bundle, &report, &paths)
}

fn taken_away((): &()) -> Result<Counts> {
    let bundle = prepare::bundle_of(&versions::FULL, &Board::silent())?;
    let report = needs(&bundle)?;
    every_part_is_missed(&bundle, &report)?;
    each_is_reported(&bundle, &report, &really(&bundle)?)
}

/// Checks the report on each artifact, and `ctl`'s report on real copies without these files.
fn each_is_reported(bundle: &Path, report: &Value, paths: &[String]) -> Result<Counts> {
    let named = each_is_named(bundle, report)?;
    for path in paths {
        without(bundle, path)?;
    }
    Ok(Counts {
        passed: named + paths.len(),
        failed: 0,
    })
}

/// The report of `ctl bundle needs`, printed by the bundle's own `ctl`: nothing is missing, and the
/// recipe excuses nothing.
fn needs(bundle: &Path) -> Result<Value> {
    let mut ctl = Command::new(bundle.join("bin/ctl"));
    report(with_builder(&mut ctl, Programs::Dev)?, bundle)
}

fn report(ctl: &mut Command, bundle: &Path) -> Result<Value> {
    let output = ctl
        .args(["--output", "json", "bundle", "needs"])
        .arg(bundle)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("ctl bundle needs ended with {}: {said}", output.status))?;
    ensure!(
        report["missing"] == Value::Array(Vec::new()),
        "the bundle lacks {:#}",
        report["missing"]
    );
    ensure!(
        report["excused"] == Value::Object(Map::new()),
        "the lab's recipe excuses {:#}",
        report["excused"]
    );
    Ok(report)
}

/// Checks the artifacts that no part of the bundle needs. `ctl` removed each artifact in turn, in
/// memory; those whose absence it did not notice must be expected here.
fn every_part_is_missed(bundle: &Path, report: &Value) -> Result<()> {
    let ours = blobs_of_the_cluster(bundle)?;
    for artifact in report["spare"]
        .as_array()
        .context("no list of spare artifacts")?
    {
        let text = |name: &str| artifact[name].as_str().unwrap_or_default();
        let expected = match text("kind") {
            "image" => OF_THE_LAB
                .iter()
                .any(|name| text("reference").contains(name)),
            "package" => PACKAGES_BESIDES.contains(&text("name")),
            _ if text("path").starts_with("images/blobs/") => !ours.contains(text("path")),
            _ if text("path").starts_with("apt/pool/") => {
                let file = text("path").trim_start_matches("apt/pool/");
                PACKAGES_BESIDES
                    .iter()
                    .any(|name| file.starts_with(&format!("{name}_")))
            }
            _ => FOR_PEOPLE
                .iter()
                .any(|people| text("path").starts_with(people)),
        };
        ensure!(expected, "nothing needs {artifact}");
    }
    Ok(())
}

/// Checks that each removed image, package and file is reported by name, with the part that needs
/// it. Returns their number.
fn each_is_named(bundle: &Path, report: &Value) -> Result<usize> {
    let manifest: Value = serde_json::from_slice(&fs::read(bundle.join("manifest.json"))?)?;
    let keys = |name: &str| -> BTreeSet<String> {
        manifest[name]
            .as_object()
            .into_iter()
            .flat_map(|map| map.keys().cloned())
            .collect()
    };
    let images = manifest["images"]
        .as_object()
        .into_iter()
        .flat_map(Map::values);
    let images: BTreeSet<String> = images
        // The layout has its images by their tags.
        .filter_map(|reference| reference.as_str()?.split('@').next())
        .map(str::to_owned)
        .collect();
    let mut left = [
        ("image", images),
        ("package", keys("packages")),
        ("file", keys("files")),
    ];
    let mut named = 0;
    for taken in report["without"]
        .as_array()
        .context("no list of the removed artifacts")?
    {
        let artifact = &taken["artifact"];
        let text = |name: &str| artifact[name].as_str();
        let name = text("reference")
            .or(text("name"))
            .or(text("path"))
            .context("an artifact without a name")?;
        for (kind, names) in &mut left {
            if text("kind") == Some(kind) {
                names.remove(name);
            }
        }
        let said: Vec<&str> = taken["said"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if said.is_empty() {
            // Nothing needs it: `every_part_is_missed` has checked these.
            continue;
        }
        let said = said.join("\n");
        // A blob is named by its digest; a part of the state tree may also be named as an SLS.
        let as_tree = name.strip_prefix("states/").map(|path| {
            let path = path.strip_suffix(".sls").unwrap_or(path);
            path.strip_suffix("/init").unwrap_or(path).replace('/', ".")
        });
        let short = name.strip_prefix("images/blobs/sha256/").unwrap_or(name);
        let by_name =
            said.contains(short) || as_tree.is_some_and(|sls| said.contains(&format!("`{sls}`")));
        // A compile error names its position: `base/x.sls:3:`.
        let by_whom =
            said.contains("needed by ") || said.contains(".sls:") || said.contains(".j2:");
        ensure!(
            by_name && by_whom,
            "without {artifact} ctl would report: {said}"
        );
        named += 1;
    }
    for (kind, names) in left {
        ensure!(
            names.is_empty(),
            "ctl did not remove each of these {kind} artifacts: {names:?}"
        );
    }
    Ok(named)
}

/// The blobs of all images except the lab's own, as paths in the bundle.
fn blobs_of_the_cluster(bundle: &Path) -> Result<BTreeSet<String>> {
    let read = |path: &Path| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let place = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        format!("images/blobs/{}", digest.replace(':', "/"))
    };
    let mut found = BTreeSet::new();
    let index = read(&bundle.join("images/index.json"))?;
    for image in index["manifests"]
        .as_array()
        .context("images/index.json names no image")?
    {
        let name = image["annotations"]["org.opencontainers.image.ref.name"]
            .as_str()
            .unwrap_or_default();
        if OF_THE_LAB
            .iter()
            .any(|of_the_lab| name.contains(of_the_lab))
        {
            continue;
        }
        let manifest = read(&bundle.join(place(image)))?;
        let layers = manifest["layers"].as_array().into_iter().flatten();
        found.extend(layers.chain([image, &manifest["config"]]).map(place));
    }
    Ok(found)
}

/// A blob of an image.
fn an_image(bundle: &Path) -> Result<String> {
    let blobs = blobs_of_the_cluster(bundle)?;
    blobs.into_iter().next().context("the bundle has no image")
}

/// One file of each kind, to be removed from a real copy.
fn really(bundle: &Path) -> Result<Vec<String>> {
    let pool = fs::read_dir(bundle.join("apt/pool"))?;
    let names: Vec<String> = pool
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    let package = names
        .iter()
        .find(|name| name.starts_with("kubelet_"))
        .context("the bundle has no kubelet")?;
    let rest = [
        "bin/halite-minion",
        SLS,
        "states/halite/base/network/flannel.yaml.j2",
        "nginx/registry.conf",
    ];
    let files = [an_image(bundle)?, format!("apt/pool/{package}")];
    Ok(files
        .into_iter()
        .chain(rest.into_iter().map(str::to_owned))
        .collect())
}

/// Checks that a copy of the bundle without a file, and without its line in the manifest, is
/// refused with a report that names the file.
fn without(bundle: &Path, path: &str) -> Result<()> {
    let copy: PathBuf = halite_lab::cache().join("taken-away");
    let _ = fs::remove_dir_all(&copy);
    let status = Command::new("cp")
        .arg("-al")
        .arg(bundle)
        .arg(&copy)
        .status()?;
    ensure!(
        status.success(),
        "the bundle cannot be copied to {}",
        copy.display()
    );
    fs::remove_file(copy.join(path))?;
    let file = copy.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file)?)?;
    manifest["files"]
        .as_object_mut()
        .and_then(|files| files.remove(path))
        .context("it is not listed")?;
    let bytes = serde_json::to_vec_pretty(&manifest)?;
    let checksum = format!("{}  manifest.json\n", halite_states::tree::sha256(&bytes));
    // The copy hard-links the bundle's files: replace files, never write into one.
    for (name, content) in [
        ("manifest.json", bytes),
        ("manifest.json.sha256", checksum.into_bytes()),
    ] {
        fs::remove_file(copy.join(name))?;
        fs::write(copy.join(name), content)?;
    }
    let mut ctl = Command::new(bundle.join("bin/ctl"));
    let output = with_builder(&mut ctl, Programs::Dev)?
        .args(["bundle", "verify", "--allow-unsigned"])
        .arg(&copy)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A part of the state tree is named as an SLS.
    let named = match path.strip_suffix("/init.sls") {
        Some(sls) => format!("`{}`", sls.trim_start_matches("states/").replace('/', ".")),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    };
    fs::remove_dir_all(&copy)?;
    ensure!(
        !output.status.success() && said.contains(&named),
        "without {path}, ctl bundle verify reports: {said}"
    );
    Ok(())
}
