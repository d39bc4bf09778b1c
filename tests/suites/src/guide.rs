//! Code blocks of the guide, read from its pages, so that the tests run exactly the text that an
//! operator reads.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::source_root;
use halite_lab::cluster::Cluster;

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
