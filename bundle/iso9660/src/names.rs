//! The names that files and directories have in the primary view (ECMA-119) and in the Joliet view.
//!
//! Both views allow fewer names than a file system does. A valid name is kept. Any other is
//! changed, with a number if the result is already taken, so that all names in a directory are
//! different.

use std::collections::{HashMap, HashSet};

use super::tree::{Child, Directory};

/// The longest name and extension of a file together, and the longest name of a directory (ECMA-119
/// 7.5.1, 7.6.3).
const LONGEST_FILE: usize = 30;
const LONGEST_DIRECTORY: usize = 31;

/// The longest Joliet name, in UCS-2 units (Joliet, "Relaxation of ISO 9660 restrictions": 128
/// bytes).
pub const LONGEST_JOLIET: usize = 64;

/// The longest extension that is kept when a name is cut; a longer one counts as part of the name.
pub const LONGEST_EXTENSION: usize = 8;

/// Characters that Joliet forbids in names, in addition to control characters.
pub const NOT_IN_JOLIET: &[char] = &['*', '/', ':', ';', '?', '\\'];

/// A view of the image, by the standard for its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// ECMA-119, with Rock Ridge's names in the same records.
    Primary,
    /// Joliet.
    Joliet,
}

/// A name in a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The file identifier in a directory record.
    pub identifier: Vec<u8>,
    /// The sort key of a directory's records (ECMA-119 9.3).
    pub key: Vec<u8>,
    /// The form of the name that is unique within a directory.
    folded: Vec<u8>,
}

/// The names of all entries of a directory, in the order of [`Directory::children`].
pub fn names(view: View, directory: &Directory) -> Vec<Name> {
    let mut taken = HashSet::new();
    // Valid names come first, so that none is taken by another name's changed form.
    let mut made: Vec<Option<Name>> = directory
        .children
        .iter()
        .map(|(name, child)| {
            let parts = Parts::new(view, name, *child);
            parts
                .exact
                .then(|| parts.numbered(None))
                .filter(|name| taken.insert(name.folded.clone()))
        })
        .collect();
    // The number from which the search for a free name continues. Without it, thousands of equal
    // beginnings would take quadratic time.
    let mut next: HashMap<Vec<u8>, u32> = HashMap::new();
    for ((name, child), made) in directory.children.iter().zip(&mut made) {
        if made.is_some() {
            continue;
        }
        let parts = Parts::new(view, name, *child);
        let plain = parts.numbered(None);
        let number = next.entry(plain.folded.clone()).or_insert(0);
        let mut candidate = plain;
        while !taken.insert(candidate.folded.clone()) {
            *number += 1;
            candidate = parts.numbered(Some(*number));
        }
        *made = Some(candidate);
    }
    made.into_iter().flatten().collect()
}

/// A name in the characters that a view allows, before it is cut.
struct Parts {
    view: View,
    directory: bool,
    base: Vec<u16>,
    extension: Vec<u16>,
    /// Set if no character of the name was changed.
    exact: bool,
}

impl Parts {
    fn new(view: View, name: &str, child: Child) -> Self {
        let directory = matches!(child, Child::Directory(_));
        // Names of directories have no extension in ECMA-119; a leading dot never begins one.
        let split = name
            .rsplit_once('.')
            .filter(|(base, extension)| !base.is_empty() && !extension.is_empty())
            .filter(|_| view == View::Joliet || !directory);
        let (base, extension) = split.unwrap_or((name, ""));
        let allowed =
            |text: &str| -> Vec<u16> { text.chars().map(|c| view.character(c)).collect() };
        let (mut base, mut extension) = (allowed(base), allowed(extension));
        let exact = name.encode_utf16().eq(joined(&base, &extension));
        if extension.len() > LONGEST_EXTENSION {
            base = joined(&base, &extension).collect();
            extension.clear();
        }
        if view == View::Primary {
            // Only the dot before the extension is allowed.
            base.iter_mut()
                .filter(|unit| **unit == u16::from(b'.'))
                .for_each(|unit| *unit = u16::from(b'_'));
        }
        let dot = usize::from(view == View::Joliet && !extension.is_empty());
        let exact = exact && base.len() + dot + extension.len() <= view.longest(directory);
        Self {
            view,
            directory,
            base,
            extension,
            exact,
        }
    }

    /// The name, cut so that it fits together with a number.
    fn numbered(&self, number: Option<u32>) -> Name {
        let mark = if self.view == View::Joliet { '~' } else { '_' };
        let suffix: Vec<u16> = number
            .map(|number| format!("{mark}{number}").encode_utf16().collect())
            .unwrap_or_default();
        let dot = usize::from(self.view == View::Joliet && !self.extension.is_empty());
        let room = self.view.longest(self.directory) - self.extension.len() - dot - suffix.len();
        let base = [&self.base[..self.base.len().min(room)], &suffix].concat();
        match self.view {
            View::Joliet => {
                let units: Vec<u16> = joined(&base, &self.extension).collect();
                let bytes = |units: &[u16]| {
                    units
                        .iter()
                        .copied()
                        .flat_map(u16::to_be_bytes)
                        .collect::<Vec<_>>()
                };
                // Windows ignores case, and so does Linux in this view.
                let folded: Vec<u16> = String::from_utf16_lossy(&units)
                    .to_lowercase()
                    .encode_utf16()
                    .collect();
                Name {
                    identifier: bytes(&units),
                    key: bytes(&units),
                    folded: bytes(&folded),
                }
            }
            View::Primary => {
                let (base, extension) = (ascii(&base), ascii(&self.extension));
                // Both parts are compared as if padded with spaces, the least of the allowed
                // characters.
                let key = [&base, b" ".as_slice(), &extension].concat();
                let identifier = if self.directory {
                    base
                } else {
                    [&base, b".".as_slice(), &extension, b";1"].concat()
                };
                Name {
                    identifier,
                    folded: key.clone(),
                    key,
                }
            }
        }
    }
}

impl View {
    fn longest(self, directory: bool) -> usize {
        match (self, directory) {
            (Self::Joliet, _) => LONGEST_JOLIET,
            (Self::Primary, true) => LONGEST_DIRECTORY,
            (Self::Primary, false) => LONGEST_FILE,
        }
    }

    /// The replacement of a character; `_` for one outside UCS-2.
    fn character(self, character: char) -> u16 {
        let allowed = match self {
            Self::Primary if character.is_ascii_alphanumeric() => {
                Some(character.to_ascii_uppercase())
            }
            Self::Primary => None,
            Self::Joliet if character.is_control() || NOT_IN_JOLIET.contains(&character) => None,
            Self::Joliet => Some(character),
        };
        allowed
            .and_then(|c| u16::try_from(u32::from(c)).ok())
            .unwrap_or(u16::from(b'_'))
    }
}

fn joined<'a>(base: &'a [u16], extension: &'a [u16]) -> impl Iterator<Item = u16> + 'a {
    let dot = (!extension.is_empty()).then_some(u16::from(b'.'));
    base.iter()
        .copied()
        .chain(dot)
        .chain(extension.iter().copied())
}

/// The primary view's characters, all of which are ASCII.
fn ascii(units: &[u16]) -> Vec<u8> {
    units
        .iter()
        .map(|unit| u8::try_from(*unit).unwrap_or(b'_'))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn directory(names: impl IntoIterator<Item = (String, bool)>) -> Directory {
        let child = |directory| {
            if directory {
                Child::Directory(0)
            } else {
                Child::File(0)
            }
        };
        let children: BTreeMap<_, _> = names
            .into_iter()
            .map(|(name, directory)| (name, child(directory)))
            .collect();
        Directory {
            parent: 0,
            children,
        }
    }

    fn shown(view: View, all: &[&str]) -> Vec<String> {
        let directory = directory(
            all.iter()
                .map(|name| ((*name).to_owned(), name.ends_with(".d"))),
        );
        names(view, &directory)
            .into_iter()
            .map(|name| match view {
                View::Primary => String::from_utf8(name.identifier).unwrap(),
                View::Joliet => {
                    let units = name
                        .identifier
                        .chunks_exact(2)
                        .map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
                    String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
                }
            })
            .collect()
    }

    #[test]
    fn only_what_must_is_changed() {
        let long = "x".repeat(70);
        // In the order of their bytes, which is also the order of the results.
        let all = [
            "A.TXT",
            "A_B.d",
            "a.txt",
            "a:b",
            "a_b.d",
            "libc6_2.36.deb",
            &long,
            &format!("{long}.deb"),
        ];
        let cut = [long[..64].to_owned(), format!("{}.deb", &long[..60])];
        let expected = [
            "A.TXT",
            "A_B.d",
            "a~1.txt",
            "a_b",
            "a_b~1.d",
            "libc6_2.36.deb",
            &cut[0],
            &cut[1],
        ];
        assert_eq!(shown(View::Joliet, &all), expected);
        let long = long.to_uppercase();
        let cut = [
            format!("{}.;1", &long[..30]),
            format!("{}.DEB;1", &long[..27]),
        ];
        let expected = [
            "A.TXT;1",
            "A_B_D",
            "A_1.TXT;1",
            "A_B.;1",
            "A_B_D_1",
            "LIBC6_2_36.DEB;1",
            &cut[0],
            &cut[1],
        ];
        assert_eq!(shown(View::Primary, &all), expected);
    }

    #[test]
    fn a_changed_name_takes_no_other_names_place() {
        let long = "y".repeat(64);
        let cut = |number: u32| format!("{}~{number}", &long[..62]);
        let all = [
            format!("{long}a"),
            format!("{long}b"),
            format!("{long}c"),
            cut(1),
        ];
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(
            shown(View::Joliet, &all),
            [long.clone(), cut(2), cut(3), cut(1)]
        );
    }

    /// Names of which many have the same changed form.
    const NAMES: &str = "[aAbB.~_1é;😀]{1,8}|[xX.]{28,35}|y{62,66}[.]?[ab]{0,12}";

    proptest! {
        #[test]
        fn all_names_are_different_and_fit(
            all in proptest::collection::btree_map(NAMES, any::<bool>(), 0..60),
        ) {
            let directory = directory(all);
            for view in [View::Primary, View::Joliet] {
                let names = names(view, &directory);
                prop_assert_eq!(names.len(), directory.children.len());
                let different: HashSet<_> = names.iter().map(|name| &name.folded).collect();
                prop_assert_eq!(different.len(), names.len());
                for (Name { identifier, .. }, child) in names.iter().zip(directory.children.values()) {
                    let most = match (view, child) {
                        (View::Joliet, _) => 128,
                        (View::Primary, Child::Directory(_)) => 31,
                        (View::Primary, Child::File(_)) => 33,
                    };
                    prop_assert!(!identifier.is_empty() && identifier.len() <= most, "{:?}", identifier);
                    prop_assert!(!matches!(identifier.as_slice(), [0 | 1]), "{:?}", identifier);
                }
            }
        }
    }
}
