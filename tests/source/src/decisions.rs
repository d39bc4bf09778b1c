//! Decisions have one form.

use crate::tree;

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
