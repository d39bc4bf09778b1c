//! Every finding of `docs/coming-from-salt.md` names tests that exist.

use crate::named_tests::is_function;
use crate::tree;

/// The number of findings.
const COUNT: usize = 32;

#[test]
fn every_finding_names_tests_that_exist() {
    let document = std::fs::read_to_string(tree::root().join("docs/coming-from-salt.md")).unwrap();
    let (_, table) = document.split_once("<!-- findings -->").unwrap();
    let (table, _) = table.split_once("<!-- end of findings -->").unwrap();
    let mut findings = Vec::new();
    let mut numbers = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [number, _, _, tests] = cells.as_slice() else {
            panic!("four cells: {row}")
        };
        numbers.push(number.trim().to_owned());
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            findings.push(format!("{number}: no test"));
        }
        for name in named {
            let there = if name.contains('/') {
                tree::root().join(name).is_file()
            } else {
                is_function(name)
            };
            if !there {
                findings.push(format!("{number}: there is no test `{name}`"));
            }
        }
    }
    let wanted: Vec<String> = (1..=COUNT).map(|number| number.to_string()).collect();
    assert_eq!(numbers, wanted);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
