//! `/etc/fstab` as text: entries are edited in place, everything else stays unchanged.

use std::collections::BTreeSet;

use super::lines::EditedLines;
use super::replace::rewritten;
use crate::host::effect::Effect;
use crate::host::{Host, HostResult};

const FSTAB: &str = "/etc/fstab";
/// Options of which the last one counts (mount(8)).
const OPPOSITES: [&[&str]; 4] = [
    &["ro", "rw"],
    &["sync", "async"],
    &["soft", "hard"],
    &["atime", "noatime", "relatime", "strictatime"],
];
/// Options that imply others, which later ones override.
const IMPLYING: &[&str] = &["defaults", "user", "users", "owner", "group"];
/// The prefix of each line that Halite has switched off.
const OFF: &str = "# halite: ";

/// The file.
pub(super) struct Fstab {
    content: Vec<u8>,
    text: String,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub device: String,
    pub path: String,
    pub fstype: String,
    pub options: String,
    pub dump: i64,
    pub pass: i64,
}

impl Line {
    /// Reads an entry; `None` for comments and blank lines. See fstab(5).
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace().map(unescape);
        let device = fields.next().filter(|device| !device.starts_with('#'))?;
        let path = fields.next()?;
        let fstype = fields.next()?;
        let options = fields.next().unwrap_or_else(|| "defaults".to_owned());
        let mut number = || {
            fields
                .next()
                .and_then(|field| field.parse().ok())
                .unwrap_or(0)
        };
        Some(Self {
            device,
            path,
            fstype,
            options,
            dump: number(),
            pass: number(),
        })
    }

    /// Tests whether two entries mount the same in the same way: their options may be in another
    /// order, unless one of them overrides another.
    fn means(&self, other: &Self) -> bool {
        let sorted = |line: &Self| {
            let mut options: Vec<String> = line.options.split(',').map(str::to_owned).collect();
            options.sort();
            options
        };
        let options = sorted(self);
        let overrides = |option: &String| {
            let opposite = option.strip_prefix("no").unwrap_or_default();
            options.iter().any(|other| other == opposite)
        };
        let key = |option: &String| option.split('=').next().unwrap_or_default().to_owned();
        let keys: BTreeSet<String> = options.iter().map(key).collect();
        let count = |names: &[&str]| names.iter().filter(|name| keys.contains(**name)).count();
        let in_order = keys.len() < options.len()
            || options.iter().any(overrides)
            || OPPOSITES.iter().any(|names| count(names) > 1)
            || count(IMPLYING) > 0 && options.len() > 1;
        let same_options = if in_order {
            self.options == other.options
        } else {
            options == sorted(other)
        };
        let options = String::new();
        let rest = |line: &Self| Self {
            options: options.clone(),
            ..line.clone()
        };
        same_options && rest(self) == rest(other)
    }

    fn written(&self) -> String {
        let [device, path, fstype, options] =
            [&self.device, &self.path, &self.fstype, &self.options].map(|field| escape(field));
        format!(
            "{device}\t{path}\t{fstype}\t{options}\t{} {}",
            self.dump, self.pass
        )
    }
}

/// Blanks in fields are written in octal.
fn escape(field: &str) -> String {
    field
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
}

fn unescape(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

impl Fstab {
    pub async fn read(host: &dyn Host) -> HostResult<Self> {
        let content = host.read(FSTAB).await?.unwrap_or_default();
        Ok(Self::new(content))
    }

    fn new(content: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&content).into_owned();
        Self { content, text }
    }

    /// The entries.
    pub fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.text.lines().filter_map(Line::parse)
    }

    /// Makes `wanted` the entry of its mount point.
    pub fn set(&self, wanted: &Line) -> HostResult<Option<Effect>> {
        let mut found = self.lines().filter(|line| line.path == wanted.path);
        if let (Some(line), None) = (found.next(), found.next())
            && line.means(wanted)
        {
            return Ok(None);
        }
        let mut done = false;
        let mut new = self.edited(|line, text| {
            if line.path != wanted.path {
                return Some(text.to_owned());
            }
            (!std::mem::replace(&mut done, true)).then(|| wanted.written())
        });
        if !done {
            new.push(wanted.written());
        }
        self.write(&new).map(Some)
    }

    /// Removes the entries of a mount point.
    pub fn remove(&self, path: &str) -> HostResult<Option<Effect>> {
        if !self.lines().any(|line| line.path == path) {
            return Ok(None);
        }
        let new = self.edited(|line, text| (line.path != path).then(|| text.to_owned()));
        self.write(&new).map(Some)
    }

    /// Comments out the lines that `which` selects.
    pub fn comment_out(&self, which: impl Fn(&Line) -> bool) -> HostResult<Option<Effect>> {
        if !self.lines().any(|line| which(&line)) {
            return Ok(None);
        }
        let new = self.edited(|line, text| {
            Some(if which(&line) {
                format!("{OFF}{text}")
            } else {
                text.to_owned()
            })
        });
        self.write(&new).map(Some)
    }

    fn edited(&self, mut edit: impl FnMut(Line, &str) -> Option<String>) -> EditedLines<'_> {
        let mut new = EditedLines::read(&self.text);
        new.retain_mut(|text| {
            let Some(line) = Line::parse(text) else {
                return true;
            };
            match edit(line, text) {
                Some(kept) => {
                    *text = kept;
                    true
                }
                None => false,
            }
        });
        new
    }

    fn write(&self, text: &EditedLines<'_>) -> HostResult<Effect> {
        rewritten(FSTAB, &self.content, text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_edited_and_the_rest_stays() {
        let fstab =
            Fstab::new(b"# root\n/dev/a / ext4 rw 0 1\n\n/dev/s none swap sw 0 0\n".to_vec());
        assert_eq!(fstab.lines().count(), 2);
        let line = Line {
            device: "/dev/x".into(),
            path: "/m y".into(),
            fstype: "xfs".into(),
            options: "defaults".into(),
            dump: 0,
            pass: 2,
        };
        let Some(Effect::Write { content, .. }) = fstab.set(&line).unwrap() else {
            panic!("no effect")
        };
        let text = String::from_utf8(content.clone()).unwrap();
        assert!(
            text.ends_with("sw 0 0\n/dev/x\t/m\\040y\txfs\tdefaults\t0 2\n"),
            "{text}"
        );
        assert!(Fstab::new(content).set(&line).unwrap().is_none());
        for (one, other, same) in [
            ("noatime,nodev", "nodev,noatime", true),
            ("noatime,nodev", "nodev", false),
            ("ro,rw", "rw,ro", false),
            ("atime,noatime", "noatime,atime", false),
            ("ro,defaults", "defaults,ro", false),
        ] {
            let with = |options: &str| Line {
                options: options.to_owned(),
                ..line.clone()
            };
            assert_eq!(with(one).means(&with(other)), same, "{one} {other}");
        }
        let off = fstab.comment_out(|l| l.fstype == "swap").unwrap();
        let Some(Effect::Write { content, .. }) = off else {
            panic!("no effect")
        };
        assert!(
            String::from_utf8(content)
                .unwrap()
                .ends_with("\n# halite: /dev/s none swap sw 0 0\n")
        );
        assert!(fstab.remove("/nowhere").unwrap().is_none());
        assert!(fstab.comment_out(|_| false).unwrap().is_none());
    }
}
