//! Lists in pages: a client may ask for at most `n` names, those after `last`
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-tags>).
//!
//! nginx cannot cut a list, so each possible page is generated beforehand. A page may be shorter
//! than `n` if it links to the next one, so a few sizes suffice: `n` is rounded down to one of
//! [`SIZES`].

use std::collections::BTreeSet;

/// The largest number of names on a page, by the number of digits of `n`.
pub const SIZES: [usize; 3] = [1, 10, 100];

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// One of [`SIZES`]; empty for the whole rest of the list; `0` for an empty page, which `n=0`
    /// requests.
    pub size: String,
    /// The name after which the page begins, escaped or not; empty for the beginning.
    pub last: String,
    /// The names on it.
    pub names: Vec<&'a str>,
    /// The name after which the next page begins, if there is one.
    pub next: Option<&'a str>,
}

/// Every page of a list.
pub fn pages(names: &BTreeSet<String>) -> Vec<Page<'_>> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pages = Vec::new();
    for begin in 0..=names.len() {
        let last = begin.checked_sub(1).and_then(|before| names.get(before));
        let rest = names.get(begin..).unwrap_or_default();
        for last in super::spellings(last.unwrap_or(&"")) {
            let mut page = |size: String, count: usize| {
                let names: Vec<&str> = rest.iter().take(count).copied().collect();
                let next = names.last().copied().filter(|_| names.len() < rest.len());
                pages.push(Page {
                    size,
                    last: last.clone(),
                    names,
                    next,
                });
            };
            page(String::new(), rest.len());
            page("0".to_owned(), 0);
            for size in SIZES {
                page(size.to_string(), size);
            }
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_follows_the_links_sees_every_name_once() {
        let names: BTreeSet<String> = (0..137).map(|n| format!("r:5/name-{n:03}")).collect();
        let pages = pages(&names);
        for size in ["", "1", "10", "100"] {
            let (mut seen, mut last, mut requests) = (Vec::<&str>::new(), Some(""), 0);
            while let Some(after) = last {
                let page = pages
                    .iter()
                    .find(|page| page.size == size && page.last == after)
                    .unwrap();
                assert!(page.names.len() <= size.parse().unwrap_or(usize::MAX));
                seen.extend(&page.names);
                last = page.next;
                requests += 1;
            }
            assert!(seen.iter().eq(names.iter()), "{size}");
            assert_eq!(
                requests,
                match size {
                    "" => 1,
                    "1" => 137,
                    "10" => 14,
                    _ => 2,
                }
            );
        }
        let none = pages
            .iter()
            .filter(|page| page.size == "0")
            .collect::<Vec<_>>();
        assert!(
            none.iter()
                .all(|page| page.names.is_empty() && page.next.is_none())
        );
        // Some clients escape the argument.
        assert!(pages.iter().any(|page| page.last == "r%3A5%2Fname-007"));
    }
}
