//! The pictures of the documentation (`docs/pictures`).

use std::collections::BTreeSet;
use std::fs;

use crate::tree;

/// The page with the table that the picture of the ports repeats.
const PORTS: &str = "docs/guide/ports.md";
const PICTURE: &str = "docs/pictures/ports.svg";

/// The numbers of ports in the first column of the table below a heading.
fn ports(page: &str, heading: &str) -> BTreeSet<String> {
    let below = page.split(heading).nth(1).unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with("| "));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split(|c: char| !c.is_ascii_digit()))
        .filter(|number| number.len() >= 4)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_picture_of_the_ports_has_each_port_of_the_table() {
    let read = |path: &str| fs::read_to_string(tree::root().join(path)).unwrap();
    let ports = ports(&read(PORTS), "## Open ports");
    assert!(ports.len() > 8, "{ports:?}");
    let picture = read(PICTURE);
    let shown = picture.split_once("</desc>").unwrap().1;
    let missing: Vec<&String> = ports
        .iter()
        .filter(|port| !shown.contains(port.as_str()))
        .collect();
    assert!(missing.is_empty(), "{PICTURE} lacks {missing:?} of {PORTS}");
}

#[test]
fn each_picture_is_on_a_page() {
    let pages = tree::files(&[".md"]);
    let unused: Vec<String> = fs::read_dir(tree::root().join("docs/pictures"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            !pages
                .iter()
                .any(|page| page.text.contains(&format!("pictures/{name})")))
        })
        .collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
}
