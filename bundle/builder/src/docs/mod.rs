//! The documentation in a bundle: a folder of Markdown as plain HTML. Any browser reads it from the
//! ISO, without a server and without files from elsewhere.
//!
//! A broken link is refused: at a site without internet its target cannot be found elsewhere.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use halite_durable::files;
use page::Page;

use crate::error::Error;

pub use page::escape;

/// The page that lists all others.
const INDEX: &str = "index.html";

/// The style of every page. It is embedded in each page, so that a page can be copied on its own.
const STYLE: &str = "body{max-width:52em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif;color:#222;background:#fff}\
pre,code{font-family:monospace;background:#f3f3f3}pre{padding:.7em;overflow-x:auto}code{padding:0 .2em}\
pre code{padding:0}table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em;text-align:left;\
vertical-align:top}a{color:#05c}nav{font-size:.9em}";

/// Renders a folder of documentation, by path: each `NAME.md` as `NAME.html`, other files
/// unchanged, and an index.
///
/// # Errors
/// A file cannot be read, or links are broken: all of them.
pub fn render(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut pages = BTreeMap::new();
    let mut out = BTreeMap::new();
    for name in files::walk(folder)? {
        let from = folder.join(&name);
        if let Some(stem) = name.strip_suffix(".md") {
            let text = fs::read_to_string(&from).map_err(Error::file("read", &from))?;
            pages.insert(format!("{stem}.html"), Page::read(&name, &text));
        } else {
            out.insert(name, fs::read(&from).map_err(Error::file("read", &from))?);
        }
    }
    let problems = problems(&pages, &out);
    if !problems.is_empty() {
        return Err(Error::content(
            folder,
            format!("broken links:\n  {}", problems.join("\n  ")),
        ));
    }
    for (path, page) in &pages {
        let up = "../".repeat(path.matches('/').count());
        let nav = format!("<nav><a href=\"{up}{INDEX}\">All pages</a></nav>\n");
        out.insert(
            path.clone(),
            document(&page.title, &format!("{nav}{}", page.body)).into_bytes(),
        );
    }
    // A page with that name at the top is the index; it must link to the other pages itself.
    out.entry(INDEX.to_owned())
        .or_insert_with(|| index(&pages).into_bytes());
    Ok(out)
}

/// An HTML page with that title; `body` is HTML.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// The index: every page, by its folder.
fn index(pages: &BTreeMap<String, Page>) -> String {
    let mut folders: BTreeMap<&str, Vec<(&str, &Page)>> = BTreeMap::new();
    for (path, page) in pages {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push((path, page));
    }
    let mut body = "<h1>Halite</h1>\n".to_owned();
    for (folder, mut pages) in folders {
        if !folder.is_empty() {
            body.push_str(&format!("<h2 id=\"{0}\">{0}</h2>\n", escape(folder)));
        }
        // The folder's own index comes first.
        pages.sort_by_key(|(path, _)| !path.ends_with(INDEX));
        body.push_str("<ul>\n");
        for (path, page) in pages {
            body.push_str(&format!(
                "<li><a href=\"{}\">{}</a></li>\n",
                escape(path),
                escape(&page.title)
            ));
        }
        body.push_str("</ul>\n");
    }
    document("Halite", &body)
}

/// Links to pages, files and headings that do not exist.
fn problems(pages: &BTreeMap<String, Page>, others: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (path, page) in pages {
        for link in &page.links {
            let (target, heading) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let wanted = if target.is_empty() {
                Some(path.clone())
            } else {
                resolve(path, target)
            };
            let there = wanted.as_ref().and_then(|wanted| match pages.get(wanted) {
                Some(page) => (heading.is_empty() || page.headings.contains(heading)).then_some(()),
                None => (heading.is_empty() && others.contains_key(wanted)).then_some(()),
            });
            if there.is_none() {
                found.insert(format!("{}: {}", page.name, link.written));
            }
        }
        found.extend(
            page.problems
                .iter()
                .map(|why| format!("{}: {why}", page.name)),
        );
    }
    found.into_iter().collect()
}

/// Resolves a relative link of a page; `None` if it leads outside.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
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

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            halite_durable::files::write(&dir.path().join(name), 0o644, text.as_bytes()).unwrap();
        }
        dir
    }

    /// Every `href` and `src` of a page.
    fn references(html: &str) -> Vec<String> {
        let mut found = Vec::new();
        for attribute in ["href=\"", "src=\""] {
            found.extend(
                html.split(attribute)
                    .skip(1)
                    .map(|rest| rest.split('"').next().unwrap().to_owned()),
            );
        }
        found
    }

    #[test]
    fn our_own_documentation_is_whole_in_the_rendered_form() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let rendered = render(&docs).unwrap();
        assert!(
            rendered.contains_key("guide/bundle.html")
                && rendered.contains_key("decisions/0008-seal.html")
        );
        // Independent of the code that makes links: searches the HTML, and looks up each link among
        // the files and their ids.
        let mut inside = 0;
        for (path, bytes) in rendered.iter().filter(|(path, _)| path.ends_with(".html")) {
            let html = String::from_utf8(bytes.clone()).unwrap();
            for reference in references(&html)
                .iter()
                .filter(|reference| !reference.starts_with("http"))
            {
                let (file, id) = reference.split_once('#').unwrap_or((reference, ""));
                let target = if file.is_empty() {
                    path.clone()
                } else {
                    resolve(path, file).unwrap()
                };
                let there = rendered
                    .get(&target)
                    .unwrap_or_else(|| panic!("{path}: {reference}"));
                let there = String::from_utf8_lossy(there);
                assert!(
                    id.is_empty() || there.contains(&format!(" id=\"{id}\"")),
                    "{path}: {reference}"
                );
                inside += 1;
            }
            // Nothing is loaded from other sites, and no script runs.
            for foreign in ["<script", "<link", "src=\"http", "@import", "url("] {
                assert!(!html.contains(foreign), "{path}: {foreign}");
            }
        }
        assert!(inside > 50, "{inside}");
        let index = String::from_utf8(rendered["index.html"].clone()).unwrap();
        for path in rendered
            .keys()
            .filter(|path| path.ends_with(".html") && *path != "index.html")
        {
            assert!(
                index.contains(&format!("href=\"{path}\"")),
                "{path} is not in the index"
            );
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_all_named() {
        let dir = folder(&[
            (
                "a.md",
                "# A\n[x](b.md) [y](sub/c.md#there) [z](sub/c.md#not-there) [o](../out.md) ![i](i.png)",
            ),
            (
                "sub/c.md",
                "# There\n[back](../a.md#a) [self](#there) [no](#no) ![far](https://x.example/i.png)",
            ),
        ]);
        let error = render(dir.path()).unwrap_err().to_string();
        let named: Vec<&str> = error.lines().skip(1).map(str::trim).collect();
        assert_eq!(
            named,
            [
                "a.md: ../out.md",
                "a.md: b.md",
                "a.md: i.png",
                "a.md: sub/c.md#not-there",
                "sub/c.md: #no",
                "sub/c.md: the picture https://x.example/i.png is not in the folder",
            ]
        );
    }

    #[test]
    fn raw_html_is_text_and_headings_that_repeat_differ() {
        let dir = folder(&[(
            "a.md",
            "# One\n\n<script>x</script>\n\n## Two `b_c`\n\n## Two `b_c`\n\nin <b>line</b>\n",
        )]);
        let rendered = render(dir.path()).unwrap();
        let html = String::from_utf8(rendered["a.html"].clone()).unwrap();
        assert!(
            html.contains("&lt;script&gt;") && !html.contains("<script>") && !html.contains("<b>"),
            "{html}"
        );
        assert!(
            html.contains("id=\"two-b_c\"") && html.contains("id=\"two-b_c-1\""),
            "{html}"
        );
        assert!(html.contains("<title>One</title>"), "{html}");
        assert_eq!(rendered, render(dir.path()).unwrap());
    }
}
