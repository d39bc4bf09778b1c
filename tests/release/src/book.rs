//! The book: the pages below `docs/` as HTML, by mdBook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_durable::files;
use halite_lab::build_command::output;

/// Renders the book of a source tree into a new directory.
///
/// # Errors
/// mdBook fails, or the book does not work from a directory: all problems.
pub(crate) fn render(mdbook: &Path, root: &Path, out: &Path) -> Result<()> {
    let mut render = Command::new(mdbook);
    render.arg("build").arg("--dest-dir").arg(out).arg(root);
    output(&mut render, "rendering the book")?;
    // For another kind of web server; names that begin with a dot are not content.
    let marker = out.join(".nojekyll");
    if marker.exists() {
        fs::remove_file(&marker).with_context(|| format!("cannot remove {}", marker.display()))?;
    }
    let problems = problems(out)?;
    ensure!(
        problems.is_empty(),
        "cannot use the book: {} problems\n  {}",
        problems.len(),
        problems.join("\n  ")
    );
    Ok(())
}

/// The reasons why a book does not work when it is opened from a directory: links to files and
/// headings that do not exist, links that need a web server, no search.
fn problems(dir: &Path) -> Result<Vec<String>> {
    let names: BTreeSet<String> = files::walk(dir)?.into_iter().collect();
    let mut pages = BTreeMap::new();
    for name in names.iter().filter(|name| name.ends_with(".html")) {
        let path = dir.join(name);
        let text = fs::read_to_string(&path);
        pages.insert(
            name.as_str(),
            text.with_context(|| format!("cannot read {}", path.display()))?,
        );
    }
    let ids: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(name, html)| (*name, attributes(html, " id=\"").collect()))
        .collect();
    let mut found = BTreeSet::new();
    for (page, html) in &pages {
        let links = [" href=\"", " src=\""].map(|name| attributes(html, name));
        for link in links.into_iter().flatten() {
            if ["http://", "https://", "mailto:", "data:"]
                .iter()
                .any(|begin| link.starts_with(begin))
            {
                continue;
            }
            let (target, id) = link.split_once('#').unwrap_or((link, ""));
            let target = match target {
                "" => Some((*page).to_owned()),
                target => resolve(page, target),
            };
            let has_id = |target: &str| ids.get(target).is_some_and(|ids| ids.contains(id));
            let is_right = target
                .filter(|target| names.contains(target))
                .is_some_and(|target| id.is_empty() || has_id(&target));
            if !is_right {
                found.insert(format!("{page}: the link {link} leads nowhere"));
            }
        }
    }
    if !pages.contains_key("index.html") {
        found.insert("there is no index.html".to_owned());
    }
    if !names.iter().any(|name| name.starts_with("searchindex")) {
        found.insert("there is no index for the search".to_owned());
    }
    Ok(found.into_iter().collect())
}

/// The values of an attribute, which begins with the given text.
fn attributes<'a>(html: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    html.split(begin)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}

/// The path to which a relative link of a page leads; `None` if it is absolute or leads outside.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        return None;
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in pages {
            files::write(&dir.path().join(name), 0o644, text.as_bytes()).unwrap();
        }
        problems(dir.path()).unwrap()
    }

    #[test]
    fn a_book_that_works_from_a_directory_has_no_problems() {
        let index = "<a href=\"guide/a.html#one\">a</a><a href=\"https://example.org/x\">x</a><script src=\"searchindex-1.js\">";
        let guide = "<h1 id=\"one\">One</h1><a href=\"../index.html\">up</a><a href=\"#one\">self</a><a href=\"a.html\">a</a>";
        let pages = [
            ("index.html", index),
            ("guide/a.html", guide),
            ("searchindex-1.js", ""),
        ];
        assert_eq!(book(&pages), [""; 0]);
    }

    #[test]
    fn everything_that_would_not_work_is_named() {
        let page = "<a href=\"no.html\"><a href=\"#no\"><img src=\"/p.svg\"><a href=\"../a.html\"><a href=\"b.html#x\">";
        let found = book(&[("a.html", page), ("b.html", "<h1 id=\"y\">")]);
        let nowhere = |link: &str| format!("a.html: the link {link} leads nowhere");
        assert_eq!(
            found,
            [
                nowhere("#no"),
                nowhere("../a.html"),
                nowhere("/p.svg"),
                nowhere("b.html#x"),
                nowhere("no.html"),
                "there is no index for the search".to_owned(),
                "there is no index.html".to_owned(),
            ]
        );
    }

    /// Needs mdBook: `HALITE_MDBOOK` names it.
    #[test]
    #[ignore = "cargo lab release renders the book; this is for changes of it"]
    fn our_book_works_from_a_directory() {
        let mdbook = std::env::var_os("HALITE_MDBOOK").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = halite_lab::build::source_root();
        render(Path::new(&mdbook), &root, &dir.path().join("docs")).unwrap();
    }
}
