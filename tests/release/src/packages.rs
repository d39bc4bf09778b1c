//! The Debian packages of a release: `ctl`, and the builder with everything of Halite that goes
//! into bundles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use halite_builder::package::{Made, Relation, deb};

use crate::content::{BUILDER, CTL, Content};

/// The number of the packaging of a version.
const REVISION: u32 = 1;

/// The directory of the programs that go into bundles.
const PROGRAMS: &str = "usr/lib/halite";

/// The directory of everything else that goes into bundles.
const SHARED: &str = "usr/share/halite";

/// Writes both packages into a directory.
///
/// # Errors
/// A file cannot be read, or `dpkg-deb` refuses a package.
pub(crate) fn write(content: &Content, version: &str, out: &Path) -> Result<()> {
    let version = format!("{version}-{REVISION}");
    let program = |name: &str| content.programs.join(name);
    let made = |package: &str, program: (&str, PathBuf), files: BTreeMap<String, PathBuf>| Made {
        package: package.to_owned(),
        version: version.clone(),
        programs: [(program.0.to_owned(), program.1)].into(),
        files,
    };
    let pages = |package: &str| ("usr/share".to_owned(), content.pages.join(package));
    let ctl = made(CTL, ("ctl", program("ctl")), [pages(CTL)].into());
    let shared = |name: &str, from: &Path| (format!("{SHARED}/{name}"), from.to_owned());
    let bundled = |name: &str| (format!("{PROGRAMS}/{name}"), program(name));
    let files = [
        // A bundle contains the `ctl` of its own version; that of `halite-ctl` may be a newer one.
        bundled("ctl"),
        bundled("halite-master"),
        bundled("halite-minion"),
        shared("states", &content.states),
        shared("docs", &content.docs),
        shared("sbom-inputs.json", &content.inputs),
        pages(BUILDER),
    ];
    let builder = made(BUILDER, (BUILDER, program(BUILDER)), files.into());
    for made in [ctl, builder] {
        let mut package = made.package(&content.states)?;
        if package.name == BUILDER {
            package.needs.deb.retain(|relation| relation.name != CTL);
            package.needs.deb.push(Relation {
                name: CTL.to_owned(),
                at_least: Some(version.clone()),
            });
        }
        deb::write(&package, out)
            .with_context(|| format!("cannot make the package {}", package.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use halite_durable::files;

    use super::*;

    fn content(dir: &Path) -> Content {
        let put = |name: &str, mode| {
            files::write(&dir.join(name), mode, name.as_bytes()).unwrap();
        };
        for program in crate::PROGRAMS {
            put(&format!("bin/{program}"), 0o755);
        }
        for file in [
            "pages/halite-builder/man/man1/halite-builder.1",
            "pages/halite-ctl/man/man1/ctl.1",
            "pages/halite-ctl/bash-completion/completions/ctl",
            "states/top.sls",
            "docs/index.html",
            "sbom-inputs.json",
        ] {
            put(file, 0o644);
        }
        Content {
            programs: dir.join("bin"),
            pages: dir.join("pages"),
            states: dir.join("states"),
            docs: dir.join("docs"),
            inputs: dir.join("sbom-inputs.json"),
            texts: Vec::new(),
        }
    }

    fn ask(archive: &Path, question: &str) -> String {
        let said = Command::new("dpkg-deb").arg(question).arg(archive).output();
        String::from_utf8(said.unwrap().stdout).unwrap()
    }

    #[test]
    fn packages_have_their_control_file_and_content_and_the_same_bytes_twice() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(dir.path());
        let mut made = Vec::new();
        for round in ["one", "two"] {
            let out = dir.path().join(round);
            fs::create_dir(&out).unwrap();
            write(&content, "1.2.3", &out).unwrap();
            let read =
                |name: &str| fs::read(out.join(format!("{name}_1.2.3-1_amd64.deb"))).unwrap();
            made.push([read(CTL), read(BUILDER)]);
        }
        assert!(made[0] == made[1]);
        let archive = dir.path().join("one/halite-builder_1.2.3-1_amd64.deb");
        let control = ask(&archive, "--field");
        for field in [
            "Package: halite-builder\n",
            "Version: 1.2.3-1\n",
            "Architecture: amd64\n",
            "Depends: apt, dpkg, gpg, gpg-agent, gpgconf, gpgv, halite-ctl (>= 1.2.3-1)\n",
        ] {
            assert!(control.contains(field), "{field:?} is not in {control}");
        }
        let list = ask(&archive, "--contents");
        for file in [
            "./usr/bin/halite-builder",
            "./usr/lib/halite/ctl",
            "./usr/lib/halite/halite-master",
            "./usr/lib/halite/halite-minion",
            "./usr/share/halite/docs/index.html",
            "./usr/share/halite/sbom-inputs.json",
            "./usr/share/halite/states/top.sls",
            "./usr/share/man/man1/halite-builder.1.gz",
        ] {
            assert!(
                list.lines().any(|line| line.ends_with(file)),
                "{file}: {list}"
            );
        }
        let list = ask(
            &dir.path().join("one/halite-ctl_1.2.3-1_amd64.deb"),
            "--contents",
        );
        for file in [
            "./usr/bin/ctl",
            "./usr/share/man/man1/ctl.1.gz",
            "./usr/share/bash-completion/completions/ctl",
        ] {
            assert!(
                list.lines().any(|line| line.ends_with(file)),
                "{file}: {list}"
            );
        }
    }
}
