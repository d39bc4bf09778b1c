//! Images as other programs read them: `xorriso` (each of the three views), `7z` and `isoinfo`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_iso9660::read::IsoImage;

use crate::made::{Files, Made, assert_same, run, tree, volume, zoo};

fn xorriso(args: &[&str]) -> String {
    let (out, err) = run(
        "xorriso",
        "xorriso",
        &[&["-report_about", "NOTE"], args].concat(),
    );
    // xorriso only prints its warnings: its exit code is 0 nevertheless.
    for word in ["WARNING", "SORRY", "FAILURE", "FATAL", "damaged"] {
        assert!(!err.contains(word), "xorriso {args:?}:\n{err}");
    }
    out
}

fn extract(image: &Path, to: &Path, view: &str) -> Files {
    let (image, to) = (image.to_str().unwrap(), to.to_str().unwrap());
    xorriso(&[
        "-read_fs", view, "-indev", image, "-osirrox", "on", "-extract", "/", to,
    ]);
    tree(Path::new(to))
}

/// Each content with the number of its copies.
fn contents(files: &Files) -> BTreeMap<&[u8], usize> {
    files
        .values()
        .fold(BTreeMap::new(), |mut counts, (_, content)| {
            *counts.entry(content.as_slice()).or_default() += 1;
            counts
        })
}

/// Returns whether Joliet allows every name of a path.
fn fits_joliet(path: &str) -> bool {
    path.split('/').all(|name| {
        name.chars().count() <= 64
            && name
                .chars()
                .all(|c| (c as u32) < 0x10000 && !"*:;?\\".contains(c))
    })
}

/// Checks that every file of one view exists, with names that the view allows, and that no two
/// names differ only in case.
fn assert_joliet(found: &Files, expected: &Files, exact: impl Fn(&str) -> bool) {
    let folded = |files: &Files| {
        files
            .keys()
            .fold(BTreeMap::<_, usize>::new(), |mut counts, path| {
                *counts.entry(path.to_lowercase()).or_default() += 1;
                counts
            })
    };
    assert_eq!(
        folded(found).into_iter().find(|(_, count)| *count > 1),
        None
    );
    let twins = folded(expected);
    let exact = |path: &str| fits_joliet(path) && twins[&path.to_lowercase()] == 1 && exact(path);
    for (path, (_, content)) in expected.iter().filter(|(path, _)| exact(path)) {
        assert!(
            found.get(path).is_some_and(|(_, there)| there == content),
            "{path}"
        );
    }
    for name in found.keys().flat_map(|path| path.split('/')) {
        assert!(fits_joliet(name), "{name}");
    }
    assert_eq!(found.len(), expected.len());
    assert!(contents(found) == contents(expected));
    // The first of the names that differ only in case is unchanged.
    for name in ["README", "Readme~1", "readme~2", "A_B", "a_b~1"] {
        let names = || {
            found
                .keys()
                .filter(|path| path.starts_with("names/"))
                .collect::<Vec<_>>()
        };
        assert!(
            found.contains_key(&format!("names/{name}")),
            "{name}: {:?}",
            names()
        );
    }
}

#[test]
fn xorriso_reads_rock_ridge() {
    let files = zoo();
    let made = Made::new(&files);
    assert_same(&extract(&made.image(), &made.path("out"), "any"), &files);
}

#[test]
fn xorriso_lists_and_describes() {
    let files = zoo();
    let made = Made::new(&files);
    let image = made.image();
    let image = image.to_str().unwrap();
    let found = xorriso(&[
        "-indev", image, "-find", "/", "-type", "f", "-exec", "echo", "--",
    ]);
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    let mut expected: Vec<String> = files.keys().map(|path| format!("'/{path}'")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let about = xorriso(&["-indev", image, "-pvd_info"]);
    assert!(about.contains("Volume Id    : HALITE_1_36"), "{about}");
    assert!(about.contains("Creation Time: 2026073112345600"), "{about}");
}

#[test]
fn xorriso_reads_joliet() {
    let files = zoo();
    let made = Made::new(&files);
    assert_joliet(
        &extract(&made.image(), &made.path("out"), "norock"),
        &files,
        |_| true,
    );
}

#[test]
fn xorriso_reads_the_plain_view() {
    let files = zoo();
    let made = Made::new(&files);
    // Without Rock Ridge xorriso prefers the Joliet view; without its descriptor only the primary
    // one is left.
    let mut bytes = fs::read(made.image()).unwrap();
    bytes[17 * 2048] = 255;
    fs::write(made.image(), bytes).unwrap();
    let found = extract(&made.image(), &made.path("out"), "norock");
    for name in found.keys().flat_map(|path| path.split('/')) {
        assert!(name.len() <= 31, "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b"_.".contains(&b)),
            "{name}"
        );
    }
    assert_eq!(found.len(), files.len());
    assert!(contents(&found) == contents(&files));
}

#[test]
fn seven_zip_reads_joliet() {
    let files = zoo();
    let made = Made::new(&files);
    let (image, out) = (made.image(), made.path("out"));
    let (said, _) = run("7z", "p7zip-full", &["t", image.to_str().unwrap()]);
    assert!(said.contains("Everything is Ok"), "{said}");
    run(
        "7z",
        "p7zip-full",
        &[
            "x",
            "-bd",
            &format!("-o{}", out.display()),
            image.to_str().unwrap(),
        ],
    );
    // 7z treats names as Windows does, which allows none with a dot at the end.
    assert_joliet(&tree(&out), &files, |path| !path.ends_with('.'));
}

fn isoinfo(made: &Made, args: &[&str]) -> String {
    let image = made.image();
    let (out, err) = run(
        "isoinfo",
        "genisoimage",
        &[&["-i", image.to_str().unwrap()], args].concat(),
    );
    assert_eq!(err, "", "isoinfo {args:?}");
    out
}

#[test]
fn isoinfo_lists_every_view() {
    let files = zoo();
    let made = Made::new(&files);
    let about = isoinfo(&made, &["-d"]);
    assert!(about.contains("Joliet with UCS level 3 found"), "{about}");
    assert!(
        about.contains("Rock Ridge signatures version 1 found"),
        "{about}"
    );
    // isoinfo cuts names that are longer than its buffers.
    let listed = isoinfo(&made, &["-R", "-f"]);
    let listed: Vec<&str> = listed.lines().collect();
    for path in files.keys().filter(|path| path.len() < 200) {
        assert!(listed.contains(&format!("/{path}").as_str()), "{path}");
    }
    // isoinfo does not support UTF-8.
    let listed = isoinfo(&made, &["-J", "-f"]);
    let listed: Vec<&str> = listed.lines().collect();
    let twin =
        |path: &str| path.to_lowercase().contains("readme") || path.to_lowercase().ends_with("a_b");
    for path in files
        .keys()
        .filter(|path| fits_joliet(path) && path.is_ascii() && !twin(path))
    {
        assert!(listed.contains(&format!("/{path}").as_str()), "{path}");
    }
    let modes = isoinfo(&made, &["-R", "-l"]);
    assert!(
        modes
            .lines()
            .any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with(" install ")),
        "{modes}"
    );
    assert!(
        modes
            .lines()
            .any(|line| line.starts_with("-rw-------") && line.ends_with(" private ")),
        "{modes}"
    );
}

#[test]
fn isovfy_finds_nothing_wrong() {
    let made = Made::new(&zoo());
    let (said, _) = run("isovfy", "genisoimage", &[made.image().to_str().unwrap()]);
    assert!(said.contains("No errors found"), "{said}");
}

#[test]
fn isoinfo_finds_the_path_table_in_order() {
    let made = Made::new(&zoo());
    // ` 5: 1 24 NAME`: number, number of the parent, sector, identifier.
    let table = isoinfo(&made, &["-p"]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.contains(':'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let directories = rows.len();
    assert!(directories > 40, "{table}");
    let above: Vec<usize> = rows.iter().map(|row| row[1].parse().unwrap()).collect();
    assert!(above.is_sorted() && above[0] == 1, "{above:?}");
    assert!(
        above
            .iter()
            .enumerate()
            .skip(1)
            .all(|(number, above)| *above <= number),
        "{above:?}"
    );
}

#[test]
fn an_image_of_xorriso_is_read() {
    let files = zoo();
    let made = Made::new(&files);
    let (out, again) = (made.path("out"), made.path("again.iso"));
    assert_same(&extract(&made.image(), &out, "any"), &files);
    let source = made.path("source");
    IsoImage::open(&made.image())
        .unwrap()
        .extract(&source, &mut |_| ())
        .unwrap();
    let args = ["-R", "-J", "-iso-level", "3", "-V", &volume().id, "-o"];
    let paths = [again.to_str().unwrap(), source.to_str().unwrap()];
    run(
        "xorriso",
        "xorriso",
        &[&["-as", "mkisofs", "-quiet"], args.as_slice(), &paths].concat(),
    );
    let image = IsoImage::open(&again).unwrap();
    assert_eq!(image.id(), "HALITE_1_36");
    image.extract(&made.path("theirs"), &mut |_| ()).unwrap();
    assert_same(&tree(&made.path("theirs")), &files);
}
