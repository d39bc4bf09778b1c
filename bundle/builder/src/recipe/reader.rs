//! The conversion of a recipe's values into types, which collects all problems.

use std::path::{Path, PathBuf};

use halite_document::{DocumentSource, Problem};

use super::download::Download;

/// Converts the values of a document and records each invalid one.
pub(super) struct RecipeReader<'a> {
    /// The document, for the places of problems.
    pub source: &'a DocumentSource,
    dir: &'a Path,
    /// The recipe's directory for downloads.
    pub cache: PathBuf,
    /// The files to download.
    pub downloads: Vec<Download>,
    /// The problems so far.
    pub problems: Vec<Problem>,
}

impl<'a> RecipeReader<'a> {
    /// A reader of a document in the folder `dir`.
    pub fn new(source: &'a DocumentSource, dir: &'a Path) -> Self {
        Self {
            source,
            dir,
            cache: PathBuf::new(),
            downloads: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Records a problem with the value at a path, unless it is a consequence of a reported
    /// problem.
    pub fn problem(&mut self, path: &str, message: impl Into<String>, hint: impl Into<String>) {
        if self.source.is_sound(path) {
            self.problems
                .push(self.source.problem(path, message).hint(hint));
        }
    }

    /// A path of the recipe; a relative one starts at the recipe's folder.
    pub fn path(&self, text: &str) -> PathBuf {
        self.dir.join(text)
    }

    /// An optional path of the recipe.
    pub fn optional(&self, text: Option<&String>) -> Option<PathBuf> {
        text.map(|text| self.path(text))
    }
}

/// Removes logins from addresses in a displayed problem: recipes and reports of their problems are
/// kept where many people can read them.
pub(super) fn redacted(mut problem: Problem) -> Problem {
    for text in [
        &mut problem.path,
        &mut problem.message,
        &mut problem.hint,
        &mut problem.excerpt,
    ] {
        *text = without_logins(text);
    }
    problem
}

/// The length from which an excerpt may be cut, within a login.
const CUT: usize = 160;

fn without_logins(text: &str) -> String {
    let is_cut = text.chars().count() >= CUT;
    let ends_word = |c: char| c.is_whitespace() || "\"'`".contains(c);
    let mut words = text.split_inclusive(ends_word).peekable();
    let mut out = String::new();
    while let Some(word) = words.next() {
        let begin = word.find("://").map(|scheme| scheme + "://".len());
        let login = word
            .rfind('@')
            .filter(|at| begin.is_some() || word[..*at].contains(':'))
            // The digest of an image is not a login.
            .filter(|at| !word[*at..].starts_with("@sha256:"));
        match (begin, login) {
            (begin, Some(at)) if begin.unwrap_or(0) <= at => {
                out.push_str(&word[..begin.unwrap_or(0)]);
                out.push('…');
                out.push_str(&word[at..]);
            }
            (Some(begin), _) if is_cut && words.peek().is_none() => {
                out.push_str(&word[..begin]);
                out.push('…');
            }
            _ => out.push_str(word),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_not_displayed() {
        let image = "{reference: \"registry.k8s.io/pause:3@sha256:12\"}";
        for (text, displayed) in [
            (
                "proxy: http://me:secret@p:3128/x",
                "proxy: http://…@p:3128/x",
            ),
            ("proxy: http://me:se/c,r@et@p", "proxy: http://…@p"),
            ("proxy: me:secret@p", "proxy: …@p"),
            (
                "{a: \"https://me@h\", b: \"https://h/a\"}",
                "{a: \"https://…@h\", b: \"https://h/a\"}",
            ),
            (image, image),
            ("a@b", "a@b"),
            ("://", "://"),
        ] {
            assert_eq!(without_logins(text), displayed);
        }
    }

    #[test]
    fn a_login_that_an_excerpt_cuts_is_not_displayed() {
        let line = format!("{}http://me:secret", "x".repeat(CUT - 16));
        assert!(!without_logins(&line).contains("secret"));
    }
}
