//! Decisions have one form, and links between documents resolve.

use std::path::{Component, Path, PathBuf};

use crate::tree::{self, Text};

/// The parts of a decision, in order.
const PARTS: [&str; 3] = ["## Question", "## Decision", "## Cost"];

#[test]
fn decisions_have_one_form() {
    let mut findings = Vec::new();
    for file in tree::files(&[".md"]) {
        let Some(name) = file.path.strip_prefix("docs/decisions/") else {
            continue;
        };
        let number = name.split('-').next().unwrap();
        let title = file.text.lines().next().unwrap_or_default();
        if !title.starts_with(&format!("# {number}: ")) {
            findings.push(format!("{}:1: begin with `# {number}: TITLE`", file.path));
        }
        let status = file.text.lines().nth(2).unwrap_or_default();
        let is_dated = status.rsplit(' ').next().is_some_and(|date| {
            date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        });
        if !(status.starts_with("Status: ") && is_dated) {
            findings.push(format!(
                "{}:3: write `Status: accepted, YYYY-MM-DD` or `Status: replaced by NNNN, YYYY-MM-DD`",
                file.path
            ));
        }
        let parts: Vec<&str> = file
            .text
            .lines()
            .filter(|line| PARTS.contains(line))
            .collect();
        if parts != PARTS {
            findings.push(format!("{}: the parts are {}", file.path, PARTS.join(", ")));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The targets of a document's links, with their lines: `[text](target)`.
fn links(file: &Text) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") {
            continue;
        }
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        // A call in code, such as `pillar['a']('b')`, looks like a link.
        let targets = targets.filter(|target| !target.contains(['\'', '\"', ' ']));
        found.extend(targets.map(|target| (number + 1, target)));
    }
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn links_between_documents_lead_to_files_of_the_repository() {
    let root = tree::root();
    let mut findings = Vec::new();
    for file in tree::files(&[".md"]) {
        let folder = root.join(&file.path).parent().unwrap().to_owned();
        for (line, target) in links(&file) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = plain(&folder.join(target));
            // A bundle contains `docs/` alone.
            let top = if file.path.starts_with("docs/") {
                root.join("docs")
            } else {
                root.clone()
            };
            if !path.starts_with(top) || !path.exists() {
                findings.push(format!(
                    "{}:{line}: {target} does not exist, or is outside of docs/",
                    file.path
                ));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
