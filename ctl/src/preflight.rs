//! The report of the checks of a first host, on the screen.

use halite_api::{PreflightCheck, PreflightVerdict};
use halite_preflight::checks::Verdict;

use crate::output::Paint;

pub use halite_preflight::checks::{
    Finding, ignore, of_cluster, packages_of, packages_of_first_host, passed, resolver, run,
    thresholds,
};
pub use halite_preflight::{ExistingCluster, HostRequirements, NodeFacts};

/// The checks in a document.
#[must_use]
pub fn document(findings: &[Finding]) -> Vec<PreflightCheck> {
    let each = |finding: &Finding| {
        let (verdict, message, hint) = match &finding.verdict {
            Verdict::Good => (PreflightVerdict::Good, "", ""),
            Verdict::Warning(message, hint) => {
                (PreflightVerdict::Warning, message.as_str(), hint.as_str())
            }
            Verdict::Bad(message, hint) => (PreflightVerdict::Bad, message.as_str(), hint.as_str()),
        };
        PreflightCheck {
            check: finding.name.to_owned(),
            verdict,
            message: message.to_owned(),
            hint: hint.to_owned(),
        }
    };
    findings.iter().map(each).collect()
}

/// Formats the report for people: one line with the number of checks, then problems and remarks.
#[must_use]
pub fn report(findings: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    let mut good = 0;
    for finding in findings {
        let (mark, message, hint) = match &finding.verdict {
            Verdict::Good => {
                good += 1;
                continue;
            }
            Verdict::Warning(message, hint) => (paint.notable("!"), message, hint),
            Verdict::Bad(message, hint) => (paint.bad("✗"), message, hint),
        };
        text.push_str(&format!(
            "  {mark} {}: {}\n",
            finding.name,
            message.replace('\n', "\n    ")
        ));
        if !hint.is_empty() {
            text.push_str(&format!("      {hint}\n"));
        }
    }
    let mark = if passed(findings) {
        paint.good("✓")
    } else {
        paint.bad("✗")
    };
    let outcome = if good == findings.len() {
        format!("{} checks", findings.len())
    } else {
        format!("{good} of {} checks", findings.len())
    };
    format!("preflight    {mark} {outcome}\n{text}")
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_listed_below_their_number() {
        let finding = |name: &'static str, verdict: Verdict| Finding { name, verdict };
        let bad = Verdict::Bad("swap is on: /dev/sda2".into(), "turn it off".into());
        let findings = [finding("swap", bad), finding("root", Verdict::Good)];
        assert_eq!(
            report(&findings, Paint { colour: false }),
            "preflight    ✗ 1 of 2 checks\n  ✗ swap: swap is on: /dev/sda2\n      turn it off"
        );
    }
}
