//! A release, as its users use it: verified and installed in a bare Debian by the commands of the
//! README, and made into a bundle from which a host is bootstrapped.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::OPTION_SETS;
use halite_lab::cluster::{self, CLUSTER};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::progress::Board;
use halite_lab::{Lab, layout};
use halite_release::VERSION;
use halite_upstream::{ISO, prepare};
use serde_json::{Value, json};

use crate::guide;
use crate::iso::{builder, recipe_of};
use crate::packages::Root;
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

/// The settings of the machine with which apt reaches its servers.
const APT: [&str; 3] = ["/etc/apt", "/etc/resolv.conf", "/etc/ssl/certs"];

fn is_used((): &()) -> Result<Counts> {
    let options = halite_release::Options {
        out: Some(halite_lab::cache().join("release")),
        key: None,
    };
    let release = halite_release::make(&options, &Board::silent())?;
    let root = Root::new("release-")?;
    for path in APT {
        let to = root.path(path);
        fs::create_dir_all(to.parent().context("no directory")?)?;
        run("cp", &[OsStr::new("-aT"), OsStr::new(path), to.as_os_str()])?;
    }
    run(
        "cp",
        &[
            OsStr::new("-r"),
            release.as_os_str(),
            root.path(DOWNLOADED).as_os_str(),
        ],
    )?;
    shell(
        &root,
        "apt-get update -qq && apt-get install -qq --yes openssh-client",
    )?;
    let verify = guide::block(README.0, README.1, "ssh-keygen")?;
    shell(&root, &format!("cd {DOWNLOADED} && {verify}"))?;
    changed_byte(&root, &verify)?;
    let install = guide::block(README.0, README.1, "apt-get install")?;
    shell(&root, &format!("cd {DOWNLOADED} && {install}"))?;
    finds_itself(&root)?;
    let carried = tempfile::Builder::new()
        .prefix("release-iso-")
        .tempdir_in(halite_lab::cache())?;
    make_bundle(&root, carried.path())?;
    bootstraps(carried.path())?;
    Ok(Counts::ONE)
}

/// Runs a script in the root, which has `/proc` and the lab's cache while it runs. The mounts are in
/// a namespace of their own, so nothing that removes the root can reach the cache.
fn shell(root: &Root, script: &str) -> Result<String> {
    let mounts = "set -e; mount -t proc proc \"$1/proc\"; mkdir -p \"$1$2\"; mount --bind \"$2\" \"$1$2\"; \
                  exec chroot \"$1\" sh -ec \"$3\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", mounts, "sh"])
        .arg(root.path("/"))
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

/// The commands of the README refuse an archive with a changed byte, and name it.
fn changed_byte(root: &Root, verify: &str) -> Result<()> {
    let name = format!("halite-{VERSION}-linux-amd64.tar.gz");
    let path = root.path(DOWNLOADED).join(&name);
    let right = fs::read(&path)?;
    let mut wrong = right.clone();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    fs::write(&path, wrong)?;
    let Err(error) = shell(root, &format!("cd {DOWNLOADED} && {verify}")) else {
        anyhow::bail!("a changed byte in {name} is not found");
    };
    let said = error.to_string();
    ensure!(said.contains(&format!("{name}: FAILED")), "{said}");
    fs::write(path, right).map_err(Into::into)
}

/// `ctl bundle init` finds what the packages have installed.
fn finds_itself(root: &Root) -> Result<()> {
    let said = shell(
        root,
        &format!("ctl --version; mkdir {WORK}; ctl bundle init {WORK}"),
    )?;
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
fn make_bundle(root: &Root, carried: &Path) -> Result<()> {
    let bundle = prepare::bundle(&Board::silent())?;
    let first = recipe_of(&bundle)?;
    let mut recipe: Value = serde_json::from_str(&fs::read_to_string(&first)?)?;
    let programs = PathBuf::from("/usr/lib/halite");
    for name in ["ctl", "halite-master", "halite-minion"] {
        let before = recipe["binaries"][name].to_string();
        // The program is there twice: as a program, and in a package.
        let text = recipe.to_string();
        let text = text.replace(&before, &json!(programs.join(name)).to_string());
        recipe = serde_json::from_str(&text)?;
    }
    for (key, path) in [
        ("states", "states"),
        ("docs", "docs"),
        ("sbom-inputs", "sbom-inputs.json"),
    ] {
        recipe[key] = json!(format!("/usr/share/halite/{path}"));
    }
    let work = root.path(WORK);
    fs::write(work.join("recipe.yaml"), recipe.to_string())?;
    fs::copy(
        first.with_extension("lock.yaml"),
        work.join("recipe.lock.yaml"),
    )?;
    let key = std::path::absolute(builder()?)?;
    let build = format!(
        "cd {WORK} && ctl bundle build --offline --out {ISO} --key '{}'",
        key.display()
    );
    shell(root, &build)?;
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
