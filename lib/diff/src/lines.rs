//! Lines of a text, with their line ends.

/// The lines of a text, each with its line end: `\n`, `\r\n`, or a single `\r`.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = match rest.find(['\r', '\n']) {
            None if rest.is_empty() => return None,
            None => rest.len(),
            Some(at) if rest[at..].starts_with("\r\n") => at + 2,
            Some(at) => at + 1,
        };
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

/// Returns whether a line has a line end; only the last line of a text can lack one.
pub fn has_end(line: &str) -> bool {
    line.ends_with(['\r', '\n'])
}
