//! Names that are the same in every view of an image.
//!
//! The writer accepts any name; one that Joliet does not allow is changed and numbered. `7z` and
//! Windows extract files under their Joliet names, so an extracted bundle with a changed name would
//! not match its manifest. A bundle therefore has only names that need no change.

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::digest;

use super::names::{LONGEST_EXTENSION, LONGEST_JOLIET, NOT_IN_JOLIET};

/// The longest path that a Joliet reader must support, in UCS-2 units (Joliet, as implemented in
/// libisofs).
const LONGEST_PATH: usize = 240;

/// Number of digits of the hash that keeps a shortened name unique.
const DIGITS: usize = 12;

/// The paths that would differ between the views of an image, each with the reason.
pub fn problems<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    // The path up to each name, without case, with its first spelling.
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for path in paths {
        let units = path.encode_utf16().count();
        if units > LONGEST_PATH {
            found.push(format!(
                "{path}: the path has {units} characters, and Joliet allows {LONGEST_PATH}"
            ));
        }
        let ends = path
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([path.len()]);
        let mut begin = 0;
        for end in ends {
            let (name, until) = (&path[begin..end], &path[..end]);
            begin = end + 1;
            match seen.get(until.to_lowercase().as_str()) {
                Some(first) if *first == until || !told.insert(until) => continue,
                Some(first) => found.push(format!(
                    "{until}: {first} exists too, and Joliet ignores case"
                )),
                None => drop(seen.insert(until.to_lowercase(), until)),
            }
            found.extend(wrong(name).map(|why| format!("{until}: {why}")));
        }
    }
    found
}

fn wrong(name: &str) -> Option<String> {
    let units = name.encode_utf16().count();
    let strange = |c: &char| c.is_control() || NOT_IN_JOLIET.contains(c) || u32::from(*c) > 0xffff;
    if units > LONGEST_JOLIET {
        return Some(format!(
            "the name has {units} characters, and Joliet allows {LONGEST_JOLIET}"
        ));
    }
    if let Some(character) = name.chars().find(strange) {
        return Some(format!("Joliet allows no {character:?} in a name"));
    }
    name.ends_with(['.', ' '])
        .then(|| "Windows and 7z support no name that ends like this".to_owned())
}

/// A file name that is valid in every view, for files that are found only through an index: a name
/// that is too long is cut, and the removed part is hashed.
#[must_use]
pub fn fit(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if NOT_IN_JOLIET.contains(&c) { '_' } else { c })
        .collect();
    if name.encode_utf16().count() <= LONGEST_JOLIET {
        return name;
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let extension = if extension.len() <= LONGEST_EXTENSION {
        extension
    } else {
        ""
    };
    let end = format!(
        "_{}.{extension}",
        &digest::sha256(name.as_bytes())[..DIGITS]
    );
    let end = end.trim_end_matches('.');
    let base: String = name.chars().take(LONGEST_JOLIET - end.len()).collect();
    base + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_that_would_change_is_named_once() {
        let (long, deep) = ("x".repeat(65), "directory/".repeat(24));
        let fits = [
            "y".repeat(64),
            "é".repeat(64),
            "a/b".to_owned(),
            "a/c".to_owned(),
            "~1 (2)+%.d".to_owned(),
        ];
        assert_eq!(problems(fits.iter().map(String::as_str)), [""; 0]);
        let wrong = [
            "A/x", "a/y", "a/z", "b/N", "b/n", "s/a:b", "s/a*b", "s/a;b", "s/a?b", "s/a\\b",
            "s/a\tb", "s/😀", "s/dot.", &long, &deep,
        ];
        let found = problems(wrong);
        for expected in [
            "a: A exists too, and Joliet ignores case",
            "b/n: b/N exists too",
            "s/a:b: Joliet allows no ':' in a name",
            "s/a*b: Joliet allows no '*'",
            "s/a;b: ",
            "s/a?b: ",
            "s/a\\b: ",
            "s/a\tb: Joliet allows no '\\t'",
            "s/😀: ",
            "s/dot.: Windows and 7z",
            "the name has 65 characters, and Joliet allows 64",
        ] {
            assert_eq!(
                found.iter().filter(|line| line.contains(expected)).count(),
                1,
                "{expected}: {found:#?}"
            );
        }
        let deep = "the path has 240 characters";
        assert!(!found.iter().any(|line| line.contains(deep)), "{found:#?}");
        assert!(
            problems([format!("{}f", "directory/".repeat(24)).as_str()])[0]
                .contains("has 241 characters")
        );
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_stays_different() {
        assert_eq!(
            fit("libc6_2.36-9+deb12u14_amd64.deb"),
            "libc6_2.36-9+deb12u14_amd64.deb"
        );
        assert_eq!(fit("a_1:2_all.deb"), "a_1_2_all.deb");
        let name = |end: &str| format!("python3-{}_1.0~git{end}_all.deb", "long-".repeat(12));
        let (one, two) = (fit(&name("1")), fit(&name("2")));
        assert_ne!(one, two);
        assert!(
            one.starts_with("python3-long-") && one.ends_with(".deb"),
            "{one}"
        );
        assert_eq!((problems([one.as_str()]), one.len()), (vec![], 64));
    }
}
