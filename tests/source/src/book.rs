//! The contents of the book (`docs/SUMMARY.md`): each page once, in a fixed order of parts.
//!
//! `HALITE_UPDATE_GOLDENS=1` adds the pages of the folders that belong to one part; a person finds
//! the place of a page of the guide.

use std::collections::BTreeMap;
use std::fs;

use crate::tree;

const FILE: &str = "docs/SUMMARY.md";

/// The parts in order, each with the folder of which it has every page.
const PARTS: [(&str, Option<&str>); 6] = [
    ("# Tutorial", None),
    ("# How-to guides", None),
    ("# Reference", Some("reference/")),
    ("# Explanation", None),
    ("# For contributors", Some("dev/")),
    ("# Decisions", Some("decisions/")),
];

/// Title of each page, by its path below `docs/`.
fn pages() -> BTreeMap<String, String> {
    let files = tree::files(&[".md"]);
    let pages = files.iter().filter(|file| file.path != FILE);
    pages
        .filter_map(|file| {
            let path = file.path.strip_prefix("docs/")?;
            let title = file.text.lines().next().unwrap_or_default();
            Some((path.to_owned(), title.trim_start_matches("# ").to_owned()))
        })
        .collect()
}

/// The path in an entry: `- [TITLE](PATH)`.
fn path(line: &str) -> Option<&str> {
    line.rsplit_once("](")?.1.strip_suffix(')')
}

/// The heading of the part in which each line is; empty before the first part.
fn in_parts(text: &str) -> Vec<(&str, &str)> {
    let mut part = "";
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        if line.starts_with("# ") {
            part = line;
        }
        found.push((part, line));
    }
    found
}

/// The contents with every page of the folders that belong to a part, at the part's end.
fn updated(text: &str, pages: &BTreeMap<String, String>) -> String {
    let mut out = text.lines().next().unwrap_or_default().to_owned() + "\n";
    let lines = in_parts(text);
    let before = lines.iter().filter(|(part, _)| part.is_empty());
    before.for_each(|(_, line)| out.push_str(&format!("{line}\n")));
    for (part, folder) in PARTS {
        let is_of_folder = |page: &str| folder.is_some_and(|folder| page.starts_with(folder));
        let own = lines
            .iter()
            .filter(|(of, line)| *of == part && path(line).is_some_and(|page| !is_of_folder(page)));
        let own = own.map(|(_, line)| (*line).to_owned());
        let all = pages.iter().filter(|(page, _)| is_of_folder(page));
        let all = all.map(|(page, title)| format!("- [{title}]({page})"));
        let entries: Vec<String> = own.chain(all).collect();
        out.push_str(&format!("{part}\n\n{}\n\n", entries.join("\n")));
    }
    out.trim_end().to_owned() + "\n"
}

/// The findings about the contents.
fn findings(text: &str, pages: &BTreeMap<String, String>) -> Vec<String> {
    let lines = in_parts(text);
    let parts: Vec<&str> = lines
        .iter()
        .map(|(_, line)| *line)
        .filter(|line| line.starts_with("# "))
        .collect();
    let mut found = Vec::new();
    if parts != PARTS.map(|(part, _)| part) {
        let wanted = PARTS.map(|(part, _)| part).join(", ");
        found.push(format!("{FILE}: the parts are {wanted}"));
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for (part, line) in &lines {
        let Some(page) = path(line) else { continue };
        *times.entry(page).or_default() += 1;
        if !pages.contains_key(page) {
            found.push(format!("{FILE}: there is no page {page}"));
        }
        for (owner, folder) in PARTS {
            let is_of_folder = folder.is_some_and(|folder| page.starts_with(folder));
            if is_of_folder && owner != *part {
                found.push(format!("{FILE}: {page} belongs to {owner:?}"));
            }
        }
    }
    let repeated = times.iter().filter(|(_, times)| **times > 1);
    found.extend(repeated.map(|(page, _)| format!("{FILE}: {page} is there more than once")));
    let missing = pages
        .keys()
        .filter(|page| !times.contains_key(page.as_str()));
    found.extend(missing.map(|page| {
        format!(
            "{FILE}: {page} is missing; add it, or run this test with HALITE_UPDATE_GOLDENS=1 for pages of \
             reference/, dev/ and decisions/"
        )
    }));
    found
}

#[test]
fn the_book_has_each_page_once_in_the_order_of_its_parts() {
    let (file, pages) = (tree::root().join(FILE), pages());
    let mut text = fs::read_to_string(&file).unwrap();
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        text = updated(&text, &pages);
        fs::write(&file, &text).unwrap();
    }
    let found = findings(&text, &pages);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // The first page becomes the start page, so its links must not depend on its folder.
    let first = text.lines().find_map(path);
    assert_eq!(first, Some("index.md"));
}

#[test]
fn a_page_that_is_missing_or_misplaced_is_found_and_added() {
    let pages: BTreeMap<String, String> = [
        "index.md",
        "guide/a.md",
        "reference/r.md",
        "dev/d.md",
        "decisions/1.md",
    ]
    .into_iter()
    .map(|page| (page.to_owned(), page.to_owned()))
    .collect();
    let text = "# Summary\n\n[Halite](index.md)\n\n# Tutorial\n\n- [A](guide/a.md)\n- [A](guide/a.md)\n- [R](reference/r.md)\n\n\
                # How-to guides\n\n- [X](guide/x.md)\n\n# Reference\n\n# Explanation\n\n# For contributors\n\n# Decisions\n";
    let found = findings(text, &pages).join("\n");
    for finding in [
        "reference/r.md belongs to \"# Reference\"",
        "guide/a.md is there more than once",
        "there is no page guide/x.md",
        "dev/d.md is missing",
        "decisions/1.md is missing",
    ] {
        assert!(found.contains(finding), "{finding} is not in\n{found}");
    }
    let right = text
        .replacen("- [A](guide/a.md)\n", "", 1)
        .replace("- [R](reference/r.md)\n", "")
        .replace("- [X](guide/x.md)\n", "");
    let right = updated(&right, &pages);
    assert_eq!(findings(&right, &pages), [""; 0]);
    assert_eq!(updated(&right, &pages), right);
    let swapped = right.replace("# Explanation", "# Other");
    assert!(findings(&swapped, &pages)[0].contains("the parts are"));
}
