//! The entry of a version in the changelog.

use anyhow::{Result, ensure};

/// The section `## VERSION` of a changelog, up to the next heading of that level, as a document of
/// its own.
///
/// # Errors
/// There is none, or it is empty.
pub(crate) fn entry(changelog: &str, version: &str) -> Result<String> {
    let heading = format!("## {version}");
    let mut below = false;
    let mut text = String::new();
    for line in changelog.lines() {
        if line.starts_with("## ") {
            below = line == heading;
        } else if below {
            text.push_str(line);
            text.push('\n');
        }
    }
    ensure!(
        !text.trim().is_empty(),
        "cannot make the release {version}: CHANGELOG.md has nothing below {heading:?}; write there what has changed"
    );
    Ok(format!("# Halite {version}\n\n{}\n", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changes\n\n## 0.2.0\n\n- New.\n\n### Output\n\n- Old.\n\n## 0.1.0\n\nFirst.\n\n## 0.0.1\n\n";

    #[test]
    fn the_entry_of_a_version_ends_at_the_next_one() {
        assert_eq!(
            entry(CHANGELOG, "0.2.0").unwrap(),
            "# Halite 0.2.0\n\n- New.\n\n### Output\n\n- Old.\n"
        );
        assert_eq!(
            entry(CHANGELOG, "0.1.0").unwrap(),
            "# Halite 0.1.0\n\nFirst.\n"
        );
        for missing in ["0.1", "0.0.1", "1.0.0"] {
            let error = entry(CHANGELOG, missing).unwrap_err().to_string();
            assert!(error.contains("write there what has changed"), "{error}");
        }
    }

    #[test]
    fn the_changelog_has_an_entry_of_this_version() {
        let root = halite_lab::build::source_root();
        let text = std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
        entry(&text, crate::VERSION).unwrap();
    }
}
