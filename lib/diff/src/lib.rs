//! Unified diffs of texts, as `diff -u` writes them.
//!
//! The time is bounded by the heuristics of GNU diff, so a diff of long texts with little in common
//! is not the shortest possible one. A diff of equal texts is empty, without the names.

mod lines;

use std::fmt::Write as _;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};

/// The usual number of unchanged lines around each change.
pub const CONTEXT: u32 = 3;

/// The line that follows a line without a line end.
const NO_NEWLINE: &str = "\\ No newline at end of file";

/// A name and a text.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The name in the first two lines.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

/// The changes that turn the text of `old` into the text of `new`, with `context` unchanged lines
/// around each.
#[must_use]
pub fn unified(old: Side<'_>, new: Side<'_>, context: u32) -> String {
    let mut input = InternedInput::default();
    input.update_before(lines::split(old.text));
    input.update_after(lines::split(new.text));
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let hunks: Vec<Hunk> = diff.hunks().collect();
    let mut text = String::new();
    if !hunks.is_empty() {
        text = format!("--- {}\n+++ {}\n", old.name, new.name);
    }
    // Hunks with no more than twice the context between them are displayed as one.
    let is_near = |a: &Hunk, b: &Hunk| b.before.start - a.before.end <= context.saturating_mul(2);
    for near in hunks.chunk_by(is_near) {
        group(&mut text, &input, near, context);
    }
    text
}

/// Appends changes that are close to each other, with the lines around and between them.
fn group(text: &mut String, input: &InternedInput<&str>, hunks: &[Hunk], context: u32) {
    let (Some(first), Some(last)) = (hunks.first(), hunks.last()) else {
        return;
    };
    let length = u32::try_from(input.before.len()).unwrap_or(u32::MAX);
    let leading = first.before.start.min(context);
    let trailing = (length - last.before.end).min(context);
    let around = |first: &Range<u32>, last: &Range<u32>| {
        range(&(first.start - leading..last.end + trailing))
    };
    // Writing into a string does not fail.
    let _ = writeln!(
        text,
        "@@ -{} +{} @@",
        around(&first.before, &last.before),
        around(&first.after, &last.after)
    );
    let old = |lines: Range<u32>| tokens(input, &input.before, lines);
    let new = |lines: Range<u32>| tokens(input, &input.after, lines);
    let mut end = first.before.start - leading;
    for hunk in hunks {
        append(text, ' ', old(end..hunk.before.start));
        append(text, '-', old(hunk.before.clone()));
        append(text, '+', new(hunk.after.clone()));
        end = hunk.before.end;
    }
    append(text, ' ', old(end..end + trailing));
}

/// The first line, counted from 1, and the number of lines: `3` is one line, `2,0` none after line
/// 2.
fn range(lines: &Range<u32>) -> String {
    match lines.end - lines.start {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        length => format!("{},{length}", lines.start + 1),
    }
}

fn tokens<'a>(
    input: &'a InternedInput<&'a str>,
    side: &'a [imara_diff::Token],
    lines: Range<u32>,
) -> impl Iterator<Item = &'a str> {
    let lines = lines.start as usize..lines.end as usize;
    side[lines].iter().map(|token| input.interner[*token])
}

fn append<'a>(text: &mut String, mark: char, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        text.push(mark);
        text.push_str(line);
        if !lines::has_end(line) {
            text.push('\n');
            text.push_str(NO_NEWLINE);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests;
