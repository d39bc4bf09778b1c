//! RFC 1123 subdomains: the form that Kubernetes requires for names of nodes.

use crate::REPEATED;

/// Longest name.
pub const NAME_MAX: usize = 253;
/// Longest part of a name between dots.
pub const LABEL_MAX: usize = 63;

/// The rule that a text breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misnomer {
    /// A part before, between or after dots is empty.
    #[error("a part of it is empty")]
    EmptyPart,
    /// A part between dots is too long; its length in bytes.
    #[error("a part has {0} characters")]
    LongPart(usize),
    /// A character that is not allowed in names.
    #[error("it has the character {0:?}")]
    Character(char),
    /// A part between dots begins or ends with a hyphen.
    #[error("a part begins or ends with `-`")]
    Hyphen,
    /// The name is too long; its length in bytes.
    #[error("it has {0} characters")]
    Long(usize),
}

/// A text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a usable name: lower-case letters, digits, `-` and `.`, each part between dots begins and ends \
     with a letter or digit and has at most {LABEL_MAX} characters, {NAME_MAX} in all"
)]
pub struct NameError {
    /// The beginning of the text.
    pub name: String,
    /// The rule that it breaks. The message lists all rules.
    pub misnomer: Misnomer,
}

/// Checks that a text is an RFC 1123 subdomain.
///
/// # Errors
/// The first rule that it breaks.
pub fn check_subdomain(text: &str) -> Result<(), NameError> {
    let broken = text.split('.').find_map(misnomer).or_else(|| {
        let length = text.len();
        (length > NAME_MAX).then_some(Misnomer::Long(length))
    });
    match broken {
        None => Ok(()),
        Some(misnomer) => Err(NameError {
            name: text.chars().take(REPEATED).collect(),
            misnomer,
        }),
    }
}

fn misnomer(part: &str) -> Option<Misnomer> {
    let is_allowed = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    if part.is_empty() {
        return Some(Misnomer::EmptyPart);
    }
    if part.len() > LABEL_MAX {
        return Some(Misnomer::LongPart(part.len()));
    }
    if let Some(bad) = part.chars().find(|c| !is_allowed(c)) {
        return Some(Misnomer::Character(bad));
    }
    (part.starts_with('-') || part.ends_with('-')).then_some(Misnomer::Hyphen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_form_of_rfc_1123() {
        for name in ["0", "a", "worker-1", "worker-1.example", "a--b"] {
            assert_eq!(check_subdomain(name), Ok(()), "{name}");
        }
        for (text, misnomer) in [
            ("", Misnomer::EmptyPart),
            (".", Misnomer::EmptyPart),
            ("..", Misnomer::EmptyPart),
            ("a..b", Misnomer::EmptyPart),
            ("a.", Misnomer::EmptyPart),
            ("Worker", Misnomer::Character('W')),
            ("a b", Misnomer::Character(' ')),
            ("a_b", Misnomer::Character('_')),
            ("a\n", Misnomer::Character('\n')),
            ("é", Misnomer::Character('é')),
            ("../x", Misnomer::EmptyPart),
            ("a/x", Misnomer::Character('/')),
            ("-a", Misnomer::Hyphen),
            ("a-.b", Misnomer::Hyphen),
        ] {
            let error = check_subdomain(text).unwrap_err();
            assert_eq!(error.misnomer, misnomer, "{text:?}");
            assert!(error.to_string().contains("lower-case letters"), "{error}");
        }
    }

    #[test]
    fn names_have_the_limits_of_node_names() {
        let longest = [63, 63, 63, 61].map(|length| "a".repeat(length)).join(".");
        assert_eq!(longest.len(), 253);
        assert!(check_subdomain(&longest).is_ok());
        let long = check_subdomain(&format!("{longest}a")).unwrap_err();
        assert_eq!(long.misnomer, Misnomer::Long(254));
        let part = check_subdomain(&"a".repeat(64)).unwrap_err();
        assert_eq!(part.misnomer, Misnomer::LongPart(64));
        let hostile = check_subdomain(&"X".repeat(1 << 20)).unwrap_err();
        assert!(hostile.to_string().len() < 300);
    }
}
