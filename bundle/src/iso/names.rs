//! The names that files and directories have in the primary view (ECMA-119) and in the Joliet view.
//!
//! Both know fewer names than a file system does. A name that they can hold is kept as it is; any other is changed, and
//! numbered where the changed one is taken already, so that all names in a directory stay different.

use std::collections::{HashMap, HashSet};

use super::tree::{Child, Directory};

/// The longest name and extension of a file together, and the longest name of a directory (ECMA-119 7.5.1, 7.6.3).
const LONGEST_FILE: usize = 30;
const LONGEST_DIRECTORY: usize = 31;

/// The longest Joliet name, in UCS-2 units (Joliet, "Relaxation of ISO 9660 restrictions": 128 bytes).
const LONGEST_JOLIET: usize = 64;

/// An extension up to this length stays when a name is cut; a longer one is rather a part of the name.
const LONGEST_EXTENSION: usize = 8;

/// What Joliet allows in no name, besides control characters.
const NOT_IN_JOLIET: &[char] = &['*', '/', ':', ';', '?', '\\'];

/// Which names a view has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// ECMA-119, beside which stand Rock Ridge's names.
    Primary,
    /// Joliet.
    Joliet,
}

/// A name in a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The file identifier as it stands in a directory record.
    pub identifier: Vec<u8>,
    /// What the records of a directory are sorted by (ECMA-119 9.3).
    pub key: Vec<u8>,
}

/// The names of all that is in a directory, in the order of [`Directory::children`].
pub fn names(view: View, directory: &Directory) -> Vec<Name> {
    let mut taken = HashSet::new();
    // A name that needs no change must not lose its place to another's changed one.
    let mut made: Vec<Option<Name>> = directory
        .children
        .iter()
        .map(|(name, child)| {
            let parts = Parts::new(view, name, *child);
            parts.exact.then(|| parts.numbered(None)).filter(|name| taken.insert(name.key.clone()))
        })
        .collect();
    // Where the search for a free number goes on, so that thousands of equal beginnings do not take quadratic time.
    let mut next: HashMap<Vec<u8>, u32> = HashMap::new();
    for ((name, child), made) in directory.children.iter().zip(&mut made) {
        if made.is_some() {
            continue;
        }
        let parts = Parts::new(view, name, *child);
        let plain = parts.numbered(None);
        let number = next.entry(plain.key.clone()).or_insert(0);
        let mut candidate = plain;
        while !taken.insert(candidate.key.clone()) {
            *number += 1;
            candidate = parts.numbered(Some(*number));
        }
        *made = Some(candidate);
    }
    made.into_iter().flatten().collect()
}

/// A name as the characters that a view allows, before it is cut.
struct Parts {
    view: View,
    directory: bool,
    base: Vec<u16>,
    extension: Vec<u16>,
    /// Whether it says all that the name says.
    exact: bool,
}

impl Parts {
    fn new(view: View, name: &str, child: Child) -> Self {
        let directory = matches!(child, Child::Directory(_));
        // Names of directories have no extension in ECMA-119; a leading dot starts none anywhere.
        let split = name
            .rsplit_once('.')
            .filter(|(base, extension)| !base.is_empty() && !extension.is_empty())
            .filter(|_| view == View::Joliet || !directory);
        let (base, extension) = split.unwrap_or((name, ""));
        let allowed = |text: &str| -> Vec<u16> { text.chars().map(|c| view.character(c)).collect() };
        let (mut base, mut extension) = (allowed(base), allowed(extension));
        let exact = name.encode_utf16().eq(joined(&base, &extension));
        if extension.len() > LONGEST_EXTENSION {
            base = joined(&base, &extension).collect();
            extension.clear();
        }
        if view == View::Primary {
            // A dot is in no name but before the extension.
            base.iter_mut().filter(|unit| **unit == u16::from(b'.')).for_each(|unit| *unit = u16::from(b'_'));
        }
        let dot = usize::from(view == View::Joliet && !extension.is_empty());
        let exact = exact && base.len() + dot + extension.len() <= view.longest(directory);
        Self { view, directory, base, extension, exact }
    }

    /// The name, cut so that it fits together with a number.
    fn numbered(&self, number: Option<u32>) -> Name {
        let mark = if self.view == View::Joliet { '~' } else { '_' };
        let suffix: Vec<u16> =
            number.map(|number| format!("{mark}{number}").encode_utf16().collect()).unwrap_or_default();
        let dot = usize::from(self.view == View::Joliet && !self.extension.is_empty());
        let room = self.view.longest(self.directory) - self.extension.len() - dot - suffix.len();
        let base = [&self.base[..self.base.len().min(room)], &suffix].concat();
        match self.view {
            View::Joliet => {
                let identifier: Vec<u8> = joined(&base, &self.extension).flat_map(u16::to_be_bytes).collect();
                Name { key: identifier.clone(), identifier }
            }
            View::Primary => {
                let (base, extension) = (ascii(&base), ascii(&self.extension));
                // Both parts are compared as if filled up with spaces, and no other character is less.
                let key = [&base, b" ".as_slice(), &extension].concat();
                let identifier =
                    if self.directory { base } else { [&base, b".".as_slice(), &extension, b";1"].concat() };
                Name { identifier, key }
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

    /// The character that stands for another; one outside UCS-2 has no other than `_`.
    fn character(self, character: char) -> u16 {
        let allowed = match self {
            Self::Primary if character.is_ascii_alphanumeric() => Some(character.to_ascii_uppercase()),
            Self::Primary => None,
            Self::Joliet if character.is_control() || NOT_IN_JOLIET.contains(&character) => None,
            Self::Joliet => Some(character),
        };
        allowed.and_then(|c| u16::try_from(u32::from(c)).ok()).unwrap_or(u16::from(b'_'))
    }
}

fn joined<'a>(base: &'a [u16], extension: &'a [u16]) -> impl Iterator<Item = u16> + 'a {
    let dot = (!extension.is_empty()).then_some(u16::from(b'.'));
    base.iter().copied().chain(dot).chain(extension.iter().copied())
}

/// The primary view's characters, all of which are ASCII.
fn ascii(units: &[u16]) -> Vec<u8> {
    units.iter().map(|unit| u8::try_from(*unit).unwrap_or(b'_')).collect()
}
