//! One page of Markdown.

use std::collections::BTreeSet;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// A page as HTML, and the link targets in it.
pub struct Page {
    /// The name of its source file.
    pub name: String,
    /// Its first heading, or its name.
    pub title: String,
    /// The HTML of its text.
    pub body: String,
    /// The ids of its headings.
    pub headings: BTreeSet<String>,
    /// Its links, except those to other sites.
    pub links: Vec<Link>,
    /// Its other problems.
    pub problems: Vec<String>,
}

/// A link to another page, file or heading.
pub struct Link {
    /// The link as written in the source.
    pub written: String,
    /// The link as written in the HTML.
    pub target: String,
}

impl Page {
    /// Parses the source with that name.
    pub fn read(name: &str, source: &str) -> Self {
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_TASKLISTS;
        let mut page = Self {
            name: name.to_owned(),
            title: String::new(),
            body: String::new(),
            headings: BTreeSet::new(),
            links: Vec::new(),
            problems: Vec::new(),
        };
        let events: Vec<Event<'_>> = Parser::new_ext(source, options).collect();
        let events = events
            .iter()
            .enumerate()
            .map(|(at, event)| page.event(event, &events[at + 1..]));
        let events: Vec<Event<'_>> = events.collect();
        html::push_html(&mut page.body, events.into_iter());
        if page.title.is_empty() {
            page.title = name.to_owned();
        }
        page
    }

    /// Converts an event; `rest` are the events after it.
    fn event<'a>(&mut self, event: &Event<'a>, rest: &[Event<'a>]) -> Event<'a> {
        match event {
            Event::Start(Tag::Heading {
                level,
                classes,
                attrs,
                ..
            }) => {
                let text = text(rest);
                if self.title.is_empty() {
                    text.clone_into(&mut self.title);
                }
                let (level, classes, attrs) = (*level, classes.clone(), attrs.clone());
                let id = Some(CowStr::from(self.heading(&text)));
                Event::Start(Tag::Heading {
                    level,
                    id,
                    classes,
                    attrs,
                })
            }
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            }) => {
                let dest_url = CowStr::from(self.link(dest_url));
                let (link_type, title, id) = (*link_type, title.clone(), id.clone());
                Event::Start(Tag::Link {
                    link_type,
                    dest_url,
                    title,
                    id,
                })
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                if foreign(dest_url) {
                    self.problems
                        .push(format!("the picture {dest_url} is not in the folder"));
                } else {
                    self.link(dest_url);
                }
                event.clone()
            }
            // A page must not contain anything that a browser would run or load.
            Event::Html(raw) | Event::InlineHtml(raw) => Event::Text(raw.clone()),
            other => other.clone(),
        }
    }

    /// Makes the id of a heading as code hosts do, so that the same links work there.
    fn heading(&mut self, text: &str) -> String {
        let text = text.to_lowercase();
        let kept = text.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        let plain: String = kept.collect();
        let numbered = (1..).map(|number| format!("{plain}-{number}"));
        let mut ids = std::iter::once(plain.clone()).chain(numbered);
        let id = ids.find(|id| !self.headings.contains(id)).unwrap_or(plain);
        self.headings.insert(id.clone());
        id
    }

    /// Converts a link to its form in the HTML.
    fn link(&mut self, written: &str) -> String {
        if foreign(written) {
            return written.to_owned();
        }
        let (path, heading) = written
            .split_once('#')
            .map_or((written, None), |(path, id)| (path, Some(id)));
        let path = path
            .strip_suffix(".md")
            .map_or_else(|| path.to_owned(), |stem| format!("{stem}.html"));
        let target = heading.map_or_else(|| path.clone(), |heading| format!("{path}#{heading}"));
        self.links.push(Link {
            written: written.to_owned(),
            target: target.clone(),
        });
        target
    }
}

/// Returns `true` if a link leads to another site.
fn foreign(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The text of a heading, from the events after its start.
fn text(events: &[Event<'_>]) -> String {
    let inside = events
        .iter()
        .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    inside
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        })
        .collect()
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
