//! Errors of templates: made with their cause, and put into words for the operator.

use minijinja::{Error, ErrorKind};

/// An error without a further cause.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// An error with its cause, which the message does not repeat.
pub(super) fn caused(
    message: impl Into<String>,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    invalid(message).with_source(cause)
}

/// The message of an error, followed by causes that are not the template engine's own.
pub(super) fn message(error: &Error) -> String {
    let detail = error.detail().map(str::to_owned);
    let mut text = match (error.kind(), detail) {
        (ErrorKind::UndefinedError, Some(detail)) => detail,
        (ErrorKind::UndefinedError, None) => "a value that is not defined is used".to_owned(),
        (ErrorKind::OutOfFuel, _) => {
            "the template takes too many steps; is there an endless loop?".to_owned()
        }
        (ErrorKind::TemplateNotFound, Some(detail)) => format!("{detail} in the state tree"),
        (ErrorKind::InvalidOperation | ErrorKind::UnknownFunction, Some(detail)) => detail,
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if !error.is::<Error>() {
            text.push_str(&format!(": {error}"));
        }
        cause = error.source();
    }
    text
}

/// The remedy, where the kind of the error has one.
pub(super) fn hint(error: &Error) -> String {
    match error.kind() {
        ErrorKind::UndefinedError => {
            "give a default, `{{ x | default('…') }}` or `salt['pillar.get']('a:b', '…')`, or test it with `is defined`"
        }
        ErrorKind::UnknownFilter => "docs/coming-from-salt.md lists the available filters",
        ErrorKind::OutOfFuel => "move large data into the pillar or into files",
        _ => "",
    }
    .to_owned()
}
