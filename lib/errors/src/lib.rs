//! An error and its causes as one text; long texts, shortened ([`cut`]).
//!
//! Errors are enums that keep their causes; a text is made where a person reads it: in a log line,
//! a state's comment, a refusal, a report.

pub mod cut;

use std::error::Error;

/// The error and its causes as one line, separated by `: `. A cause that the text before it already
/// ends with is left out: some libraries repeat theirs.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::chain;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot start")]
        Start(#[source] Box<Failed>),
        #[error("cannot open the store")]
        Open(#[source] io::Error),
        #[error("cannot read the store: {0}")]
        Read(#[source] io::Error),
    }

    fn full() -> io::Error {
        io::Error::other("disk full")
    }

    #[test]
    fn every_cause_is_named() {
        assert_eq!(
            chain(&Failed::Start(Box::new(Failed::Open(full())))),
            "cannot start: cannot open the store: disk full"
        );
    }

    #[test]
    fn a_cause_that_the_text_ends_with_is_not_repeated() {
        assert_eq!(
            chain(&Failed::Start(Box::new(Failed::Read(full())))),
            "cannot start: cannot read the store: disk full"
        );
    }
}
