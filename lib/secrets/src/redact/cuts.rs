//! Parts of secrets beside the marks of cuts.

use std::ops::Range;

use halite_errors::cut::MARK;

use super::SHORTEST_INSIDE;

/// The places in a text where a cut has left a part of a secret: its beginning before a mark, its
/// end after a mark, or its middle between two marks.
pub(super) fn rests(text: &str, secrets: &[String]) -> Vec<Range<usize>> {
    let mut rests = Vec::new();
    let mut after = 0;
    let mut is_cut_before = false;
    for (mark, _) in text.match_indices(MARK) {
        if mark < after {
            continue;
        }
        // The output of a program may end in the middle of a character or of a line.
        let before = text.get(after..mark).unwrap_or_default();
        let before = before.trim_end_matches(['\n', char::REPLACEMENT_CHARACTER]);
        let piece = after..after + before.len();
        rests.extend(of_piece(text, &piece, is_cut_before, true, secrets));
        let rest = text.get(mark..).unwrap_or_default();
        let end = rest.find(']').map_or(rest.len(), |at| at + 1);
        after = mark + end;
        let rest = rest.get(end..).unwrap_or_default();
        after += rest.len()
            - rest
                .trim_start_matches(['\n', char::REPLACEMENT_CHARACTER])
                .len();
        is_cut_before = true;
    }
    if is_cut_before {
        rests.extend(of_piece(text, &(after..text.len()), true, false, secrets));
    }
    rests
}

/// The parts of secrets at the cut ends of one piece.
fn of_piece(
    text: &str,
    piece: &Range<usize>,
    is_cut_before: bool,
    is_cut_after: bool,
    secrets: &[String],
) -> Vec<Range<usize>> {
    let content = text.get(piece.clone()).unwrap_or_default().as_bytes();
    if content.len() < SHORTEST_INSIDE {
        return Vec::new();
    }
    let is_middle = is_cut_before && is_cut_after;
    if is_middle
        && text
            .get(piece.clone())
            .is_some_and(|content| secrets.iter().any(|secret| secret.contains(content)))
    {
        return vec![piece.clone()];
    }
    let longest = |is_rest: &dyn Fn(&[u8], usize) -> bool| {
        let lengths = secrets.iter().filter_map(|secret| {
            let secret = secret.as_bytes();
            let most = secret.len().min(content.len());
            (SHORTEST_INSIDE..=most)
                .rev()
                .find(|length| is_rest(secret, *length))
        });
        lengths.max()
    };
    let mut rests = Vec::new();
    if is_cut_before {
        let end = longest(&|secret, length| content.starts_with(&secret[secret.len() - length..]));
        rests.extend(end.map(|length| piece.start..piece.start + length));
    }
    if is_cut_after {
        let beginning = longest(&|secret, length| content.ends_with(&secret[..length]));
        rests.extend(beginning.map(|length| piece.end - length..piece.end));
    }
    rests
}

/// The union of both sets of places, in order; overlapping places are merged.
pub(super) fn united(one: Vec<Range<usize>>, other: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = one.into_iter().chain(other).collect();
    all.sort_by_key(|range| range.start);
    let mut united: Vec<Range<usize>> = Vec::with_capacity(all.len());
    for range in all {
        match united.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => united.push(range),
        }
    }
    united
}
