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
        if contains_lines(&new, &text, loose) {
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
    let block: Vec<&str> = content.lines().collect();
    let lines: Vec<&str> = file.text.lines().collect();

    let first = lines.iter().position(|line| line.contains(&start));
    let last = first.and_then(|first| {
        lines
            .iter()
            .skip(first + 1)
            .position(|line| line.contains(&end))
            .map(|offset| first + 1 + offset)
    });
    let whole = || {
        std::iter::once(start.as_str())
            .chain(block.iter().copied())
            .chain([end.as_str()])
    };
    let new: Vec<&str> = match (first, last) {
        (Some(first), Some(last)) => {
            let (head, tail) = (lines.iter().take(first + 1), lines.iter().skip(last));
            head.chain(block.iter()).chain(tail).copied().collect()
        }
        (Some(_), None) => {
            return fail("Unterminated marked block. End of file reached before marker_end.");
        }
        (None, _) if append => lines.iter().copied().chain(whole()).collect(),
        (None, _) if prepend => whole().chain(lines.iter().copied()).collect(),
        (None, _) if host.uncertain() => lines.iter().copied().chain(whole()).collect(),
        (None, _) => return fail("Cannot edit marked block. Markers not found in file."),
    };
    if new == lines && file.exists {
        return Ok(Plan::nothing("No changes needed to be made"));
    }
    let new = new.join("\n") + "\n";
    Ok(file.plan_for(
        &new,
        args.show()?,
        Vec::new(),
        "Changes would be made".into(),
        "Changes were made".into(),
    ))
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
