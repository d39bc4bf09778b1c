//! Packages with metadata but no files: with them, dnf sees a host with the base.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use halite_durable::files;
use halite_fetch::yum::Need;

use super::{Base, Installed};
use crate::error::Error;
use crate::process;

/// Makes a package without content for each installed package, in a directory. Files become
/// provided names, which satisfy the same dependencies.
///
/// # Errors
/// Rpmbuild refuses the metadata of a package, or a file cannot be written.
pub fn stubs(packages: &[Installed], out: &Path) -> Result<Vec<PathBuf>, Error> {
    let work =
        tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))?;
    // A specification can define each name only once, and only packages of one architecture and
    // `noarch`.
    let mut specifications: BTreeMap<(&str, usize), Vec<&Installed>> = BTreeMap::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        let round = seen
            .entry(&package.name)
            .and_modify(|count| *count += 1)
            .or_insert(0);
        specifications
            .entry((&package.architecture, *round))
            .or_default()
            .push(package);
    }
    for ((architecture, round), packages) in specifications {
        let file = work.path().join(format!("{architecture}-{round}.spec"));
        let text: String = packages.into_iter().map(specification).collect();
        let head = "Name: halite-stubs\nVersion: 1\nRelease: 1\nSummary: none\nLicense: none\n%description\n";
        files::write(&file, 0o644, format!("{head}{text}").as_bytes())?;
        let define =
            |name: &str, path: &Path| ["--define".to_owned(), format!("{name} {}", path.display())];
        let mut build = process::rpm("rpmbuild", work.path());
        build.args([
            "-bb",
            "--quiet",
            "--nodeps",
            "--target",
            &format!("{architecture}-linux"),
        ]);
        build
            .args(define("_topdir", &work.path().join("build")))
            .args(define("_rpmdir", out))
            .arg(&file);
        // All packages are in one directory; the pattern of their names does not depend on the
        // version of rpm.
        build.args([
            "--define",
            "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
        ]);
        process::run(&mut build, "making stubs of the packages of the base")?;
    }
    let names: BTreeSet<String> = files::walk(out)?
        .into_iter()
        .filter(|name| name.ends_with(".rpm"))
        .collect();
    Ok(names.into_iter().map(|name| out.join(name)).collect())
}

/// Makes a root directory whose rpm database lists the base as installed.
///
/// # Errors
/// As for [`stubs`], or rpm fails.
pub fn database(base: &Base, root: &Path) -> Result<(), Error> {
    let work =
        tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))?;
    let stubs = stubs(&base.packages, &work.path().join("packages"))?;
    files::make_dir(root)?;
    let mut install = process::rpm("rpm", work.path());
    install.arg("--root").arg(root).args([
        "-i",
        "--justdb",
        "--nodeps",
        "--noscripts",
        "--notriggers",
    ]);
    install.args([
        "--nosignature",
        "--nodigest",
        "--ignorearch",
        "--ignoreos",
        "--ignoresize",
        "--force",
    ]);
    process::run(
        install.args(stubs),
        "making a database of rpm with the packages of the base",
    )
    .map(drop)
}

fn specification(package: &Installed) -> String {
    let Installed {
        name,
        version,
        architecture,
        provides,
        requires,
        conflicts,
        obsoletes,
        files,
    } = package;
    let mut text = format!(
        "%package -n {name}\nSummary: none\nEpoch: {}\nVersion: {}\nRelease: {}\nAutoReqProv: no\n",
        version.epoch, version.version, version.release
    );
    if architecture == "noarch" {
        text.push_str("BuildArch: noarch\n");
    }
    let mut list = |tag: &str, needs: &[Need]| {
        for need in needs
            .iter()
            .filter(|need| !need.name.starts_with("rpmlib("))
        {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{tag}: {}", need.to_string().replace('%', "%%"));
        }
    };
    list("Provides", provides);
    list("Requires", requires);
    list("Conflicts", conflicts);
    list("Obsoletes", obsoletes);
    for file in files {
        let _ = writeln!(text, "Provides: {}", file.replace('%', "%%"));
    }
    let _ = writeln!(text, "%description -n {name}\n%files -n {name}\n");
    text
}
