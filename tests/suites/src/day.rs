//! The day, by which tests take turns.

use std::time::SystemTime;

use anyhow::Result;

use crate::test::{Case, Test, cases};

/// The day, counted from the Unix epoch.
///
/// # Errors
/// The clock is before it.
pub(crate) fn today() -> Result<usize> {
    let days = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs()
        / 86_400;
    Ok(usize::try_from(days)?)
}

/// The tests of several tables that take turns with each other: the one of a day, or all. Each has two days in
/// succession, because on every other day its cluster may be the last one, for which a slow machine has no time
/// ([`crate::plan::Plan::take_turns`]). Each table keeps its own place in the plan.
pub(crate) fn in_turn<C: 'static, const N: usize>(
    tables: [&[Test<C>]; N],
    day: Option<usize>,
) -> [Vec<Case<C>>; N] {
    let count: usize = tables.iter().map(|table| table.len()).sum();
    let turn = day.map(|day| day / 2 % count.max(1));
    let mut numbers = 0..;
    tables.map(|table| {
        let mut tests = cases(table);
        tests.retain(|_| {
            let number = numbers.next();
            turn.is_none() || number == turn
        });
        tests
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Counts;

    const fn test(name: &'static str) -> Test<()> {
        Test {
            name,
            run: |_| Ok(Counts::ONE),
        }
    }

    #[test]
    fn each_day_has_one_test_of_all_tables_and_all_have_their_days() {
        let (one, more) = ([test("a")], [test("b"), test("c")]);
        let names = |day| {
            let tables = in_turn([&one[..], &more[..]], day);
            tables.map(|tests| tests.into_iter().map(|test| test.name).collect::<String>())
        };
        let day = |day| names(Some(day)).join("|");
        let days = [0, 1, 2, 3, 4, 5, 6].map(day);
        assert_eq!(days, ["a|", "a|", "|b", "|b", "|c", "|c", "a|"]);
        assert_eq!(names(None).join("|"), "a|bc");
    }
}
