//! Origins of lines: from a line of rendered text to the line of the template that produced it.
//!
//! A template is rendered twice: unchanged, and with invisible marks that give file and line before
//! every piece of text. If the second text without its marks equals the first, the marks give the
//! origin of each line, through imports, macros and loops. Otherwise (a template that measures its
//! own text) lines are matched by content.

use std::collections::HashMap;
use std::sync::Arc;

use crate::low::Position;

/// Start of a mark; from the private use area.
const OPEN: char = '\u{F8F0}';
/// End of a mark.
const CLOSE: char = '\u{F8F1}';

/// A source file by name.
#[derive(Debug, Clone)]
pub(crate) struct TemplateSource {
    pub name: String,
    pub text: Arc<str>,
    /// The byte at which each line starts. Every node of a document looks up a line of its source;
    /// to search from the top each time would be quadratic in the size of the file.
    starts: Arc<[usize]>,
}

impl TemplateSource {
    pub(crate) fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let after_newline = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            name: name.into(),
            starts: std::iter::once(0).chain(after_newline).collect(),
            text,
        }
    }

    /// The line of this number, counted from 1, without its end; empty after the last.
    fn line(&self, number: u32) -> &str {
        let start = (number as usize)
            .checked_sub(1)
            .and_then(|at| self.starts.get(at));
        start
            .and_then(|start| self.text.get(*start..)?.lines().next())
            .unwrap_or_default()
    }
}

/// The origin of each line of a rendered text.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineMap {
    sources: Arc<[TemplateSource]>,
    /// For each rendered line: marks as (column from 0, source, line from 1), ascending.
    lines: Vec<Vec<(usize, usize, u32)>>,
    rendered: Vec<String>,
}

/// Puts marks into a template.
pub(crate) fn mark(text: &str, file: usize) -> String {
    if text.contains([OPEN, CLOSE]) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut line = 1u32;
    let mut pending = true;
    let mut raw = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let tag = if raw {
            rest.starts_with("{%") && is_tag(rest, "endraw")
        } else {
            ["{{", "{%", "{#"].iter().any(|open| rest.starts_with(open))
        };
        if tag {
            let end = tag_end(rest);
            let tag = &rest[..end];
            if pending && tag.starts_with("{{") && !tag.starts_with("{{-") {
                out.push_str(&format!("{OPEN}{file}:{line}{CLOSE}"));
            }
            if tag.starts_with("{%") {
                raw = is_tag(tag, "raw");
            }
            out.push_str(tag);
            line += u32::try_from(tag.matches('\n').count()).unwrap_or(0);
            pending = true;
            rest = &rest[end..];
            continue;
        }
        if pending && !c.is_whitespace() {
            out.push_str(&format!("{OPEN}{file}:{line}{CLOSE}"));
            pending = false;
        }
        if c == '\n' {
            line += 1;
            pending = true;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// A template with each of its tags, comments included, replaced by what `new` returns for it; text
/// between `raw` and `endraw` stays.
pub(super) fn replace_tags(body: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::with_capacity(body.len());
    let mut raw = false;
    let mut rest = body;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let tag = if raw {
            rest.starts_with("{%") && is_tag(rest, "endraw")
        } else {
            ["{{", "{%", "{#"].iter().any(|open| rest.starts_with(open))
        };
        if !tag {
            text.push('{');
            rest = &rest[1..];
            continue;
        }
        let end = tag_end(rest);
        raw = rest.starts_with("{%") && is_tag(rest, "raw");
        text.push_str(&new(&rest[..end]).unwrap_or_else(|| rest[..end].to_owned()));
        rest = &rest[end..];
    }
    text.push_str(rest);
    text
}

/// Tests whether the tag at the start of `text` is `name`.
pub(crate) fn is_tag(text: &str, name: &str) -> bool {
    let inside = text
        .trim_start_matches("{%")
        .trim_start_matches(['-', '+'])
        .trim_start();
    inside.strip_prefix(name).is_some_and(|rest| {
        rest.trim_start_matches(['-', '+', ' ', '\t'])
            .starts_with("%}")
    })
}

/// The length of the tag at the start of `text`, its end mark included.
pub(crate) fn tag_end(text: &str) -> usize {
    let close = match text.get(..2) {
        Some("{{") => "}}",
        Some("{#") => return text.find("#}").map_or(text.len(), |at| at + 2),
        _ => "%}",
    };
    let mut quote: Option<char> = None;
    let mut depth = 0usize;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            Some(open) => {
                if escaped {
                    escaped = false;
                } else if c == '\\' {
                    escaped = true;
                } else if c == open {
                    quote = None;
                }
            }
            None if depth == 0 && text[at..].starts_with(close) => return at + 2,
            None => match c {
                '\'' | '"' => quote = Some(c),
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            },
        }
    }
    text.len()
}

/// Removes all marks.
pub(crate) fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        match c {
            OPEN => inside = true,
            CLOSE => inside = false,
            _ if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

impl LineMap {
    /// Reads the marks of `marked`, if it equals `plain` without them; otherwise matches lines by
    /// content with source `number`.
    pub(crate) fn new(
        sources: Arc<[TemplateSource]>,
        number: usize,
        plain: &str,
        marked: Option<&str>,
    ) -> Self {
        let rendered: Vec<String> = plain.lines().map(str::to_owned).collect();
        let lines = match marked.filter(|marked| strip(marked) == plain) {
            Some(marked) => read_marks(marked),
            None => match_lines(
                &rendered,
                number,
                sources.get(number).map_or("", |source| &source.text),
            ),
        };
        Self {
            sources,
            lines,
            rendered,
        }
    }

    /// Tests whether the lines of another map of the same sources have the same origins.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.lines == other.lines
    }

    /// Changes a position in the rendered text into one in its source.
    pub(crate) fn locate(&self, position: &mut Position) {
        if position.line == 0 || self.lines.is_empty() {
            return;
        }
        let wanted = (position.line as usize - 1).min(self.lines.len() - 1);
        let column = (position.column as usize).saturating_sub(1);
        let mark = (0..=wanted).rev().find_map(|line| {
            let marks = &self.lines[line];
            if line == wanted {
                marks
                    .iter()
                    .rev()
                    .find(|mark| mark.0 <= column)
                    .or(marks.first())
            } else {
                marks.last()
            }
        });
        let Some(&(_, file, line)) = mark else { return };
        let Some(source) = self.sources.get(file) else {
            return;
        };
        let text = source.line(line);
        let rendered = self.rendered.get(wanted).map_or("", String::as_str);
        let same = text
            .chars()
            .zip(rendered.chars())
            .take_while(|(a, b)| a == b)
            .count()
            >= column;
        position.file.clone_from(&source.name);
        position.line = line;
        if !same {
            position.column = 0;
        }
    }
}

fn read_marks(marked: &str) -> Vec<Vec<(usize, usize, u32)>> {
    let mut lines = Vec::new();
    for line in marked.lines() {
        let mut marks = Vec::new();
        let mut column = 0;
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != OPEN {
                column += 1;
                continue;
            }
            let end = rest.find(CLOSE).unwrap_or(rest.len());
            if let Some((file, number)) = rest[..end].split_once(':')
                && let (Ok(file), Ok(number)) = (file.parse(), number.parse())
            {
                marks.push((column, file, number));
            }
            rest = rest.get(end + CLOSE.len_utf8()..).unwrap_or_default();
        }
        lines.push(marks);
    }
    lines
}

/// The origin of each rendered line that also is a line of the source, searched after the last
/// match.
fn match_lines(rendered: &[String], number: usize, source: &str) -> Vec<Vec<(usize, usize, u32)>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, text) in source.lines().enumerate() {
        places.entry(text).or_default().push(at);
    }
    let mut next = 0;
    rendered
        .iter()
        .map(|line| {
            let places = places.get(line.as_str()).map_or(&[][..], Vec::as_slice);
            let Some(at) = places.get(places.partition_point(|at| *at < next)) else {
                return Vec::new();
            };
            next = at + 1;
            vec![(0, number, u32::try_from(next).unwrap_or(0))]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_before_text_and_expressions_only() {
        let text = "a: {{ x }}\n{% if y -%}\n  b: 1\n{%- endif %}\n{% raw %}{{ z }}{% endraw %}\n";
        let marked = mark(text, 0);
        assert_eq!(strip(&marked), text);
        let shown: String = marked.replace(OPEN, "<").replace(CLOSE, ">");
        assert_eq!(
            shown,
            "<0:1>a: {{ x }}\n{% if y -%}\n  <0:3>b: 1\n{%- endif %}\n{% raw %}<0:5>{{ z }}{% endraw %}\n"
        );
    }

    #[test]
    fn the_end_of_a_tag_is_found_behind_quotes_and_braces() {
        assert_eq!(tag_end("{{ '}}' }} x"), 10);
        assert_eq!(tag_end("{{ {'a': {'b': 1}} }}x"), 21);
        assert_eq!(tag_end("{% set x = \"%}\" %}x"), 18);
        assert_eq!(tag_end("{# it's #}x"), 10);
        assert_eq!(tag_end("{{ open"), 7);
    }

    #[test]
    fn a_line_of_a_source_is_found_by_its_number() {
        let source = TemplateSource::new("f", "a\r\n\nb");
        let lines: Vec<&str> = (0..5).map(|number| source.line(number)).collect();
        assert_eq!(lines, ["", "a", "", "b", ""]);
        assert_eq!(TemplateSource::new("f", "").line(1), "");
    }

    #[test]
    fn matching_by_content_is_the_fallback() {
        let source = TemplateSource::new("f", "a: 1\n{% set x %}\nb: 2\n");
        let map = LineMap::new([source].into(), 0, "a: 1\n\nb: 2\n", None);
        let mut position = Position {
            file: "f".into(),
            line: 3,
            column: 1,
        };
        map.locate(&mut position);
        assert_eq!((position.line, position.column), (3, 1));
    }
}
