//! Packages for dpkg.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_durable::files;
use halite_iso9660::portable;

use super::{FileSource, Package, PackagedFileKind, Relation};
use crate::error::Error;
use crate::process;

/// The earliest time that every tool can represent (FAT begins there); packages have no time of
/// their own.
pub(super) const EPOCH: &str = "315532800";

/// Folders whose name on Debian differs from that in packages of other formats.
const RENAMED: &[(&str, &str)] = &[(
    "usr/share/zsh/site-functions/",
    "usr/share/zsh/vendor-completions/",
)];

/// The folder with licence texts that every host has, and the licences in it.
const COMMON: (&str, &[&str]) = ("/usr/share/common-licenses", &["Apache-2.0"]);

/// Makes a package in a directory and returns its file. The same package makes the same bytes.
///
/// # Errors
/// `dpkg-deb` refuses it, or a file cannot be read or written.
pub fn write(package: &Package, out: &Path) -> Result<PathBuf, Error> {
    let work = tempfile::tempdir_in(out).map_err(Error::file("make a directory in", out))?;
    let root = work.path().join("root");
    for (path, file) in &package.files {
        let to = root.join(place(path));
        match &file.source {
            FileSource::File(from) => drop(files::copy(from, &to, file.mode)?),
            FileSource::Bytes(bytes) => files::write(&to, file.mode, bytes)?,
        }
    }
    let copyright = root.join(format!("usr/share/doc/{}/copyright", package.name));
    files::write(&copyright, 0o644, self::copyright(package).as_bytes())?;
    for path in package.directories.keys() {
        files::make_dir(&root.join(path))?;
    }
    files::write(
        &root.join("DEBIAN/control"),
        0o644,
        control(package)?.as_bytes(),
    )?;
    let configs = package
        .files
        .iter()
        .filter(|(_, file)| file.kind == PackagedFileKind::Config);
    let configs: String = configs
        .map(|(path, _)| format!("/{}\n", place(path)))
        .collect();
    if !configs.is_empty() {
        files::write(&root.join("DEBIAN/conffiles"), 0o644, configs.as_bytes())?;
    }
    for (name, script) in scripts(package) {
        files::write(&root.join("DEBIAN").join(name), 0o755, script.as_bytes())?;
    }
    modes(&root, &package.directories)?;
    let archive = out.join(portable::fit(&format!(
        "{}_{}_amd64.deb",
        package.name,
        package.full_version()
    )));
    let mut build = Command::new("dpkg-deb");
    // Several threads produce other compressed bytes than one thread does, as on a machine with one
    // processor.
    build
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("DPKG_DEB_THREADS_MAX", "1");
    build.args(["--root-owner-group", "-Zzstd", "-z3", "--build"]);
    process::run(
        build.arg(&root).arg(&archive),
        &format!("making the package {}", package.name),
    )?;
    Ok(archive)
}

/// Returns the path of a file of a package on Debian.
fn place(path: &str) -> String {
    let renamed = RENAMED
        .iter()
        .find_map(|(from, to)| Some(format!("{to}{}", path.strip_prefix(from)?)));
    renamed.unwrap_or_else(|| path.to_owned())
}

/// Debian's maintainer scripts, for the situations and arguments of Debian Policy, chapter 6.
fn scripts(package: &Package) -> Vec<(&'static str, String)> {
    let scripts = &package.scripts;
    let wrapped = |when: &str, body: &str| {
        format!("#!/bin/sh\nset -e\ncase \"$1\" in\n{when})\n{body};;\nesac\n")
    };
    [
        ("postinst", "configure", &scripts.installed),
        ("prerm", "remove", &scripts.removing),
        ("postrm", "remove|upgrade", &scripts.removed),
    ]
    .into_iter()
    .filter(|(_, _, body)| !body.is_empty())
    .map(|(name, when, body)| (name, wrapped(when, body)))
    .collect()
}

fn control(package: &Package) -> Result<String, Error> {
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: amd64\nMaintainer: Halite bundle build <bundle@halite.invalid>\n\
         Installed-Size: {}\n",
        package.name,
        package.full_version(),
        package.size()?.div_ceil(1024)
    );
    for (name, relations) in [
        ("Depends", &package.needs.deb),
        ("Recommends", &package.recommends.deb),
    ] {
        if !relations.is_empty() {
            let relations: Vec<String> = relations.iter().map(relation).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {}", relations.join(", "));
        }
    }
    let _ = writeln!(
        text,
        "Section: admin\nPriority: optional\nHomepage: {}\nDescription: {}",
        package.homepage, package.summary
    );
    for (index, paragraph) in package.description.iter().enumerate() {
        if index > 0 {
            text.push_str(" .\n");
        }
        let _ = writeln!(text, " {paragraph}");
    }
    Ok(text)
}

fn relation(relation: &Relation) -> String {
    match &relation.at_least {
        Some(version) => format!("{} (>= {version})", relation.name),
        None => relation.name.clone(),
    }
}

/// The copyright file in Debian's machine-readable form (DEP-5).
fn copyright(package: &Package) -> String {
    let (dir, known) = COMMON;
    let text = if known.contains(&package.licence.as_str()) {
        format!(" The full text is in {dir}/{}.\n", package.licence)
    } else {
        let line = |line: &str| {
            if line.trim().is_empty() {
                " .\n".to_owned()
            } else {
                format!(" {line}\n")
            }
        };
        package.licence_text.lines().map(line).collect()
    };
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: {}\n\
         Source: {}\n\nFiles: *\nCopyright: {}\nLicense: {}\n{text}",
        package.name, package.homepage, package.holder, package.licence
    )
}

/// Sets the modes of files and directories: the caller's umask must not affect packages.
fn modes(root: &Path, wanted: &BTreeMap<String, u32>) -> Result<(), Error> {
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((dir, path)) = waiting.pop() {
        let mode = wanted.get(&path).copied().unwrap_or(0o755);
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode))
            .map_err(Error::file("write", &dir))?;
        for entry in fs::read_dir(&dir)
            .map_err(Error::file("list", &dir))?
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let below = if path.is_empty() {
                    name.into_owned()
                } else {
                    format!("{path}/{name}")
                };
                waiting.push((entry.path(), below));
            }
        }
    }
    Ok(())
}
