//! Code blocks of the guide, read from its pages, so that the tests run exactly the text that an
//! operator reads.

mod upgrades;
mod walk;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::source_root;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;

pub(super) use upgrades::upgrade_command;
pub(super) use walk::{GuideWalk, with_values};

/// The name of the cluster in the lab.
const CLUSTER_NAME: &str = "demo";
/// Directory of the operator's own states.
const CUSTOM: &str = "/etc/halite/custom";

/// The first block of code below a heading of a page that contains `part`.
pub(super) fn block(page: &str, heading: &str, part: &str) -> Result<String> {
    let missing = || format!("{page} has no code with {part:?} below {heading:?}");
    find(&read(page)?, heading, part).with_context(missing)
}

/// All blocks of shell commands of a page, in order.
pub(super) fn shell_blocks(page: &str) -> Result<Vec<String>> {
    let text = read(page)?;
    let blocks = code(&text).into_iter();
    let shell = blocks.filter(|block| block.language == "sh");
    Ok(shell.map(|block| block.text).collect())
}

/// The blocks of a page in a language, below these headings, in order.
pub(super) fn blocks_below(page: &str, language: &str, headings: &[&str]) -> Result<Vec<String>> {
    let text = read(page)?;
    for heading in headings {
        let is_there = text.lines().any(|line| line == *heading);
        ensure!(is_there, "{page} has no heading {heading:?}");
    }
    let mut blocks = code(&text);
    blocks.retain(|block| block.language == language && headings.contains(&block.heading));
    Ok(blocks.into_iter().map(|block| block.text).collect())
}

/// The cells of each row of the tables below a heading of a page, without their heads.
pub(super) fn table(page: &str, heading: &str) -> Result<Vec<Vec<String>>> {
    let rows = rows(&read(page)?, heading);
    ensure!(!rows.is_empty(), "{page} has no table below {heading:?}");
    Ok(rows)
}

/// The text of a page.
pub(super) fn read(page: &str) -> Result<String> {
    let file = source_root().join("docs/guide").join(page);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// The words of the command below a heading of a page that begins with `begin`, for the tests'
/// cluster: the guide's is called `prod`.
pub(super) fn command(page: &str, heading: &str, begin: &str) -> Result<Vec<String>> {
    let code = block(page, heading, begin)?;
    let missing = || format!("{page} has no command {begin:?} below {heading:?}");
    words(&code, begin).with_context(missing)
}

/// Runs the command below a heading of the page about disasters on a host. Returns its output.
pub(super) fn run(on: &Host, heading: &str, begin: &str) -> Result<String> {
    on.run(&command("disaster.md", heading, begin)?)
}

/// Adds hosts by the command below a heading of the page about disasters, which names the same
/// hosts in the same order. The addresses are those of the tests.
pub(super) fn add(cluster: &Cluster, on: &Host, heading: &str, names: &[&str]) -> Result<()> {
    let mut command = command("disaster.md", heading, "ctl node add ")?;
    let hosts = command.iter_mut().filter(|word| word.contains('='));
    let mut named = Vec::new();
    for word in hosts {
        let (name, _) = word.split_once('=').context("no address")?;
        let name = name.to_owned();
        let address = cluster.host(&name)?.control_plane_address();
        *word = format!("{name}={address}");
        named.push(name);
    }
    ensure!(named == names, "the guide adds {named:?}, not {names:?}");
    cluster.add_by(on, names, &command).map(drop)
}

/// Replaces a host by the command below a heading of the page about disasters, run on another host.
/// Returns the time until it has printed the line for the new one.
pub(super) fn replace(cluster: &Cluster, on: &Host, heading: &str, name: &str) -> Result<Duration> {
    replace_after(cluster, on, heading, name, || ())
}

/// The same. `before_boot` is called when the line is printed, before the new host exists.
pub(super) fn replace_after(
    cluster: &Cluster,
    on: &Host,
    heading: &str,
    name: &str,
    before_boot: impl FnMut(),
) -> Result<Duration> {
    let mut command = command("disaster.md", heading, "ctl node replace ")?;
    let host = command.get_mut(3).context("no host in the command")?;
    name.clone_into(host);
    cluster.replace_by_after(on, name, &command, before_boot)
}

fn words(code: &str, begin: &str) -> Option<Vec<String>> {
    let code = code.replace("\\\n", " ");
    let mut lines = code.lines();
    let line = lines.find(|line| line.starts_with(begin))?;
    let words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let own = |word: &str| if word == "prod" { CLUSTER_NAME } else { word }.to_owned();
    Some(words.map(own).collect())
}

fn find(page: &str, heading: &str, part: &str) -> Option<String> {
    let mut blocks = code(page).into_iter();
    let found = blocks.find(|block| block.heading == heading && block.text.contains(part));
    found.map(|block| block.text)
}

fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('#'));
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_matches('|');
        inner
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let (mut rows, mut is_head) = (Vec::new(), true);
    for line in lines {
        if !line.starts_with('|') {
            is_head = true;
        } else if line.starts_with("|-") {
            is_head = false;
        } else if !is_head {
            rows.push(cells(line));
        }
    }
    rows
}

/// A block of code.
struct CodeBlock<'a> {
    /// The heading above it.
    heading: &'a str,
    language: &'a str,
    text: String,
}

/// All blocks of code of a page, in order.
fn code(page: &str) -> Vec<CodeBlock<'_>> {
    let (mut heading, mut open, mut blocks) = ("", None::<CodeBlock<'_>>, Vec::new());
    for line in page.lines() {
        match &mut open {
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if line.starts_with("```") => {
                open = Some(CodeBlock {
                    heading,
                    language: line.trim_start_matches('`'),
                    text: String::new(),
                });
            }
            None if line.starts_with('#') => heading = line,
            None => {}
        }
    }
    blocks
}

/// Writes the operator's own states; an error if some exist already.
pub(super) fn own_states(cluster: &Cluster, sls: &str) -> Result<()> {
    let custom = cluster.bootstrap.file(CUSTOM);
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir(&custom)?;
    fs::write(custom.join("init.sls"), sls).map_err(Into::into)
}

/// Writes one of the operator's manifests; an error if own states exist already.
pub(super) fn own_manifest(cluster: &Cluster, name: &str, text: &str) -> Result<()> {
    let custom = cluster.bootstrap.file(CUSTOM);
    ensure!(!custom.exists(), "{} already exists", custom.display());
    let directory = custom.join("manifests");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), text).map_err(Into::into)
}

/// Removes the operator's own states; the resources that they made stay.
pub(super) fn no_own_states(cluster: &Cluster) -> Result<()> {
    fs::remove_dir_all(cluster.bootstrap.file(CUSTOM)).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_guide_are_for_the_cluster_of_the_tests() {
        let code = "ctl status\nctl node replace cp-2 --force --cluster prod   # then each prod\n";
        assert_eq!(
            words(code, "ctl node replace").unwrap().join(" "),
            "ctl node replace cp-2 --force --cluster demo"
        );
        assert_eq!(words(code, "ctl upgrade"), None);
        let long = "ctl bootstrap --restore /a \\\n  --key b\nctl status\n";
        assert_eq!(
            words(long, "ctl bootstrap").unwrap().join(" "),
            "ctl bootstrap --restore /a --key b"
        );
    }

    /// The commands that the tests run on hosts.
    #[test]
    fn the_guide_has_the_commands_of_the_tests() {
        let backups = "## Backups";
        let store = "## The master's store is damaged";
        let left = "## One member of etcd is left";
        let lost = "## The master's host is lost, and a standby is left";
        let all = "## The first host, or all control planes, are lost";
        let data = "## A member of etcd has lost its data";
        let leaves = "## A control plane leaves";
        let quota = "## etcd has reached its quota";
        let power = "## All hosts have lost their power";
        let ended = "## All certificates have expired";
        for (page, heading, begin, wanted) in [
            ("disaster.md", backups, "ctl backup create", ""),
            ("disaster.md", backups, "ctl backup list", ""),
            ("disaster.md", backups, "ctl backup verify", ""),
            ("disaster.md", backups, "ctl backup verify --start", ""),
            (
                "disaster.md",
                backups,
                "ctl backup verify /",
                "srv/backup/prod-20261123T060000Z.halite-backup --key backup.key",
            ),
            (
                "disaster.md",
                backups,
                "ctl backup get",
                " --out /media/stick/prod.halite-backup",
            ),
            (
                "disaster.md",
                backups,
                "tail -n +3",
                " FILE | head -c -65 | tar x",
            ),
            (
                "disaster.md",
                "## A worker is lost",
                "ctl node replace",
                " worker-1 --force --cluster demo",
            ),
            (
                "disaster.md",
                "## A control plane is lost",
                "ctl node replace",
                " cp-2 --force --cluster demo",
            ),
            ("disaster.md", lost, "ctl master list", ""),
            ("disaster.md", lost, "ctl master promote", ""),
            (
                "disaster.md",
                lost,
                "ctl node replace",
                " cp-1 --force --cluster demo",
            ),
            (
                "disaster.md",
                all,
                "/media/halite/ctl bootstrap",
                " --restore /media/stick/prod.halite-backup --key /media/stick/backup.key --ca-hash HASH --bundle \
                 /media/halite/halite.iso --trust /media/halite/builder.pub",
            ),
            (
                "disaster.md",
                all,
                "ctl node add",
                " cp-2=10.0.0.12 cp-3=10.0.0.13 --roles control-plane,etcd",
            ),
            ("disaster.md", all, "ctl health", " --wait 10m"),
            ("disaster.md", store, "systemctl stop", " halite-master"),
            (
                "disaster.md",
                store,
                "cp -p",
                " /var/lib/halite/master/store.db.backup /var/lib/halite/master/store.db",
            ),
            (
                "disaster.md",
                left,
                "ctl etcd recover",
                " cp-1 --force --cluster demo",
            ),
            (
                "disaster.md",
                left,
                "ctl node replace",
                " cp-2 --force --cluster demo",
            ),
            ("disaster.md", data, "ctl etcd status", ""),
            (
                "disaster.md",
                data,
                "ctl node remove",
                " cp-2 --force --cluster demo",
            ),
            (
                "disaster.md",
                data,
                "ctl node add",
                " cp-2=10.0.0.12 --roles control-plane,etcd",
            ),
            (
                "disaster.md",
                quota,
                "ctl audit",
                " --action upkeep --limit 5",
            ),
            ("disaster.md", quota, "ctl etcd status", ""),
            ("disaster.md", power, "ctl health", " --wait 10m"),
            ("disaster.md", ended, "ctl health", " --wait 20m"),
            ("disaster.md", ended, "ctl audit", " --action upkeep"),
            (
                "high-availability.md",
                leaves,
                "ctl node remove cp-2 --force",
                " --cluster demo",
            ),
            (
                "high-availability.md",
                leaves,
                "ctl node remove cp-2 --dead",
                " --force --cluster demo",
            ),
        ] {
            let real = command(page, heading, begin).unwrap();
            assert_eq!(real.join(" "), format!("{begin}{wanted}"));
        }
    }

    #[test]
    fn rows_of_tables_are_found_by_their_heading() {
        let page = "## A\n| x | y |\n|---|---|\n| 1 | a |\n## B\n\n| x | y |\n|---|---|\n| 2: `b|c` | d |\n| 3 | e |\n\nx\n## C\n| x |\n|---|\n| 4 |\n";
        let found = rows(page, "## B");
        assert_eq!(found, [["2: `b|c`", "d"], ["3", "e"]]);
        assert!(rows(page, "## D").is_empty());
    }

    #[test]
    fn code_is_found_by_its_heading() {
        let page = "# A\n```sh\none x\n```\n## B\nx\n```yaml\n# C\ntwo\n```\n```yaml\nthree x\n```\n## C\n```\nfour x\n```\n";
        let found = |heading: &str, part: &str| find(page, heading, part);
        assert_eq!(found("## B", "x").as_deref(), Some("three x\n"));
        assert_eq!(
            found("## B", "two").as_deref(),
            Some("# C\ntwo\n"),
            "a comment is not a heading"
        );
        assert_eq!(found("## C", "x").as_deref(), Some("four x\n"));
        assert_eq!(found("## B", "four"), None);
        assert_eq!(found("## D", "x"), None);
    }
}
