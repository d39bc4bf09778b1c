//! Refusals as gRPC statuses. The text of a status is one header, and a client refuses a response
//! whose headers are too large: then an operator sees a transport error instead of the text.

use halite_core::refusal::{Refusal, RefusalKind};
use halite_errors::cut::MARK;
use halite_proto::tonic::{Code, Status};

/// The most bytes that a text takes in a header. Clients accept 16 KiB of headers.
const MOST: usize = 12_000;
/// The bytes of these for the end of the text, which has the remedy.
const END: usize = 3_000;

/// The gRPC status of a refusal.
pub(super) fn status(refusal: Refusal) -> Status {
    let code = match refusal.kind {
        RefusalKind::Invalid => Code::InvalidArgument,
        RefusalKind::NotFound => Code::NotFound,
        RefusalKind::Denied => Code::PermissionDenied,
        RefusalKind::Conflict => Code::FailedPrecondition,
        RefusalKind::Unavailable => Code::Unavailable,
        RefusalKind::Internal => Code::Internal,
    };
    if code == Code::Internal {
        tracing::error!(reason = refusal.message, "a call failed");
    }
    Status::new(code, fitting(refusal.message))
}

/// The bytes of a character in a header: each byte of most special characters takes three.
fn bytes_of(character: char) -> usize {
    if character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ',' | '/') {
        1
    } else {
        3 * character.len_utf8()
    }
}

/// The number of the first bytes of a text that take at most `most` bytes in a header.
fn fits(text: impl Iterator<Item = char>, most: usize) -> usize {
    let mut left = most;
    text.take_while(|character| {
        let rest = left.checked_sub(bytes_of(*character));
        left = rest.unwrap_or(0);
        rest.is_some()
    })
    .map(char::len_utf8)
    .sum()
}

/// A text as it fits into a header: a longer one loses its middle, and is in the log.
fn fitting(text: String) -> String {
    if fits(text.chars(), MOST) == text.len() {
        return text;
    }
    tracing::warn!(text, "a message to a caller was too long");
    let begin = fits(text.chars(), MOST - END - 200);
    let end = text.len() - fits(text.chars().rev(), END);
    let (begin, end) = (text.get(..begin), text.get(end..));
    format!(
        "{}\n{MARK}: {} bytes in all; `journalctl -u halite-master` has the whole text]\n{}",
        begin.unwrap_or_default(),
        text.len(),
        end.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the headers of a status, as HTTP/2 counts them.
    fn header_bytes(status: Status) -> usize {
        let response = status.into_http::<()>();
        let headers = response.headers().iter();
        headers
            .map(|(name, value)| name.as_str().len() + value.len() + 32)
            .sum()
    }

    #[test]
    fn each_text_fits_into_the_headers_of_a_response() {
        let long = |unit: &str| format!("cannot begin: {}; the remedy", unit.repeat(5000));
        for text in [
            long("worker-17, "),
            long("\n"),
            long("%"),
            long("ä"),
            long("日本 "),
            long("\u{1f600}"),
        ] {
            let status = status(Refusal::invalid(text.clone()));
            let shown = status.message().to_owned();
            assert!(shown.starts_with("cannot begin: "), "{shown}");
            assert!(shown.ends_with("; the remedy"), "{shown}");
            assert!(
                shown.contains(&format!("{} bytes in all", text.len())),
                "{shown}"
            );
            let bytes = header_bytes(status);
            assert!(bytes <= 14_000, "{bytes} bytes of headers");
        }
    }

    #[test]
    fn a_text_that_fits_is_not_changed() {
        let text = format!("{}\n{}", "nothing was sent: ä".repeat(20), "b".repeat(9000));
        let status = status(Refusal::not_found(text.clone()));
        assert_eq!(status.message(), text);
        assert_eq!(status.code(), Code::NotFound);
    }
}
