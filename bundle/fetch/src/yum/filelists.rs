//! `filelists.xml`: every file of every package. It is read only for files that the index of
//! packages omits.

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::error::InvalidIndex;
use super::repomd::{attribute, unescape};

/// The owners of the requested files: paths by the checksum of the package.
pub fn read(
    from: impl BufRead,
    wanted: &BTreeSet<String>,
) -> Result<HashMap<String, Vec<String>>, InvalidIndex> {
    let mut reader = Reader::from_reader(from);
    let (mut buffer, mut text, mut package) = (Vec::new(), String::new(), String::new());
    let (mut found, mut closed) = (HashMap::<String, Vec<String>>::new(), false);
    loop {
        match reader.read_event_into(&mut buffer)? {
            Event::Start(start) => {
                text.clear();
                if start.local_name().as_ref() == "package" {
                    package = attribute(&start, "pkgid")?.unwrap_or_default();
                }
            }
            Event::Text(part) => text.push_str(&part),
            Event::GeneralRef(name) => text.push_str(&unescape(&format!("&{};", &*name))?),
            Event::End(end) => match end.local_name().as_ref() {
                "filelists" => closed = true,
                "file" if wanted.contains(&text) => {
                    found.entry(package.clone()).or_default().push(text.clone());
                }
                _ => {}
            },
            Event::Eof if closed => return Ok(found),
            Event::Eof => return Err(InvalidIndex::CutOff),
            _ => {}
        }
        buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wanted_files_are_kept() {
        let xml = "<filelists><package pkgid=\"aa\" name=\"x\"><version/><file>/a&amp;b</file><file type=\"dir\">/c\
                   </file></package><package pkgid=\"bb\"><file>/d</file></package></filelists>";
        let wanted = ["/a&b", "/c", "/e"].map(str::to_owned).into();
        let found = read(xml.as_bytes(), &wanted).unwrap();
        assert_eq!(
            found,
            HashMap::from([("aa".to_owned(), vec!["/a&b".to_owned(), "/c".to_owned()])])
        );
        assert!(read(&xml.as_bytes()[..60], &wanted).is_err());
    }
}
