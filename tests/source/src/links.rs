//! Links between documents lead to files and headings that exist. The pages below `docs/` must also
//! work as a book of HTML, which contains `docs/` alone and passes raw HTML to the browser.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tree::{self, Text};

/// The folder of the book.
const BOOK: &str = "docs/";

/// A document with its links.
struct Page {
    /// The ids of its headings.
    headings: BTreeSet<String>,
    /// The targets of its links, with their lines.
    links: Vec<(usize, String)>,
    /// Lines with raw HTML.
    html: Vec<usize>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self {
            headings: BTreeSet::new(),
            links: Vec::new(),
            html: Vec::new(),
        };
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_TASKLISTS;
        let events: Vec<(Event<'_>, Range<usize>)> =
            Parser::new_ext(text, options).into_offset_iter().collect();
        for (at, (event, range)) in events.iter().enumerate() {
            let line = || text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Heading { .. }) => page.heading(&title(&events[at + 1..])),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line(), dest_url.to_string()));
                }
                Event::Html(html) | Event::InlineHtml(html) if !html.starts_with("<!--") => {
                    page.html.push(line());
                }
                _ => {}
            }
        }
        page
    }

    /// Adds the id of a heading, made as code hosts and mdBook do.
    fn heading(&mut self, title: &str) {
        let title = title.to_lowercase();
        let kept = title.chars().filter_map(|c| match c {
            c if c.is_whitespace() => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        let plain: String = kept.collect();
        let numbered = (1..).map(|number| format!("{plain}-{number}"));
        let mut ids = std::iter::once(plain.clone()).chain(numbered);
        let id = ids.find(|id| !self.headings.contains(id));
        self.headings.extend(id);
    }
}

/// The text of a heading, from the events after its start.
fn title(events: &[(Event<'_>, Range<usize>)]) -> String {
    let inside = events
        .iter()
        .map(|(event, _)| event)
        .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    inside
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        })
        .collect()
}

/// The path to which a relative link of a document leads; `None` if it leads out of the checkout.
fn resolve(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
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

/// The findings of all documents; `exists` says whether a path of the checkout is there.
fn findings(files: &[&Text], exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let pages: BTreeMap<&str, Page> = files
        .iter()
        .map(|file| (file.path.as_str(), Page::read(&file.text)))
        .collect();
    let mut found = Vec::new();
    for (path, page) in &pages {
        let is_in_book = path.starts_with(BOOK);
        let raw = page.html.iter().filter(|_| is_in_book);
        found.extend(raw.map(|line| {
            format!("{path}:{line}: raw HTML vanishes from the book; write it as `code`")
        }));
        for (line, link) in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let wanted = match target {
                "" => Some((*path).to_owned()),
                target => resolve(path, target),
            };
            let is_right = wanted.is_some_and(|wanted| match pages.get(wanted.as_str()) {
                Some(page) => {
                    let is_reachable = !is_in_book || wanted.starts_with(BOOK);
                    is_reachable && (heading.is_empty() || page.headings.contains(heading))
                }
                // The book has pages, not folders.
                None if is_in_book => {
                    wanted.starts_with(BOOK) && wanted.contains('.') && exists(&wanted)
                }
                None => heading.is_empty() && exists(&wanted),
            });
            if !is_right {
                found.push(format!(
                    "{path}:{line}: {link} does not exist, or is outside of docs/"
                ));
            }
        }
    }
    found
}

#[test]
fn links_between_documents_lead_to_files_and_headings_of_the_repository() {
    let root = tree::root();
    let files = tree::files(&[".md"]);
    let found = findings(&files, &|path| root.join(path).exists());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn links_that_lead_nowhere_are_all_found() {
    let file = |path: &str, text: &str| Text {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let files = [
        file(
            "docs/a.md",
            "# A\n\n[b](b.md) [c](sub/c.md#there) [d](sub/c.md#not-there)\n![picture](p.svg) [out](../README.md)\n\n<b>raw</b>\n\n<!-- comment -->\n",
        ),
        file(
            "docs/sub/c.md",
            "# There\n\n## Two `b_c`\n\n## Two `b_c`\n\n[a](../a.md#a) [self](#two-b_c-1) [no](#no) [folder](../sub)\n`[code](x)`\n",
        ),
        file(
            "README.md",
            "# Read me\n\n[docs](docs) [a](docs/a.md) [x](../x.md)\n",
        ),
    ];
    let there = ["docs", "docs/sub", "docs/p.svg"];
    let found = findings(&files.each_ref(), &|path| there.contains(&path));
    let short: Vec<&str> = found
        .iter()
        .filter_map(|finding| finding.split(' ').nth(1).map(|_| finding.as_str()))
        .map(|finding| finding.split(" does not").next().unwrap())
        .collect();
    assert_eq!(
        short,
        [
            "README.md:3: ../x.md",
            "docs/a.md:6: raw HTML vanishes from the book; write it as `code`",
            "docs/a.md:6: raw HTML vanishes from the book; write it as `code`",
            "docs/a.md:3: b.md",
            "docs/a.md:3: sub/c.md#not-there",
            "docs/a.md:4: ../README.md",
            "docs/sub/c.md:7: #no",
            "docs/sub/c.md:7: ../sub",
        ]
    );
}
