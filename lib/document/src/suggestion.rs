//! Suggestions for misspelt words.

use strsim::osa_distance;

/// The candidate nearest to a misspelt word by edit distance; `None` if none is near enough.
#[must_use]
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *candidate != word)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_near() {
        assert_eq!(
            did_you_mean("contentz", ["contents", "context"]),
            Some("contents")
        );
        assert_eq!(
            did_you_mean("managde", ["managed", "absent"]),
            Some("managed")
        );
        assert_eq!(did_you_mean("xyz", ["managed", "absent"]), None);
    }
}
