//! The table of where the time of a run went.

use std::fmt::Write as _;
use std::time::Duration;

use halite_lab::timing::Took;

/// Builds that took less are not in the table.
const SHORT: Duration = Duration::from_secs(1);

/// Where the time went: suites, then builds, each the longest first. Builds run beside suites and
/// in them, so that all shares together are more than the whole.
pub(crate) fn table(total: Duration, suites: &[Took], builds: &[Took]) -> String {
    let mut text = format!("{:>8}  share  where the time went\n", "seconds");
    let mut row = |name: &str, time: Duration| {
        let share = 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::EPSILON);
        let _ = writeln!(text, "{:>8.1}  {share:>4.0} %  {name}", time.as_secs_f64());
    };
    row("the whole run", total);
    for (kind, list, least) in [("suite", suites, Duration::ZERO), ("build", builds, SHORT)] {
        let mut list: Vec<&Took> = list.iter().filter(|took| took.time >= least).collect();
        list.sort_by_key(|took| std::cmp::Reverse(took.time));
        for took in list {
            row(&format!("{kind} {}", took.name), took.time);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_suites_and_builds_with_their_shares() {
        let took = |name: &str, seconds| Took {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
        };
        let builds = [took("short", 0), took("the ISO", 30)];
        let table = table(
            Duration::from_secs(100),
            &[took("a", 10), took("b", 60)],
            &builds,
        );
        assert_eq!(
            table,
            " seconds  share  where the time went\n\
             \x20  100.0   100 %  the whole run\n\
             \x20   60.0    60 %  suite b\n\
             \x20   10.0    10 %  suite a\n\
             \x20   30.0    30 %  build the ISO\n"
        );
    }
}
