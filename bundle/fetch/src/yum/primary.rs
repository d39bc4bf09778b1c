//! `primary.xml`, read as a stream: a distribution's file has hundreds of megabytes.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::error::InvalidIndex;
use super::repomd::{attribute, checksum, inside, unescape};
use super::{Flag, Need, Package, Version};
use crate::names;

/// A package that is being parsed.
#[derive(Default)]
struct Draft {
    name: String,
    architecture: String,
    version: Version,
    checksum: (String, String),
    size: Option<u64>,
    href: String,
    licence: String,
    requires: Vec<Need>,
    provides: Vec<Need>,
    conflicts: Vec<Need>,
    obsoletes: Vec<Need>,
    files: Vec<String>,
}

/// The list to which the entries belong.
#[derive(Clone, Copy)]
enum List {
    Requires,
    Provides,
    Conflicts,
    Obsoletes,
}

/// Reads all packages and passes each to `each`.
pub fn read(
    from: impl BufRead,
    base: &str,
    mut each: impl FnMut(Package),
) -> Result<(), InvalidIndex> {
    let mut reader = Reader::from_reader(from);
    let (mut buffer, mut text) = (Vec::new(), String::new());
    let (mut draft, mut list) = (Draft::default(), None);
    let (mut announced, mut count, mut closed) = (None, 0_u64, false);
    loop {
        match reader.read_event_into(&mut buffer)? {
            Event::Start(start) => {
                text.clear();
                match start.local_name().as_ref() {
                    "metadata" => {
                        announced =
                            attribute(&start, "packages")?.and_then(|text| text.parse().ok())
                    }
                    "package" => draft = Draft::default(),
                    "requires" => list = Some(List::Requires),
                    "provides" => list = Some(List::Provides),
                    "conflicts" => list = Some(List::Conflicts),
                    "obsoletes" => list = Some(List::Obsoletes),
                    _ => draft.start(&start, list)?,
                }
            }
            Event::Empty(start) => draft.start(&start, list)?,
            Event::Text(part) => text.push_str(&part),
            Event::GeneralRef(name) => {
                text.push_str(&unescape(&format!("&{};", &*name))?);
            }
            Event::End(end) => match end.local_name().as_ref() {
                "metadata" => closed = true,
                "package" => {
                    let draft = std::mem::take(&mut draft);
                    let name = draft.name.clone();
                    each(draft.done(base).map_err(|error| InvalidIndex::Package {
                        name,
                        source: Box::new(error),
                    })?);
                    count += 1;
                }
                "requires" | "provides" | "conflicts" | "obsoletes" => list = None,
                "name" => draft.name = text.trim().to_owned(),
                "arch" => draft.architecture = text.trim().to_owned(),
                "checksum" => draft.checksum.1 = text.trim().to_owned(),
                "license" => draft.licence = text.trim().to_owned(),
                "file" => draft.files.push(text.clone()),
                _ => {}
            },
            Event::Eof if closed && announced.is_none_or(|announced| announced == count) => {
                return Ok(());
            }
            Event::Eof => {
                return Err(InvalidIndex::Count {
                    found: count,
                    announced: announced.unwrap_or(0),
                });
            }
            _ => {}
        }
        buffer.clear();
    }
}

impl Draft {
    fn start(&mut self, start: &BytesStart, list: Option<List>) -> Result<(), InvalidIndex> {
        match start.local_name().as_ref() {
            "version" => {
                self.version = version(start)?;
                // The version of a bound is not checked: it can be an unexpanded macro, for
                // example.
                if let Some(epoch) = attribute(start, "epoch")? {
                    epoch
                        .parse::<u64>()
                        .map_err(|_| InvalidIndex::Epoch(epoch.clone()))?;
                }
            }
            "checksum" => self.checksum.0 = attribute(start, "type")?.unwrap_or_default(),
            "size" => self.size = attribute(start, "package")?.and_then(|text| text.parse().ok()),
            "location" => self.href = attribute(start, "href")?.unwrap_or_default(),
            "entry" => {
                let need = need(start)?;
                match list {
                    Some(List::Requires) => self.requires.push(need),
                    Some(List::Provides) => self.provides.push(need),
                    Some(List::Conflicts) => self.conflicts.push(need),
                    Some(List::Obsoletes) => self.obsoletes.push(need),
                    // Recommended packages are ignored.
                    None => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn done(self, base: &str) -> Result<Package, InvalidIndex> {
        let href = inside(&self.href)?;
        names::check("name", &self.name, names::NAME)?;
        names::check("version", &self.version.version, names::RPM_VERSION)?;
        names::check("release", &self.version.release, names::RPM_VERSION)?;
        names::check("architecture", &self.architecture, names::NAME)?;
        Ok(Package {
            digest: checksum(&self.checksum.0, &self.checksum.1)?,
            size: self.size.ok_or(InvalidIndex::NoSize)?,
            url: format!(
                "{base}{}",
                href.replace('%', "%25")
                    .replace('#', "%23")
                    .replace('?', "%3F")
            ),
            name: self.name,
            version: self.version,
            architecture: self.architecture,
            licence: self.licence,
            requires: self.requires,
            provides: self.provides,
            conflicts: self.conflicts,
            obsoletes: self.obsoletes,
            files: self.files,
        })
    }
}

fn version(start: &BytesStart) -> Result<Version, InvalidIndex> {
    let epoch = attribute(start, "epoch")?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let (version, release) = (attribute(start, "ver")?, attribute(start, "rel")?);
    Ok(Version {
        epoch,
        version: version.unwrap_or_default(),
        release: release.unwrap_or_default(),
    })
}

fn need(start: &BytesStart) -> Result<Need, InvalidIndex> {
    let flag = match attribute(start, "flags")?.as_deref() {
        None => None,
        Some("LT") => Some(Flag::Lt),
        Some("LE") => Some(Flag::Le),
        Some("EQ") => Some(Flag::Eq),
        Some("GE") => Some(Flag::Ge),
        Some("GT") => Some(Flag::Gt),
        Some(other) => return Err(InvalidIndex::Flag(other.to_owned())),
    };
    let bound = flag
        .map(|flag| version(start).map(|version| (flag, version)))
        .transpose()?;
    Ok(Need {
        name: attribute(start, "name")?.unwrap_or_default(),
        version: bound,
    })
}

#[cfg(test)]
mod tests {
    use halite_errors::chain;

    use super::*;

    fn xml(package: &str, count: u32) -> String {
        format!(
            "<?xml version=\"1.0\"?><metadata xmlns=\"c\" xmlns:rpm=\"r\" \
             packages=\"{count}\">{package}</metadata>"
        )
    }

    fn package(href: &str, kind: &str) -> String {
        let digest = "a".repeat(64);
        format!(
            r#"<package type="rpm">
  <name>a</name>
  <arch>x86_64</arch>
  <version epoch="1" ver="2" rel="3"/>
  <checksum type="{kind}" pkgid="YES">{digest}</checksum>
  <size package="9" installed="10" archive="11"/>
  <location href="{href}"/>
  <format>
    <rpm:license>MIT</rpm:license>
    <rpm:requires><rpm:entry name="x(a&lt;b)" flags="GE" epoch="0" ver="1"/></rpm:requires>
    <rpm:recommends><rpm:entry name="no"/></rpm:recommends>
    <file>/usr/bin/a&amp;b</file>
  </format>
</package>"#
        )
    }

    #[test]
    fn packages_are_read() {
        let mut found = Vec::new();
        read(
            xml(&package("p/a.rpm", "sha256"), 1).as_bytes(),
            "b/",
            |package| found.push(package),
        )
        .unwrap();
        let a = &found[0];
        assert_eq!(
            (a.name.as_str(), a.size, a.url.as_str(), a.licence.as_str()),
            ("a", 9, "b/p/a.rpm", "MIT")
        );
        assert_eq!(a.version.to_string(), "1:2-3");
        assert_eq!(
            (a.requires.len(), a.requires[0].name.as_str()),
            (1, "x(a<b)")
        );
        assert_eq!(a.requires[0].version.as_ref().unwrap().0, Flag::Ge);
        assert_eq!(a.files, ["/usr/bin/a&b"]);
    }

    #[test]
    fn what_is_not_whole_or_not_safe_is_refused() {
        let whole = xml(&package("p/a.rpm", "sha256"), 1);
        for (text, why) in [
            (xml(&package("p/a.rpm", "sha256"), 2), "it is incomplete"),
            (whole[..whole.len() - 12].to_owned(), ""),
            (
                xml(&package("../a.rpm", "sha256"), 1),
                "outside the repository",
            ),
            (xml(&package("a.rpm", "sha"), 1), "only sha256 is accepted"),
        ] {
            let error = chain(&read(text.as_bytes(), "b/", |_| ()).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_would_lead_elsewhere_as_a_name_is_refused() {
        let whole = xml(&package("p/a.rpm", "sha256"), 1);
        for (part, wrong) in [
            ("<name>a<", "<name>../a<"),
            ("<name>a<", "<name>.a<"),
            ("<name>a<", "<name>a b<"),
            ("<name>a<", "<name>a&#1;<"),
            ("<name>a<", "<name><"),
            ("ver=\"2\"", "ver=\"1/../../../../home/b/x\""),
            ("ver=\"2\"", "ver=\"1-1\""),
            ("ver=\"2\"", ""),
            ("rel=\"3\"", "rel=\"3/x\""),
            ("epoch=\"1\"", "epoch=\"1/x\""),
            ("<arch>x86_64", "<arch>x/../y"),
        ] {
            let text = whole.replacen(part, wrong, 1);
            let error = chain(&read(text.as_bytes(), "b/", |_| ()).unwrap_err());
            assert!(error.contains("cannot be the"), "{wrong}: {error}");
        }
    }
}
