//! Images that this crate writes and reads.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};

use halite_errors::chain;
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile, Volume, write};
use halite_iso9660::{Error, SECTOR};

use crate::made::{Files, Made, assert_same, bytes, read, sources, tree, try_write, volume, zoo};

#[test]
fn everything_is_read_back() {
    let files = zoo();
    let made = Made::new(&files);
    let image = IsoImage::open(&made.image()).unwrap();
    assert_eq!(image.id(), "HALITE_1_36");
    assert_eq!(image.size(), fs::metadata(made.image()).unwrap().len());
    assert!(image.size().is_multiple_of(SECTOR));
    assert_same(&read(&image), &files);
}

#[test]
fn what_the_writer_says_is_where_it_lies() {
    let files = zoo();
    let made = Made::new(&files);
    let bytes = fs::read(made.image()).unwrap();
    let image = IsoImage::open(&made.image()).unwrap();
    assert_eq!(made.placed.len(), files.len());
    for (placed, entry) in made.placed.iter().zip(image.entries()) {
        assert_eq!(
            (&placed.path, placed.offset, placed.size),
            (&entry.path, entry.offset, entry.size)
        );
        let (from, to) = (
            placed.offset as usize,
            (placed.offset + placed.size) as usize,
        );
        assert!(bytes[from..to] == files[&placed.path].1, "{}", placed.path);
        assert!(placed.offset.is_multiple_of(SECTOR));
    }
    let empty = made
        .placed
        .iter()
        .find(|placed| placed.path == "sizes/0")
        .unwrap();
    assert_eq!((empty.offset, empty.size), (0, 0));
}

#[test]
fn a_reader_goes_anywhere_in_a_file_and_not_beyond() {
    let made = Made::new(&zoo());
    let image = IsoImage::open(&made.image()).unwrap();
    let mut reader = image.reader("sizes/4097").unwrap();
    let mut rest = Vec::new();
    assert_eq!(reader.seek(SeekFrom::End(-3)).unwrap(), 4094);
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, bytes(4097)[4094..]);
    assert_eq!(reader.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(1)).is_err());
    let error = image
        .reader("sizes/5")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("there is no file sizes/5 in this image"),
        "{error}"
    );
}

#[test]
fn the_same_files_make_the_same_bytes() {
    let files = zoo();
    let first = fs::read(Made::new(&files).image()).unwrap();
    // Again, from files instead of memory: neither their dates nor their paths matter.
    let made = Made::new(&Files::new());
    let mut from_disk = sources(&files);
    for (number, source) in from_disk.values_mut().enumerate() {
        let path = made.path(&number.to_string());
        let Content::Bytes(bytes) = &source.from else {
            panic!("{source:?}")
        };
        fs::write(&path, bytes).unwrap();
        source.from = Content::File(path);
    }
    write(&made.path("again.iso"), &volume(), &from_disk, &mut |_| ()).unwrap();
    assert!(first == fs::read(made.path("again.iso")).unwrap());
}

#[test]
fn an_image_of_nothing_is_an_image() {
    let made = Made::new(&Files::new());
    let image = IsoImage::open(&made.image()).unwrap();
    assert_eq!(image.entries(), []);
    image.extract(&made.path("out"), &mut |_| ()).unwrap();
    assert_same(&tree(&made.path("out")), &Files::new());
}

#[test]
fn bytes_after_the_image_are_ignored() {
    let files = zoo();
    let made = Made::new(&files);
    let mut bytes = fs::read(made.image()).unwrap();
    let size = bytes.len() as u64;
    bytes.extend(b"HALITE-SEAL-1\n");
    fs::write(made.image(), &bytes).unwrap();
    let image = IsoImage::open(&made.image()).unwrap();
    assert_eq!(image.size(), size);
    assert_eq!(image.entries().len(), files.len());
}

#[test]
fn extraction_is_whole_or_not_at_all() {
    let files = zoo();
    let made = Made::new(&files);
    let image = IsoImage::open(&made.image()).unwrap();
    let out = made.path("out");
    // Leftovers of a killed extraction do no harm.
    fs::create_dir_all(made.path(".out.new/names")).unwrap();
    fs::write(made.path(".out.new/names/left"), "left").unwrap();
    let mut said = Vec::new();
    image
        .extract(&out, &mut |line| said.push(line.to_owned()))
        .unwrap();
    assert_same(&tree(&out), &files);
    assert!(!made.path(".out.new").exists());
    assert!(
        said.len() <= 10
            && said
                .last()
                .is_some_and(|line| line == "extracted 5 of 5 MB"),
        "{said:?}"
    );
    // A second extraction changes nothing.
    let error = image
        .extract(&out, &mut |_| ())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("it already exists"), "{error}");
    assert_same(&tree(&out), &files);
    assert!(!made.path(".out.new").exists());
}

#[test]
fn two_extractions_to_one_place_do_not_mix() {
    let made = Made::new(&zoo());
    let image = IsoImage::open(&made.image()).unwrap();
    let out = made.path("out");
    let mut second = None;
    image
        .extract(&out, &mut |_| {
            second.get_or_insert_with(|| {
                image
                    .extract(&out, &mut |_| ())
                    .map_err(|error| chain(&error))
                    .unwrap_err()
            });
        })
        .unwrap();
    let error = second.unwrap();
    assert!(
        error.contains("another extraction to this path is in progress"),
        "{error}"
    );
    assert_same(&tree(&out), &zoo());
}

#[test]
fn an_extraction_that_fails_leaves_nothing() {
    let made = Made::new(&zoo());
    let image = IsoImage::open(&made.image()).unwrap();
    // The image is truncated after it was opened.
    fs::File::options()
        .write(true)
        .open(made.image())
        .unwrap()
        .set_len(image.size() / 2)
        .unwrap();
    image.extract(&made.path("out"), &mut |_| ()).unwrap_err();
    let left: Vec<_> = fs::read_dir(made.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["X.iso"]);
}

#[test]
fn what_cannot_be_in_an_image_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("X.iso");
    let file = |mode| (mode, b"x".to_vec());
    let long = "l".repeat(254);
    let mut files = Files::new();
    for path in [
        "/etc/passwd",
        "a//b",
        "a/../b",
        "./c",
        "d/",
        "",
        "zero\0",
        &long,
        "file",
        "file/below",
    ] {
        files.insert(path.to_owned(), file(0o644));
    }
    files.insert("suid".to_owned(), file(0o4755));
    let error = try_write(&out, &files)
        .map_err(|error| chain(&error))
        .unwrap_err();
    for part in [
        "\"/etc/passwd\" cannot be the path of a file in an image: a name is empty",
        "\"a//b\" cannot be",
        "\"a/../b\" cannot be the path of a file in an image: .. is not a name",
        "\"./c\" cannot be",
        "\"d/\" cannot be",
        "\"\" cannot be",
        "\"zero\\0\" cannot be",
        "a name of 254 bytes is longer than 253",
        "file/below: file is a file",
        "suid: only permission bits can be kept, not the mode 4755",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    assert!(!out.exists());
}

#[test]
fn a_wrong_volume_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("X.iso");
    for id in ["", "lower", "TWO WORDS", &"A".repeat(33)] {
        let wrong = Volume {
            id: id.to_owned(),
            date: "2200-01-01T00:00:00Z".parse().unwrap(),
        };
        let error = write(&out, &wrong, &sources(&Files::new()), &mut |_| ())
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(
            error.contains("the volume id") && error.contains("1900 to 2155"),
            "{error}"
        );
    }
    assert!(!out.exists());
}

#[test]
fn what_is_at_the_place_stays() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("X.iso");
    fs::write(&out, "mine").unwrap();
    assert!(matches!(try_write(&out, &zoo()), Err(Error::File { .. })));
    assert_eq!(fs::read(&out).unwrap(), b"mine");
}

#[test]
fn files_that_cannot_be_read_leave_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("X.iso");
    let changing = dir.path().join("changing");
    fs::write(&changing, vec![7; 5 << 20]).unwrap();
    let source = |path: &std::path::Path| InputFile {
        from: Content::File(path.to_owned()),
        mode: 0o644,
    };
    let missing = [("a", dir.path().join("none")), ("b", dir.path().to_owned())];
    let missing = missing
        .iter()
        .map(|(name, path)| ((*name).to_owned(), source(path)))
        .collect();
    let error = write(&out, &volume(), &missing, &mut |_| ())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("a: cannot read") && error.contains("is not a plain file"),
        "{error}"
    );
    assert!(!out.exists());
    for size in [0, 1 << 20, 6 << 20] {
        let files = [("changing".to_owned(), source(&changing))].into();
        let change = || {
            fs::File::options()
                .write(true)
                .open(&changing)
                .unwrap()
                .set_len(size)
                .unwrap()
        };
        let error = write(&out, &volume(), &files, &mut |_| change())
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(
            error.contains("its size changed while it was put into the image"),
            "{error}"
        );
        assert!(!out.exists());
        fs::write(&changing, vec![7; 5 << 20]).unwrap();
    }
}
