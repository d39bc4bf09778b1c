//! The format, and the law that a diff turns the old text into the new one.

use proptest::prelude::*;

use super::*;

fn diff(old: &str, new: &str, context: u32) -> String {
    let side = |name, text| Side { name, text };
    unified(side("a", old), side("b", new), context)
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}

#[test]
fn equal_texts_have_an_empty_diff() {
    for text in ["", "a", "a\n", "a\r\nb"] {
        assert_eq!(diff(text, text, CONTEXT), "");
    }
}

#[test]
fn changes_have_their_context() {
    let old = numbers(1..=20);
    let new = old.replace("\n4\n", "\nfour\n").replace("\n12\n", "\n");
    assert_eq!(
        diff(&old, &new, CONTEXT),
        "--- a\n+++ b\n@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n\
         @@ -9,7 +9,6 @@\n 9\n 10\n 11\n-12\n 13\n 14\n 15\n"
    );
    assert_eq!(
        diff(&old, &new, 1),
        "--- a\n+++ b\n@@ -3,3 +3,3 @@\n 3\n-4\n+four\n 5\n@@ -11,3 +11,2 @@\n 11\n-12\n 13\n"
    );
    assert_eq!(
        diff(&old, &new, 0),
        "--- a\n+++ b\n@@ -4 +4 @@\n-4\n+four\n@@ -12 +11,0 @@\n-12\n"
    );
}

#[test]
fn near_changes_are_one_hunk() {
    let old = numbers(1..=20);
    let with = |second: &str| {
        let new = old.replace("\n4\n", "\nfour\n").replace(second, "\n!\n");
        diff(&old, &new, CONTEXT).matches("@@ -").count()
    };
    assert_eq!(with("\n11\n"), 1, "six lines between");
    assert_eq!(with("\n12\n"), 2, "seven lines between");
}

#[test]
fn ranges_of_no_line_and_of_one_are_those_of_diff() {
    assert_eq!(diff("", "a\n", 3), "--- a\n+++ b\n@@ -0,0 +1 @@\n+a\n");
    assert_eq!(diff("a\n", "", 3), "--- a\n+++ b\n@@ -1 +0,0 @@\n-a\n");
    assert_eq!(
        diff("a\n", "a\nb\n", 3),
        "--- a\n+++ b\n@@ -1 +1,2 @@\n a\n+b\n"
    );
    assert_eq!(
        diff("a\nb\n", "b\n", 0),
        "--- a\n+++ b\n@@ -1 +0,0 @@\n-a\n"
    );
}

#[test]
fn a_last_line_without_its_end_is_named() {
    let none = "\\ No newline at end of file\n";
    assert_eq!(
        diff("a\nb", "a\nb\n", 3),
        format!("--- a\n+++ b\n@@ -1,2 +1,2 @@\n a\n-b\n{none}+b\n")
    );
    assert_eq!(
        diff("a\nb", "b", 3),
        format!("--- a\n+++ b\n@@ -1,2 +1 @@\n-a\n b\n{none}")
    );
}

#[test]
fn other_ends_of_lines_are_ends() {
    assert_eq!(
        diff("a\r\nb\r\n", "a\r\nb\n", 3),
        "--- a\n+++ b\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n"
    );
    let found: Vec<&str> = lines::split("a\rb\r\n\nc").collect();
    assert_eq!(found, ["a\r", "b\r\n", "\n", "c"]);
}

/// An added line that fits in several places comes after its equals, as with `diff`.
#[test]
fn an_added_line_is_as_far_down_as_it_can_be() {
    assert_eq!(
        diff("a\nb\nc\n", "a\nb\nb\nc\n", 1),
        "--- a\n+++ b\n@@ -2,2 +2,3 @@\n b\n+b\n c\n"
    );
}

/// The old and the new text that a diff with unlimited context describes.
fn sides(diff: &str) -> [String; 2] {
    let mut sides = [String::new(), String::new()];
    let mut last = ' ';
    for line in diff.split_inclusive('\n').skip(3) {
        let is_end = line.trim_end() == NO_NEWLINE;
        let (mark, content) = line.split_at(1);
        last = if is_end {
            last
        } else {
            mark.chars().next().unwrap()
        };
        for (side, own) in sides.iter_mut().zip(['-', '+']) {
            if last == ' ' || last == own {
                if is_end {
                    assert_eq!(side.pop(), Some('\n'));
                } else {
                    side.push_str(content);
                }
            }
        }
    }
    sides
}

fn text() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec!["a\n", "b\n", "\n", "  c\n", "d\r\n", "e\n"]);
    (prop::collection::vec(line, 0..40), "[xy]?").prop_map(|(lines, end)| lines.concat() + &end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_diff_describes_both_texts(old in text(), new in text(), context in 0u32..5) {
        prop_assert_eq!(diff(&old, &new, context).is_empty(), old == new);
        if old != new {
            let whole = diff(&old, &new, u32::MAX);
            prop_assert_eq!(sides(&whole), [old, new], "{}", whole);
        }
    }

    /// Each hunk has as many lines as its header says, and begins at the line that the header
    /// names.
    #[test]
    fn a_header_says_where_its_lines_are(old in text(), new in text(), context in 0u32..5) {
        let all = diff(&old, &new, context);
        let texts = [lines::split(&old).collect::<Vec<_>>(), lines::split(&new).collect()];
        for hunk in all.split("@@ -").skip(1) {
            let (header, body) = hunk.split_once(" @@\n").unwrap();
            for (place, range) in header.split(" +").enumerate() {
                let (start, length) = range.split_once(',').unwrap_or((range, "1"));
                let (start, length): (usize, usize) = (start.parse().unwrap(), length.parse().unwrap());
                let start = if length == 0 { start } else { start - 1 };
                let expected = texts[place][start..start + length].concat();
                let found = &sides(&format!("-\n+\n@\n{body}"))[place];
                prop_assert_eq!(found, &expected, "{}", all);
            }
        }
    }
}

/// Long texts with nothing in common, and with everything repeated.
#[test]
fn long_texts_do_not_take_long() {
    let begin = std::time::Instant::now();
    let odd: String = (0..60_000)
        .map(|n| format!("{}\n", n * 7 % 20_011))
        .collect();
    let other: String = (0..60_000)
        .map(|n| format!("{}\n", n * 13 % 20_011))
        .collect();
    let blank = "\n".repeat(1 << 19) + "x\n";
    assert!(!diff(&odd, &other, CONTEXT).is_empty());
    assert!(!diff(&blank, &odd, CONTEXT).is_empty());
    assert!(!diff(&blank, &blank.replace('x', "\n"), CONTEXT).is_empty());
    assert!(begin.elapsed() < std::time::Duration::from_secs(60));
}
