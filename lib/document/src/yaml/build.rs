//! Builds the tree from parser events.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{MAX_BYTES, MAX_DEPTH, MAX_NODES, Node, NodeKind, scalar};
use crate::position::Position;
use crate::problem::Problem;

/// All documents of a text that have content. `locate` maps each position in the text to the one to
/// report (the position in the template of a rendered text).
pub(super) fn documents(
    file: &str,
    text: &str,
    locate: &dyn Fn(&mut Position),
) -> Result<Vec<Node>, Problem> {
    if text.len() > MAX_BYTES {
        return Err(Problem::in_file(
            file,
            format!("the file has {} bytes, more than {MAX_BYTES}", text.len()),
        ));
    }
    let parser = Parser::new_from_str(text);
    let mut builder = Builder {
        file,
        text,
        locate,
        parser,
        anchors: HashMap::new(),
        nodes: 0,
    };
    let mut found = Vec::new();
    loop {
        match builder.next()? {
            (Event::StreamEnd, _) => return Ok(found),
            (Event::DocumentStart(_), _) => {
                builder.anchors.clear();
                let event = builder.next()?;
                if matches!(event.0, Event::DocumentEnd) {
                    continue;
                }
                let empty = matches!(&event.0, Event::Scalar(value, ScalarStyle::Plain, _, _) if value.is_empty());
                let node = builder.node(event, 0)?;
                if !empty {
                    found.push(node);
                }
            }
            _ => {}
        }
    }
}

struct Builder<'a> {
    file: &'a str,
    text: &'a str,
    locate: &'a dyn Fn(&mut Position),
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Finished nodes by anchor, with their size in nodes.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.explain(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn position(&self, span: &Span) -> Position {
        self.place(span.start.line(), span.start.col() + 1)
    }

    fn place(&self, line: usize, column: usize) -> Position {
        let mut position = Position {
            file: self.file.to_owned(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        };
        (self.locate)(&mut position);
        position
    }

    fn count(&mut self, more: usize, position: &Position) -> Result<(), Problem> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            return Err(Problem::at(
                position,
                format!("the document has more than {MAX_NODES} values"),
            )
            .hint("aliases (`*name`) count each time they are used"));
        }
        Ok(())
    }

    fn node(&mut self, (event, span): (Event<'a>, Span), depth: usize) -> Result<Node, Problem> {
        let position = self.position(&span);
        if depth > MAX_DEPTH {
            return Err(Problem::at(
                &position,
                format!("nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        let before = self.nodes;
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.clone()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.clone())
            }
            _ => (0, None),
        };
        if let Some(tag) = tag {
            return Err(
                Problem::at(&position, format!("the tag `{tag}` is not allowed here"))
                    .hint("tags are refused; quote a text that begins with `!`"),
            );
        }
        let mut node = match event {
            Event::Alias(id) => {
                let Some((node, size)) = self.anchors.get(&id).cloned() else {
                    return Err(Problem::at(
                        &position,
                        "an alias is inside the value that it names",
                    ));
                };
                self.count(size, &position)?;
                return Ok(node);
            }
            Event::Scalar(value, style, ..) => {
                self.count(1, &position)?;
                let value = value.into_owned();
                let kind = match style {
                    ScalarStyle::Plain => scalar::resolve(&value),
                    _ => NodeKind::Text(value.clone()),
                };
                // JSON, in which values are passed on, has no form for it.
                if let NodeKind::Float(number) = kind
                    && !number.is_finite()
                {
                    return Err(Problem::at(
                        &position,
                        format!("`{value}` is not a finite number"),
                    )
                    .hint(format!("for this text write '{value}'")));
                }
                Node {
                    kind,
                    position,
                    raw: value,
                }
            }
            Event::SequenceStart(..) => {
                self.count(1, &position)?;
                let mut items = Vec::new();
                loop {
                    let event = self.next()?;
                    if matches!(event.0, Event::SequenceEnd) {
                        break;
                    }
                    items.push(self.node(event, depth + 1)?);
                }
                Node {
                    kind: NodeKind::List(items),
                    position,
                    raw: String::new(),
                }
            }
            Event::MappingStart(..) => {
                self.count(1, &position)?;
                let entries = self.entries(depth)?;
                Node {
                    kind: NodeKind::Map(entries),
                    position,
                    raw: String::new(),
                }
            }
            _ => return Err(Problem::at(&position, "a value is missing here")),
        };
        // The parser places a map at its first `:` or key; the position of a key is more useful.
        if let NodeKind::Map(entries) = &node.kind
            && let Some((key, _)) = entries.first()
            && key.position.line == node.position.line
        {
            node.position.column = node.position.column.min(key.position.column);
        }
        if anchor > 0 {
            self.anchors
                .insert(anchor, (node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<(Node, Node)>, Problem> {
        let mut entries: Vec<(Node, Node)> = Vec::new();
        let mut seen: HashMap<String, Position> = HashMap::new();
        let mut merged: Vec<(Node, Node)> = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(event.0, Event::MappingEnd) {
                break;
            }
            let plain = matches!(&event.0, Event::Scalar(_, ScalarStyle::Plain, ..));
            let key = self.node(event, depth + 1)?;
            let next = self.next()?;
            let value = self.node(next, depth + 1)?;
            if !key.is_scalar() {
                return Err(Problem::at(
                    &key.position,
                    format!("{} cannot be a key", key.kind_name()),
                )
                .hint("a template expression must be quoted: `key: \"{{ … }}\"`"));
            }
            if plain && key.raw == "<<" {
                merge(&mut merged, value)?;
                continue;
            }
            if let Some(first) = seen.insert(key.raw.clone(), key.position.clone()) {
                return Err(Problem::at(
                    &key.position,
                    format!(
                        "`{}` occurs twice: first in line {}, column {}",
                        key.raw, first.line, first.column
                    ),
                )
                .hint("the second would silently replace the first; rename one or merge them"));
            }
            entries.push((key, value));
        }
        // PyYAML puts merged keys before the map's own keys, and own keys win.
        merged.retain(|(key, _)| !seen.contains_key(&key.raw));
        merged.append(&mut entries);
        Ok(merged)
    }

    /// Explains an error of the parser.
    fn explain(&self, error: &ScanError) -> Problem {
        let lines: Vec<&str> = self.text.lines().collect();
        let here = error.marker().line();
        // The parser may notice a tab in the indentation one line late.
        for number in [here, here.saturating_sub(1)] {
            let line = lines
                .get(number.wrapping_sub(1))
                .copied()
                .unwrap_or_default();
            let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
            if let Some(column) = indent.chars().position(|c| c == '\t') {
                let position = self.place(number, column + 1);
                return Problem::at(
                    &position,
                    "a tab is in the indentation; YAML allows only spaces there",
                )
                .hint("replace it with spaces")
                .excerpt_of(line);
            }
        }
        let position = self.place(here, error.marker().col() + 1);
        let line = lines.get(here.wrapping_sub(1)).copied().unwrap_or_default();
        let info = error.info();
        let hint = if info.contains("mapping values are not allowed") {
            "a `:` follows a complete value: is the line above missing its own `:`, or does a text with `: ` need quotes?"
        } else if info.contains("did not find expected key") || info.contains("block mapping") {
            "compare the indentation with the lines above: keys of one mapping must start in the same column"
        } else if info.contains("did not find expected '-'") || info.contains("block collection") {
            "compare the indentation with the items above: all `-` of one list must start in the same column"
        } else if line.trim_start().starts_with(['@', '`', '%'])
            || line.contains(": @")
            || line.contains(": %")
        {
            "a text that begins with `@`, `%` or a backtick must be quoted"
        } else {
            ""
        };
        Problem::at(&position, format!("not valid YAML: {info}"))
            .hint(hint)
            .excerpt_of(line)
    }
}

/// `<<: *map` or `<<: [*a, *b]`; of several, the first that has a key wins.
fn merge(into: &mut Vec<(Node, Node)>, value: Node) -> Result<(), Problem> {
    match value.kind {
        NodeKind::Map(entries) => {
            for (key, value) in entries {
                if !into.iter().any(|(known, _)| known.raw == key.raw) {
                    into.push((key, value));
                }
            }
            Ok(())
        }
        NodeKind::List(items) => items.into_iter().try_for_each(|item| {
            if matches!(item.kind, NodeKind::Map(_)) {
                merge(into, item)
            } else {
                Err(Problem::at(
                    &item.position,
                    format!("`<<` merges mappings, this is {}", item.kind_name()),
                ))
            }
        }),
        _ => Err(Problem::at(
            &value.position,
            format!("`<<` merges mappings, this is {}", value.kind_name()),
        )),
    }
}
