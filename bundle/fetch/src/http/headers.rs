//! Values of headers.

use ureq::Body;
use ureq::http::{HeaderMap, Response, header};

/// A header that is text.
pub(super) fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// How many bytes the answer will bring.
pub(super) fn length(response: &Response<Body>) -> Option<u64> {
    text(response.headers(), header::CONTENT_LENGTH)?
        .parse()
        .ok()
}
