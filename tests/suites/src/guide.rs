//! Code blocks of the guide, read from its pages, so that the tests run exactly the text that an
//! operator reads.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::source_root;
use halite_lab::cluster::Cluster;

/// The name of the cluster in the lab.
const CLUSTER_NAME: &str = "demo";
/// Directory of the operator's own states.
const CUSTOM: &str = "/etc/halite/custom";

/// The first block of code below a heading of a page that contains `part`.
pub(super) fn block(page: &str, heading: &str, part: &str) -> Result<String> {
    let file = source_root().join("docs/guide").join(page);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let missing = || format!("{page} has no code with {part:?} below {heading:?}");
    find(&text, heading, part).with_context(missing)
}

/// The words of the command below a heading of a page that begins with `begin`, for the cluster of the tests:
/// the guide's is called `prod`.
pub(super) fn command(page: &str, heading: &str, begin: &str) -> Result<Vec<String>> {
    let code = block(page, heading, begin)?;
    let missing = || format!("{page} has no command {begin:?} below {heading:?}");
    words(&code, begin).with_context(missing)
}

fn words(code: &str, begin: &str) -> Option<Vec<String>> {
    let mut lines = code.lines();
    let line = lines.find(|line| line.starts_with(begin))?;
    let words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let own = |word: &str| if word == "prod" { CLUSTER_NAME } else { word }.to_owned();
    Some(words.map(own).collect())
}

fn find(page: &str, heading: &str, part: &str) -> Option<String> {
    let (mut below, mut code) = (false, None::<String>);
    for line in page.lines() {
        match &mut code {
            Some(text) if line == "```" => {
                if below && text.contains(part) {
                    return code;
                }
                code = None;
            }
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None if line.starts_with("```") => code = Some(String::new()),
            None if line.starts_with('#') => below = line == heading,
            None => {}
        }
    }
    None
}

/// Writes the operator's own states; an error if some exist already.
pub(super) fn own_states(cluster: &Cluster, sls: &str) -> Result<()> {
    let custom = cluster.bootstrap.file(CUSTOM);
    ensure!(!custom.exists(), "{} is there already", custom.display());
    fs::create_dir(&custom)?;
    fs::write(custom.join("init.sls"), sls).map_err(Into::into)
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
        let real = command(
            "disaster.md",
            "## One member of etcd is left",
            "ctl etcd recover",
        );
        assert_eq!(
            real.unwrap().join(" "),
            "ctl etcd recover --from cp-1 --force --cluster demo"
        );
    }

    #[test]
    fn code_is_found_by_its_heading() {
        let page = "# A\n```sh\none x\n```\n## B\nx\n```yaml\n# C\ntwo\n```\n```yaml\nthree x\n```\n## C\n```\nfour x\n```\n";
        let found = |heading: &str, part: &str| find(page, heading, part);
        assert_eq!(found("## B", "x").as_deref(), Some("three x\n"));
        assert_eq!(
            found("## B", "two").as_deref(),
            Some("# C\ntwo\n"),
            "a comment is no heading"
        );
        assert_eq!(found("## C", "x").as_deref(), Some("four x\n"));
        assert_eq!(found("## B", "four"), None);
        assert_eq!(found("## D", "x"), None);
    }
}
