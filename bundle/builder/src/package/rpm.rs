//! Packages for rpm, made by rpm's own rpmbuild: docs/decisions/0014.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use halite_durable::files;

use super::deb::EPOCH;
use super::{FileSource, Package, PackagedFileKind, Relation};
use crate::error::Error;
use crate::process;

/// Macros that make rpmbuild produce the same bytes from the same package on every machine, and
/// stop it from changing the files.
const MACROS: &[&str] = &[
    "_buildhost halite",
    "_binary_payload w3.zstdio",
    "_build_id_links none",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "source_date_epoch_from_changelog 0",
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
];

/// The directory of licence texts.
const LICENCES: &str = "usr/share/licenses";

/// Makes a package in a directory and returns its file, which is not signed. The same package makes
/// the same bytes.
///
/// # Errors
/// Rpmbuild refuses it, or a file cannot be read or written.
pub fn write(package: &Package, out: &Path) -> Result<PathBuf, Error> {
    let work = tempfile::tempdir_in(out).map_err(Error::file("make a directory in", out))?;
    let root = work.path().join("root");
    for (path, file) in &package.files {
        let to = root.join(path);
        match &file.source {
            FileSource::File(from) => drop(files::copy(from, &to, file.mode)?),
            FileSource::Bytes(bytes) => files::write(&to, file.mode, bytes)?,
        }
    }
    files::write(
        &root.join(licence(package)),
        0o644,
        package.licence_text.as_bytes(),
    )?;
    for path in package.directories.keys() {
        files::make_dir(&root.join(path))?;
    }
    let specification = work.path().join("package.spec");
    files::write(
        &specification,
        0o644,
        self::specification(package).as_bytes(),
    )?;
    let mut build = process::rpm("rpmbuild", work.path());
    build.env("SOURCE_DATE_EPOCH", EPOCH).args([
        "-bb",
        "--quiet",
        "--nodeps",
        "--target",
        "x86_64-linux",
    ]);
    for define in MACROS {
        build.args(["--define", define]);
    }
    for (name, path) in [
        ("_topdir", work.path().join("build")),
        ("_rpmdir", work.path().join("made")),
    ] {
        build
            .arg("--define")
            .arg(format!("{name} {}", path.display()));
    }
    build.arg("--buildroot").arg(&root).arg(&specification);
    process::run(&mut build, &format!("making the package {}", package.name))?;
    let name = format!(
        "{}-{}-{}.x86_64.rpm",
        package.name,
        version(package),
        package.revision
    );
    let made = out.join(&name);
    files::link(&work.path().join("made").join(&name), &made)?;
    Ok(made)
}

/// Returns the version in rpm's form: `~` replaces the hyphen before a pre-release, which rpm then
/// sorts before the release.
#[must_use]
pub fn version(package: &Package) -> String {
    package.version.replace('-', "~")
}

fn licence(package: &Package) -> String {
    format!("{LICENCES}/{}/LICENSE", package.name)
}

fn specification(package: &Package) -> String {
    let plain = |text: &str| text.replace('%', "%%");
    let mut text = format!(
        "Name: {}\nVersion: {}\nRelease: {}\nSummary: {}\nLicense: {}\nURL: {}\nVendor: {}\n\
         Packager: Halite bundle build <bundle@halite.invalid>\nAutoReqProv: no\n",
        package.name,
        version(package),
        package.revision,
        plain(&package.summary),
        package.licence,
        package.homepage,
        plain(&package.holder),
    );
    for (tag, relations) in [
        ("Requires", &package.needs.rpm),
        ("Recommends", &package.recommends.rpm),
    ] {
        for each in relations {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{tag}: {}", relation(each));
        }
    }
    text.push_str("\n%description\n");
    match package.description.is_empty() {
        true => text.push_str(&format!("{}.\n", plain(&package.summary))),
        false => text.push_str(&format!("{}\n", plain(&package.description.join("\n\n")))),
    }
    text.push_str(&scripts(package));
    text.push_str("\n%files\n");
    let _ = writeln!(text, "%license \"/{}\"", licence(package));
    for (path, mode) in &package.directories {
        let _ = writeln!(text, "%dir %attr({mode:04o}, root, root) \"/{path}\"");
    }
    for (path, file) in &package.files {
        let kind = match file.kind {
            PackagedFileKind::Plain => "",
            PackagedFileKind::Config => "%config(noreplace) ",
            PackagedFileKind::Documentation => "%doc ",
        };
        let mode = file.mode;
        let _ = writeln!(text, "{kind}%attr({mode:04o}, root, root) \"/{path}\"");
    }
    text
}

/// The scriptlets. rpm calls them with the number of packages of this name that remain: 0 after the
/// last one is removed.
fn scripts(package: &Package) -> String {
    let scripts = &package.scripts;
    let removing = match scripts.removing.is_empty() {
        true => String::new(),
        false => format!("if [ \"$1\" -eq 0 ]; then\n{}fi\n", scripts.removing),
    };
    let each = [
        ("%post", &scripts.installed),
        ("%preun", &removing),
        ("%postun", &scripts.removed),
    ];
    let there = each.into_iter().filter(|(_, body)| !body.is_empty());
    there
        .map(|(name, body)| format!("\n{name}\nset -e\n{}", body.replace('%', "%%")))
        .collect()
}

fn relation(relation: &Relation) -> String {
    match &relation.at_least {
        Some(version) => format!("{} >= {version}", relation.name),
        None => relation.name.clone(),
    }
}
