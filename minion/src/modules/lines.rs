//! The lines of a text, each with its own line ending: editing one leaves all others unchanged.

use std::fmt;

/// The lines of a text that is edited.
pub(super) struct EditedLines<'a> {
    items: Vec<(String, &'a str)>,
    end: &'static str,
}

impl<'a> EditedLines<'a> {
    /// No lines yet; new ones end as most programs would end them in `text`: with `\r\n` if all of
    /// its lines do.
    pub fn like(text: &str) -> Self {
        let newlines = text.matches('\n').count();
        let is_dos = newlines > 0 && text.matches("\r\n").count() == newlines;
        Self {
            items: Vec::new(),
            end: if is_dos { "\r\n" } else { "\n" },
        }
    }

    /// The lines of a text.
    pub fn read(text: &'a str) -> Self {
        let mut lines = Self::like(text);
        for (line, end) in parts(text) {
            lines.keep(line.to_owned(), end);
        }
        lines
    }

    /// Adds a line with the end that it has.
    pub fn keep(&mut self, line: String, end: &'a str) {
        self.items.push((line, end));
    }

    /// Adds a new line; an unfinished one before it is finished.
    pub fn push(&mut self, line: String) {
        if let Some((_, last)) = self.items.last_mut().filter(|(_, end)| end.is_empty()) {
            *last = self.end;
        }
        self.items.push((line, self.end));
    }

    /// Edits each line, or removes it if the answer is false.
    pub fn retain_mut(&mut self, mut edit: impl FnMut(&mut String) -> bool) {
        self.items.retain_mut(|(line, _)| edit(line));
    }

    /// The lines without their ends.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.items.iter_mut().map(|(line, _)| line)
    }
}

impl fmt::Display for EditedLines<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items = self.items.iter();
        items.try_for_each(|(line, end)| write!(out, "{line}{end}"))
    }
}

/// The lines of a text with their ends: `\n`, `\r\n`, or none for an unfinished last line.
pub(super) fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_inclusive('\n').map(|whole| {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = match line.strip_suffix('\r') {
            Some(bare) if line.len() < whole.len() => bare,
            _ => line,
        };
        whole.split_at(line.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_keeps_its_end_and_new_ones_get_the_usual_one() {
        for (text, wanted) in [
            ("a\r\nb\r\n", "a\r\nb\r\nnew\r\n"),
            ("a\r\nb\n", "a\r\nb\nnew\n"),
            ("a\r\nb", "a\r\nb\r\nnew\r\n"),
            ("a\nb\r", "a\nb\r\nnew\n"),
            ("", "new\n"),
        ] {
            let mut lines = EditedLines::read(text);
            assert_eq!(lines.to_string(), text);
            lines.push("new".to_owned());
            assert_eq!(lines.to_string(), wanted, "{text:?}");
        }
    }
}
