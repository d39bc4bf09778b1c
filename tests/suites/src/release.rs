//! A release, as its users use it: verified and installed in a bare Debian by the commands of the
//! README, and made into a bundle from which a host is bootstrapped.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{self, CLUSTER};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::{Lab, layout};
use halite_release::VERSION;
use halite_upstream::ISO;

use crate::builder_root::BuilderRoot;
use crate::guide;
use crate::iso::builder;
use crate::test::{Counts, Test};

/// Tests of `--full`: the programs as shipped, and mdBook, take many minutes to build.
pub(super) const FULL: &[Test<()>] = &[Test {
    name: "release: verified and installed in a bare Debian, it makes a bundle that bootstraps a host",
    run: is_used,
}];

/// The lab of the bootstrapped host.
const LAB: &str = "release";

/// The page and the heading with the commands.
const README: (&str, &str) = ("../../README.md", "## Download");

/// The directory of the release in the root.
const DOWNLOADED: &str = "/root/release";

/// The directory in which the builder works in the root.
const WORK: &str = "/root/site";

/// Limit for the pods of the new cluster.
const READY: Duration = Duration::from_secs(180);

fn is_used((): &()) -> Result<Counts> {
    let root = BuilderRoot::new(DOWNLOADED)?;
    root.shell("apt-get install -qq --yes openssh-client")?;
    let verify = guide::block(README.0, README.1, "ssh-keygen")?;
    root.shell(&format!("cd {DOWNLOADED} && {verify}"))?;
    changed_byte(&root, &verify)?;
    let install = guide::block(README.0, README.1, "apt-get install")?;
    root.shell(&format!("cd {DOWNLOADED} && {install}"))?;
    finds_itself(&root)?;
    let carried = tempfile::Builder::new()
        .prefix("release-iso-")
        .tempdir_in(halite_lab::cache())?;
    make_bundle(&root, carried.path())?;
    bootstraps(carried.path())?;
    Ok(Counts::ONE)
}

/// The commands of the README refuse an archive with a changed byte, and name it.
fn changed_byte(root: &BuilderRoot, verify: &str) -> Result<()> {
    let name = format!("halite-{VERSION}-linux-amd64.tar.gz");
    let path = root.path(DOWNLOADED).join(&name);
    let right = fs::read(&path)?;
    let mut wrong = right.clone();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    fs::write(&path, wrong)?;
    let Err(error) = root.shell(&format!("cd {DOWNLOADED} && {verify}")) else {
        anyhow::bail!("a changed byte in {name} is not found");
    };
    let said = error.to_string();
    ensure!(said.contains(&format!("{name}: FAILED")), "{said}");
    fs::write(path, right).map_err(Into::into)
}

/// `ctl bundle init` finds what the packages have installed.
fn finds_itself(root: &BuilderRoot) -> Result<()> {
    let said = root.shell(&format!(
        "ctl --version; mkdir {WORK}; ctl bundle init {WORK}"
    ))?;
    ensure!(said.contains(&format!("ctl {VERSION}")), "{said}");
    let recipe = fs::read_to_string(root.path(WORK).join("recipe.yaml"))?;
    for line in [
        "  halite-master: \"/usr/lib/halite/halite-master\"",
        "states: \"/usr/share/halite/states\"",
        "docs: \"/usr/share/halite/docs\"",
        "sbom-inputs: \"/usr/share/halite/sbom-inputs.json\"",
    ] {
        let has_line = recipe.lines().any(|own| own == line);
        ensure!(has_line, "ctl bundle init does not write {line}:\n{recipe}");
    }
    Ok(())
}

/// Makes a bundle of the installed release and of the lab's mirror: its images, packages and
/// programs. Puts the files that an operator carries into a directory.
fn make_bundle(root: &BuilderRoot, carried: &Path) -> Result<()> {
    root.use_the_mirror(WORK, |_| Ok(()))?;
    let work = root.path(WORK);
    let key = std::path::absolute(builder()?)?;
    let build = format!(
        "cd {WORK} && ctl bundle build --offline --out {ISO} --key '{}'",
        key.display()
    );
    root.shell(&build)?;
    fs::copy(work.join(ISO), carried.join(ISO))?;
    fs::copy(key.with_extension("pub"), carried.join("builder.pub"))?;
    fs::copy(root.path("/usr/bin/ctl"), carried.join("ctl"))?;
    // The directory of a host's read-only mount.
    run("chmod", &[OsStr::new("755"), carried.as_os_str()]).map(drop)
}

/// Bootstraps a bare host from the ISO; it serves the book.
fn bootstraps(carried: &Path) -> Result<()> {
    let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
    lab.room_for(&layout::TWO)?;
    lab.down()?;
    let host = cluster::boot_bootstrap(&lab, carried)?;
    cluster::bootstrap(&host, CLUSTER)?;
    cluster::wait_for_pods(&host, READY)?;
    serves_the_book(&host)?;
    lab.nothing_tried_to_leave()?;
    lab.down()
}

/// The pages and their style are served with the types that browsers require.
fn serves_the_book(host: &Host) -> Result<()> {
    let address = host.control_plane_address();
    let fetch = |page: &str| {
        host.sh(&format!(
            "curl -fsSi --noproxy '*' --cacert /etc/halite/pki/site-ca.crt https://{address}:4551/docs/{page}"
        ))
    };
    let start = fetch("")?;
    let style = start.split("href=\"css/").nth(1);
    let style = style.and_then(|rest| rest.split('"').next());
    let style = format!("css/{}", style.context("the start page has no style")?);
    for (page, parts) in [
        ("", ["text/html", "<title>Halite"]),
        ("guide/bundle.html", ["text/html", "searchindex"]),
        (&style, ["text/css", "{"]),
    ] {
        let text = fetch(page)?;
        for part in parts {
            ensure!(text.contains(part), "docs/{page} has no {part}:\n{text}");
        }
    }
    Ok(())
}
