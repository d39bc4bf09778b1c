//! Bundles that only node documents record, in the middle of an upgrade.

use super::*;

#[test]
fn a_bundle_that_a_host_records_stays_and_is_shown() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    here.add("0.2.0.iso").unwrap();
    let resolved = "resolved:\n  controlPlane: 10.0.0.11\n  workloadPlane: 10.0.0.11\n  bundle: \"0.2.0\"\n  kubernetes: v1.36.3\n";
    let document = here.site.config.join("nodes/a.yaml");
    put(&document, format!("{NODE}{resolved}").as_bytes());

    let error = here.remove("0.2.0").unwrap_err().to_string();
    assert!(
        error.contains("the bundle 0.2.0 is in use on a, nothing was removed"),
        "{error}"
    );
    let reasons = here.reasons("0.2.0");
    assert!(
        reasons.contains("an upgrade has not ended: a with the bundle 0.2.0"),
        "{reasons}"
    );
    let list = self::document(&here.site, None).unwrap();
    let row = list.bundles.iter().find(|row| row.version == "0.2.0");
    assert_eq!(row.unwrap().used_by, ["a"]);
    let text = overview(&list, &Paint { colour: false });
    let line = text.lines().find(|line| line.starts_with("0.2.0")).unwrap();
    assert!(line.contains("  a  "), "{text}");

    put(&document, NODE.as_bytes());
    assert_eq!(here.remove("0.2.0").unwrap(), 0);
}
