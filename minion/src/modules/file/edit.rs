//! `file.append` and `file.blockreplace`: parts of a file that other programs write too.

use halite_states::args::{Args, Show};
use halite_states::low::Chunk;
use serde_json::{Map, json};

use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host};
use crate::modules::paths::{absolute, follow, parents};
use crate::modules::{Failure, Plan, diff, fail};

/// A text file to edit; empty if it is missing and `missing_is_empty` is set.
pub(super) struct Text {
    pub name: String,
    pub path: String,
    pub text: String,
    pub exists: bool,
}

impl Text {
    pub(super) async fn open(
        host: &dyn Host,
        chunk: &Chunk,
        create: bool,
    ) -> Result<Self, Failure> {
        let name = absolute(&chunk.name)?;
        let (path, stat) = follow(host, &name).await?;
        let exists = match &stat {
            Some(stat) if stat.kind == FileKind::File => true,
            Some(_) => return fail(format!("{name} is not a file")),
            None if create || host.uncertain() => false,
            None => return fail(format!("{name}: file not found")),
        };
        let content = host.read(&path).await?.unwrap_or_default();
        match String::from_utf8(content) {
            Ok(text) => Ok(Self {
                name,
                path,
                text,
                exists,
            }),
            Err(_) => fail(format!("{name} is not a text file")),
        }
    }

    /// The plan that gives the file `new` for its text.
    pub(super) fn plan_for(
        &self,
        new: &str,
        show: Show,
        mut before: Vec<Effect>,
        comment: String,
        done: String,
    ) -> Plan {
        let text = diff::describe(self.text.as_bytes(), new.as_bytes(), show);
        before.push(Effect::Write {
            path: self.path.clone(),
            content: new.as_bytes().to_vec(),
            meta: Meta::default(),
        });
        Plan::change(
            Map::from_iter([("diff".to_owned(), json!(text))]),
            before,
            comment,
            done,
        )
    }
}

pub(in crate::modules) async fn append(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let file = Text::open(host, chunk, true).await?;
    let loose = args.flag("ignore_whitespace", true)?;
    let mut new = file.text.clone();
    let mut added = 0;
    for text in args.list("text")? {
        // As in Salt, a text that is twice in the list is added twice.
        if contains_lines(&file.text, &text, loose) {
            continue;
        }
        if !new.is_empty() && !new.ends_with('\n') {
            new.push('\n');
        }
        for line in text.lines() {
            new.push_str(line);
            new.push('\n');
            added += 1;
        }
    }
    if added == 0 && file.exists {
        return Ok(Plan::nothing(format!(
            "File {} is in correct state",
            file.name
        )));
    }
    let before = parents(
        host,
        &file.path,
        args.flag("makedirs", false)?,
        &Meta::default(),
    )
    .await?;
    let comment = format!("File {} is set to be updated", file.name);
    Ok(file.plan_for(
        &new,
        args.show()?,
        before,
        comment,
        format!("Appended {added} lines"),
    ))
}

/// Returns whether the lines of `part` follow one another in `text`.
fn contains_lines(text: &str, part: &str, loose: bool) -> bool {
    let normal = |line: &str| {
        if loose {
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        } else {
            line.to_owned()
        }
    };
    let wanted: Vec<String> = part.lines().map(normal).collect();
    let lines: Vec<String> = text.lines().map(normal).collect();
    wanted.is_empty() || lines.windows(wanted.len()).any(|window| window == wanted)
}

pub(in crate::modules) async fn blockreplace(
    host: &dyn Host,
    chunk: &Chunk,
) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let (start, end) = (args.required("marker_start")?, args.required("marker_end")?);
    let (append, prepend) = (
        args.flag("append_if_not_found", false)?,
        args.flag("prepend_if_not_found", false)?,
    );
    let file = Text::open(host, chunk, append || prepend).await?;
    let content = args.text("content")?.unwrap_or_default();
    let content = content.strip_suffix('\n').unwrap_or(&content);
    let block: Vec<&str> = content.split('\n').map(bare).collect();
    if let Some(line) = block.iter().find(|line| line.contains(&end)) {
        return fail(format!(
            "file.blockreplace: the line `{line}` of `content` contains `marker_end`, so that each run would add lines; use a \
             marker that `content` does not contain"
        ));
    }
    // Each with its own line end, which stays.
    let lines: Vec<&str> = file.text.split_inclusive('\n').collect();
    let end_of_line = match lines.first() {
        Some(first) if first.ends_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let ended = |line: &str| format!("{}{end_of_line}", bare(line));
    let whole = || {
        let markers = (std::iter::once(start.as_str()), [end.as_str()]);
        let lines = markers.0.chain(block.iter().copied()).chain(markers.1);
        lines.map(ended).collect::<String>()
    };
    let first = lines.iter().position(|line| line.contains(&start));
    let last = first.and_then(|first| {
        let mut after = (0..).zip(&lines).skip(first + 1);
        after
            .find(|(_, line)| line.contains(&end))
            .map(|(at, _)| at)
    });
    let appended = || {
        let is_cut = !file.text.is_empty() && !file.text.ends_with('\n');
        let newline = if is_cut { end_of_line } else { "" };
        format!("{}{newline}{}", file.text, whole())
    };
    let new = match (first, last) {
        (Some(first), Some(last)) => {
            let inside = &lines[first + 1..last];
            let is_there = inside
                .iter()
                .map(|line| bare(line))
                .eq(block.iter().copied());
            let inside: String = if is_there {
                inside.concat()
            } else {
                block.iter().map(|line| ended(line)).collect()
            };
            let marker = lines[last];
            let marker = if marker.ends_with('\n') {
                marker.to_owned()
            } else {
                ended(marker)
            };
            let (head, tail) = (lines[..=first].concat(), lines[last + 1..].concat());
            format!("{head}{inside}{marker}{tail}")
        }
        (Some(_), None) => {
            return fail("Unterminated marked block. End of file reached before marker_end.");
        }
        (None, _) if append => appended(),
        (None, _) if prepend => format!("{}{}", whole(), file.text),
        (None, _) if host.uncertain() => appended(),
        (None, _) => return fail("Cannot edit marked block. Markers not found in file."),
    };
    if new == file.text && file.exists {
        return Ok(Plan::nothing("No changes needed to be made"));
    }
    Ok(file.plan_for(
        &new,
        args.show()?,
        Vec::new(),
        "Changes would be made".into(),
        "Changes were made".into(),
    ))
}

/// A line without its end.
fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// The lines of a text, and their end. Where a text mixes ends, a carriage return is a part of its
/// line, so that it stays.
pub(super) fn lines(text: &str) -> (Vec<&str>, &'static str) {
    let newlines = text.matches('\n').count();
    if newlines > 0 && text.matches("\r\n").count() == newlines {
        return (text.lines().collect(), "\r\n");
    }
    (text.split_terminator('\n').collect(), "\n")
}

#[cfg(test)]
mod tests {
    use super::contains_lines;

    #[test]
    fn lines_are_found_together_or_not_at_all() {
        assert!(contains_lines("a\n  b   c\nd\n", "b c\nd", true));
        assert!(!contains_lines("a\n  b   c\nd\n", "b c\nd", false));
        assert!(!contains_lines("b c\nx\nd\n", "b c\nd", true));
        assert!(!contains_lines("abc\n", "b", true));
    }
}
