//! Files larger than 4 GiB. They consist mostly of holes, which are preserved, so the tests take
//! seconds and little space.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use halite_iso9660::SECTOR;
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile, write};

use crate::made::{run, volume};

/// More than two directory records can describe, and not a whole number of sectors.
const SIZE: u64 = 2 * (4 << 30) + 5_000_001;

#[test]
fn a_file_of_three_sections_is_one_piece() {
    let dir = tempfile::tempdir().unwrap();
    let big = dir.path().join("big");
    let file = fs::File::create_new(&big).unwrap();
    file.set_len(SIZE).unwrap();
    // Both ends, and the bytes around the borders of sections.
    let section = (4 << 30) - SECTOR;
    let marks = [
        0,
        section - 8,
        section,
        2 * section - 8,
        2 * section,
        SIZE - 8,
    ];
    for (number, at) in marks.iter().enumerate() {
        file.write_all_at(format!("mark {number}:!").as_bytes()[..8].as_ref(), *at)
            .unwrap();
    }
    let out = dir.path().join("X.iso");
    let source = |from| InputFile { from, mode: 0o644 };
    let files = [
        ("big".to_owned(), source(Content::File(big.clone()))),
        (
            "small".to_owned(),
            source(Content::Bytes(b"behind it".to_vec())),
        ),
    ];
    let placed = write(&out, &volume(), &files.into(), &mut |_| ()).unwrap();
    assert_eq!((placed[0].size, placed[1].size), (SIZE, 9));
    assert_eq!(
        placed[1].offset,
        placed[0].offset + SIZE.next_multiple_of(SECTOR)
    );
    let facts = fs::metadata(&out).unwrap();
    assert!(
        facts.blocks() * 512 < 100 << 20,
        "holes were filled: {} MiB",
        facts.blocks() >> 11
    );

    let image = IsoImage::open(&out).unwrap();
    assert_eq!(image.entries().len(), 2);
    let entry = image.entry("big").unwrap();
    assert_eq!((entry.size, entry.offset), (SIZE, placed[0].offset));
    let mut reader = image.reader("big").unwrap();
    for (number, at) in marks.iter().enumerate() {
        let mut bytes = [0; 8];
        reader.seek(SeekFrom::Start(*at)).unwrap();
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, format!("mark {number}:!").as_bytes()[..8], "at {at}");
    }
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);

    // xorriso's "extent, first sector, sectors, size of the file, path" for each section.
    // Extracting the content with xorriso would read everything before it.
    let at = out.to_str().unwrap();
    let (sections, _) = run(
        "xorriso",
        "xorriso",
        &["-indev", at, "-find", "/big", "-exec", "report_lba", "--"],
    );
    let sections: Vec<Vec<u64>> = sections
        .lines()
        .filter_map(|line| line.strip_prefix("File data lba:"))
        .map(|line| {
            line.split(',')
                .take(4)
                .map(|number| number.trim().parse().unwrap())
                .collect()
        })
        .collect();
    let (first, each) = (placed[0].offset / SECTOR, section / SECTOR);
    let last = SIZE.div_ceil(SECTOR) - 2 * each;
    assert_eq!(
        sections,
        [
            [0, first, each, SIZE],
            [1, first + each, each, SIZE],
            [2, first + 2 * each, last, SIZE]
        ]
    );
    let (listed, _) = run("7z", "p7zip-full", &["l", "-slt", at]);
    assert!(listed.contains(&format!("Size = {SIZE}\n")), "{listed}");
}
