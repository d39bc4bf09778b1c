//! Any tree of names is the same after writing and reading.

use halite_iso9660::read::IsoImage;
use proptest::prelude::*;

use crate::made::{Files, Made, assert_same, read, tree};

/// Names that any file system accepts, mostly difficult ones: equal beginnings, dots, case, length.
fn name() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        3 => "[a-cA-C0-2._~;-]{1,6}",
        2 => "x{20,40}[a-c]?(\\.[a-c]{1,12})?",
        1 => "[^/\\x00]{1,60}",
        1 => "é{50,126}[ab]?",
        1 => "x{60,252}[ab]?",
    ];
    name.prop_filter("a name", |name| {
        name.len() <= 253 && name != "." && name != ".."
    })
}

fn files() -> impl Strategy<Value = Files> {
    let path = proptest::collection::vec(name(), 1..6).prop_map(|names| names.join("/"));
    let mode = prop_oneof![Just(0o644), Just(0o755), Just(0o400), Just(0o777)];
    let content = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec((path, mode, content), 0..60).prop_map(|made| {
        let mut files = Files::new();
        for (path, mode, content) in made {
            let below = format!("{path}/");
            let is_directory = files.keys().any(|other: &String| other.starts_with(&below));
            let is_below = path
                .match_indices('/')
                .any(|(at, _)| files.contains_key(&path[..at]));
            if !is_directory && !is_below {
                files.insert(path, (mode, content));
            }
        }
        files
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_read_as_it_was(files in files()) {
        let made = Made::new(&files);
        let image = IsoImage::open(&made.image()).unwrap();
        assert_same(&read(&image), &files);
    }
}

proptest! {
    // Each file is written to the disk, which takes most of the time.
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_out_as_it_was(files in files()) {
        let made = Made::new(&files);
        let out = made.path("out");
        IsoImage::open(&made.image()).unwrap().extract(&out, &mut |_| ()).unwrap();
        assert_same(&tree(&out), &files);
    }
}
