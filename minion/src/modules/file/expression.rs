//! `file.replace`, `file.comment` and `file.uncomment`: edits by a regular expression.

use halite_states::args::Args;
use halite_states::low::Chunk;
use halite_states::pattern::{Commented, Flags, Inexact, PatternError, Substitution};

use super::edit::Text;
use crate::host::Host;
use crate::modules::{Failure, Plan, fail, failure};

const UNCHANGED: &str = "No changes needed to be made";

fn pattern_failure(error: &PatternError) -> Failure {
    failure(halite_errors::chain(error))
}

fn inexact(error: &Inexact) -> Failure {
    failure(format!("cannot edit the file as Salt does: {error}"))
}

pub(in crate::modules) async fn replace(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let (append, prepend) = (
        args.flag("append_if_not_found", false)?,
        args.flag("prepend_if_not_found", false)?,
    );
    let may_be_missing = args.flag("ignore_if_missing", false)?;
    let file = Text::open(host, chunk, may_be_missing).await?;
    if !file.exists {
        return Ok(Plan::nothing(UNCHANGED));
    }
    let repl = args.required("repl")?;
    let flags = Flags::read(args.any("flags")).map_err(|error| pattern_failure(&error))?;
    let edit = Edit {
        substitution: Substitution::new(
            &args.required("pattern")?,
            &repl,
            flags,
            args.flag("backslash_literal", false)?,
        )
        .map_err(|error| pattern_failure(&error))?,
        most: args.number("count")?.unwrap_or(0),
        content: args.text("not_found_content")?.unwrap_or(repl),
        append,
        prepend,
    };
    let new = edit.apply(&file.text).map_err(|error| inexact(&error))?;
    if new == file.text {
        return Ok(Plan::nothing(UNCHANGED));
    }
    if edit.apply(&new).map_err(|error| inexact(&error))? != new {
        return fail(
            "the expression matches the replaced text and would change it again in each run; write an expression that \
             does not match it",
        );
    }
    Ok(file.plan_for(
        &new,
        args.show()?,
        Vec::new(),
        "Changes would have been made".into(),
        "Changes were made".into(),
    ))
}

/// One replacement.
struct Edit {
    substitution: Substitution,
    most: usize,
    /// The lines to add.
    content: String,
    append: bool,
    prepend: bool,
}

impl Edit {
    fn apply(&self, text: &str) -> Result<String, Inexact> {
        let (new, found) = self.substitution.replace(text, self.most)?;
        if found > 0 || !(self.append || self.prepend) || has_lines(text, &self.content) {
            return Ok(new.into_owned());
        }
        if self.prepend {
            return Ok(format!("{}\n{new}", self.content));
        }
        let is_cut = !new.is_empty() && !new.ends_with('\n');
        let newline = if is_cut { "\n" } else { "" };
        Ok(format!("{new}{newline}{}\n", self.content))
    }
}

/// Returns whether a text has these whole lines, of which the last may end with a carriage return.
fn has_lines(text: &str, content: &str) -> bool {
    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0)
        .chain(starts)
        .filter_map(|at| text.get(at..)?.strip_prefix(content))
        .any(|rest| rest.is_empty() || rest.starts_with('\n') || rest.starts_with("\r\n"))
}

fn commented(args: &Args<'_>, file: &Text) -> Result<Commented, Failure> {
    let sign = args.text("char")?.unwrap_or_else(|| "#".to_owned());
    let lines =
        Commented::new(&args.required("regex")?, &sign).map_err(|error| pattern_failure(&error))?;
    lines.check(&file.text).map_err(|error| inexact(&error))?;
    Ok(lines)
}

pub(in crate::modules) async fn comment(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let file = Text::open(host, chunk, false).await?;
    let lines = commented(&args, &file)?;
    if !lines.has_plain(&file.text) {
        if lines.has_commented(&file.text) {
            return Ok(Plan::nothing("Pattern already commented"));
        }
        if host.uncertain() || args.flag("ignore_missing", false)? {
            return Ok(Plan::nothing(
                "Pattern not found and ignore_missing set to True",
            ));
        }
        let regex = args.required("regex")?;
        let searched = regex.strip_prefix('^').unwrap_or(&regex);
        let searched = searched.strip_suffix('$').unwrap_or(searched);
        return fail(format!("{searched}: Pattern not found"));
    }
    let new = lines.comment(&file.text);
    if !lines.has_commented(&new) {
        return fail("Expected commented lines not found");
    }
    edited(&args, &file, &new, "Commented lines successfully")
}

pub(in crate::modules) async fn uncomment(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let file = Text::open(host, chunk, false).await?;
    let lines = commented(&args, &file)?;
    if !lines.has_spaced(&file.text) {
        if host.uncertain() || lines.has_uncommented(&file.text) {
            return Ok(Plan::nothing("Pattern already uncommented"));
        }
        return fail(format!("{}: Pattern not found", args.required("regex")?));
    }
    let new = lines.uncomment(&file.text);
    if !lines.has_uncommented(&new) {
        return fail("Expected uncommented lines not found");
    }
    edited(&args, &file, &new, "Uncommented lines successfully")
}

fn edited(args: &Args<'_>, file: &Text, new: &str, done: &str) -> Result<Plan, Failure> {
    if new == file.text {
        return Ok(Plan::nothing(done));
    }
    Ok(file.plan_for(
        new,
        args.show()?,
        Vec::new(),
        format!("File {} is set to be updated", file.name),
        done.to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::has_lines;

    #[test]
    fn lines_are_found_whole_and_together() {
        for (text, content) in [
            ("x\na\nb\n", "a\nb"),
            ("a\nb", "a\nb"),
            ("xa\na\na", "a\na"),
            ("a\r\n", "a"),
            ("a\nb\n", "a\nb\n"),
            ("", ""),
        ] {
            assert!(has_lines(text, content), "{text:?} {content:?}");
        }
        for (text, content) in [
            ("xa\nb\n", "a\nb"),
            ("a\nbx\n", "a\nb"),
            ("a\nx\nb\n", "a\nb"),
            ("a\rb", "a"),
            ("", "a"),
        ] {
            assert!(!has_lines(text, content), "{text:?} {content:?}");
        }
    }
}
