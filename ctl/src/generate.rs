//! Generates the manual pages and shell completions of the packages from the definitions of the
//! command lines.
//!
//! `ctl` generates them for the other programs, too, so that the minion, which is on every host,
//! does not contain the generator. The state tree has copies of the minion's pages, for hosts
//! without `ctl`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use halite_cli::{builder, master, minion};

use crate::cli::{Shell, command};
use crate::complete::script;

/// The programs whose pages are installed with `ctl`, each with the section.
const INSTALLED: &[(&str, &str)] = &[("ctl", "1"), ("halite-master", "8")];

/// Writes the files into a new directory, with one directory for each package; if `installed`,
/// writes those of `ctl` and the master into one existing directory.
///
/// # Errors
/// The directory exists already, or a file cannot be written.
pub fn write(directory: &Path, installed: bool) -> anyhow::Result<()> {
    if installed {
        for (program, section) in INSTALLED {
            remove_pages(directory, program, section)?;
        }
    } else if directory.exists() {
        bail!(
            "{} exists already; name a new directory",
            directory.display()
        );
    }
    let package = |name: &str| match installed {
        true => directory.to_owned(),
        false => directory.join(name),
    };
    pages(&package("halite-ctl"), command(), "1", &[])?;
    completions(&package("halite-ctl"))?;
    let text = include_str!("generate/halite-master.yaml.5");
    daemon(&package("halite-master"), master::Cli::command(), text)?;
    if !installed {
        pages(
            &package("halite-builder"),
            builder::Cli::command(),
            "1",
            &[],
        )?;
        let text = include_str!("generate/halite-minion.yaml.5");
        daemon(
            &package("halite-minion"),
            minion::Arguments::command(),
            text,
        )?;
    }
    Ok(())
}

/// Writes the pages of a daemon, and the page of its configuration file.
fn daemon(package: &Path, command: Command, file: &str) -> anyhow::Result<()> {
    let name = format!("{}.yaml", command.get_name());
    put(&package.join(format!("man/man5/{name}.5")), file.as_bytes())?;
    pages(package, command, "8", &[&format!("{name}(5)")])
}

/// Removes the pages of a program that an earlier version wrote.
fn remove_pages(directory: &Path, program: &str, section: &str) -> anyhow::Result<()> {
    let directory = directory.join(format!("man/man{section}"));
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let page = name.strip_suffix(&format!(".{section}"));
        let rest = page.and_then(|page| page.strip_prefix(program));
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
            let removed = fs::remove_file(&path);
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes a page for the program and one for each of its commands, named as `git` does:
/// `ctl-bundle-build(1)`.
fn pages(package: &Path, command: Command, section: &str, also: &[&str]) -> anyhow::Result<()> {
    // The pages replace `help`.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        let name = command
            .get_display_name()
            .unwrap_or_else(|| command.get_name())
            .to_owned();
        waiting.extend(
            command
                .get_subcommands()
                .filter(|below| !below.is_hide_set())
                .cloned(),
        );
        let page = Man::new(command)
            .title(name.to_uppercase())
            .section(section)
            .manual("Halite")
            .date("");
        let mut text = Vec::new();
        page.render(&mut text)?;
        if !also.is_empty() {
            text.extend_from_slice(format!(".SH \"SEE ALSO\"\n{}\n", also.join(", ")).as_bytes());
        }
        put(
            &package.join(format!("man/man{section}/{name}.{section}")),
            &text,
        )?;
    }
    Ok(())
}

fn completions(package: &Path) -> anyhow::Result<()> {
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/ctl"),
        (Shell::Zsh, "zsh/site-functions/_ctl"),
        (Shell::Fish, "fish/vendor_completions.d/ctl.fish"),
    ] {
        put(&package.join(path), script(shell)?.as_bytes())?;
    }
    Ok(())
}

fn put(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(path, content)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use halite_golden::check_golden;

    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("share");
        write(&out, false).unwrap();
        for page in [
            "halite-ctl/man/man1/ctl.1",
            "halite-ctl/man/man1/ctl-bundle-build.1",
            "halite-builder/man/man1/halite-builder.1",
            "halite-builder/man/man1/halite-builder-build.1",
            "halite-master/man/man8/halite-master.8",
            "halite-master/man/man8/halite-master-init.8",
            "halite-master/man/man5/halite-master.yaml.5",
            "halite-minion/man/man8/halite-minion-enrol.8",
            "halite-minion/man/man5/halite-minion.yaml.5",
        ] {
            assert!(out.join(page).is_file(), "{page}");
        }
        assert!(!out.join("halite-ctl/man/man1/ctl-generate.1").exists());
        let text = fs::read_to_string(out.join("halite-ctl/man/man1/ctl-bundle-build.1")).unwrap();
        assert!(
            text.contains("ctl bundle build") && text.contains("recipe"),
            "{text}"
        );
        let page = fs::read_to_string(out.join("halite-minion/man/man8/halite-minion.8")).unwrap();
        assert!(
            page.contains("halite\\-minion.yaml(5)") || page.contains("halite-minion.yaml(5)"),
            "{page}"
        );
        assert!(page.contains("The agent on every managed host"), "{page}");
        assert!(
            write(&out, false)
                .unwrap_err()
                .to_string()
                .contains("exists already")
        );
    }

    #[test]
    fn installed_pages_replace_those_of_an_earlier_version_only() {
        let dir = tempfile::tempdir().unwrap();
        let pages = dir.path().join("man");
        let gone = ["man1/ctl-gone.1", "man8/halite-master-gone.8"];
        let foreign = [
            "man1/ctlx.1",
            "man1/other.1",
            "man8/halite-masterx.8",
            "man8/halite-minion.8",
        ];
        for name in gone.iter().chain(&foreign) {
            put(&pages.join(name), b"").unwrap();
        }
        for _ in 0..2 {
            write(dir.path(), true).unwrap();
            for name in [
                "man1/ctl-node-add.1",
                "man5/halite-master.yaml.5",
                "man8/halite-master.8",
                "man8/halite-master-init.8",
            ] {
                assert!(pages.join(name).is_file(), "{name}");
            }
            // They are those of the minion's version.
            assert_eq!(fs::read(pages.join("man8/halite-minion.8")).unwrap(), b"");
            assert!(!pages.join("man5/halite-minion.yaml.5").exists());
            assert!(gone.iter().all(|name| !pages.join(name).exists()));
            assert!(foreign.iter().all(|name| pages.join(name).exists()));
        }
        let page = fs::read_to_string(pages.join("man1/ctl-node-add.1")).unwrap();
        assert!(page.contains("Examples"), "{page}");
    }

    /// The files in the directories `man5` and `man8`, as `man8/NAME`.
    fn in_sections(directory: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for section in ["man5", "man8"] {
            for entry in fs::read_dir(directory.join(section)).unwrap() {
                let name = entry.unwrap().file_name();
                found.insert(format!("{section}/{}", name.to_string_lossy()));
            }
        }
        found
    }

    #[test]
    fn the_state_tree_has_the_pages_of_the_minion() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("share");
        write(&out, false).unwrap();
        let generated = out.join("halite-minion/man");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = root.join("states/tree/halite/services/minion");
        let list = fs::read_to_string(tree.join("map.jinja")).unwrap();
        let names = in_sections(&generated);
        for name in &names {
            let text = fs::read_to_string(generated.join(name)).unwrap();
            check_golden(&tree.join(name), &text);
            assert!(list.contains(&format!("'{name}'")), "{name}: {list}");
        }
        assert_eq!(in_sections(&tree), names);
        assert_eq!(list.matches("/halite-minion").count(), names.len());
    }

    #[test]
    fn the_completions_are_valid_shell() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), true).unwrap();
        let script = dir.path().join("bash-completion/completions/ctl");
        let valid = Command::new("bash").arg("-n").arg(&script).status();
        assert!(valid.unwrap().success());
    }
}
