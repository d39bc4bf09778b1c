//! Names of images in containerd.

use super::{Failure, failure};

/// The name under which containerd's CRI stores and finds an image. It drops the tag of
/// `NAME:TAG@sha256:…` (`ParseDockerRef` in `internal/cri/server/images`), so the kubelet would
/// pull an image again that is stored under another name, and not pin it. A reference without a
/// digest is its own name.
///
/// # Errors
/// The digest is not a SHA-256: containerd would treat the text as a tag, which a server may point
/// anywhere.
pub(super) fn stored(reference: &str) -> Result<String, Failure> {
    let Some((tagged, digest)) = reference.split_once('@') else {
        return Ok(reference.to_owned());
    };
    let digits = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 64 || !digits.bytes().all(is_digit) {
        return Err(failure(format!(
            "cannot use the image {reference}: {digest:?} is not a SHA-256 digest"
        )));
    }
    // The colon of a port is before the last slash.
    let repository = match tagged.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => tagged,
    };
    Ok(format!("{repository}@{digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_stores_an_image_with_a_digest_without_its_tag() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (reference, name) in [
            ("a.b/c/d:1", "a.b/c/d:1".to_owned()),
            ("a.b:5000/c", "a.b:5000/c".to_owned()),
            (&format!("a.b/c:1@{digest}"), format!("a.b/c@{digest}")),
            (
                &format!("a.b:5000/c:1@{digest}"),
                format!("a.b:5000/c@{digest}"),
            ),
            (
                &format!("a.b:5000/c@{digest}"),
                format!("a.b:5000/c@{digest}"),
            ),
        ] {
            assert_eq!(stored(reference).unwrap(), name);
        }
    }

    #[test]
    fn an_invalid_digest_is_refused() {
        for digest in [
            "",
            "sha256:",
            "sha256:0a",
            &format!("sha512:{}", "0".repeat(64)),
            &format!("sha256:{}", "A".repeat(64)),
            &format!("sha256:{}@sha256:{}", "0".repeat(64), "1".repeat(64)),
        ] {
            let refused = stored(&format!("a.b/c:1@{digest}")).unwrap_err();
            assert!(
                refused.to_string().contains("is not a SHA-256 digest"),
                "{refused}"
            );
        }
    }
}
