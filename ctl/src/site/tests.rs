use std::fs;

use halite_testkit::version;

use super::*;

#[test]
fn nothing_is_in_use_where_no_cluster_is() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site {
        config: dir.path().join("etc"),
        bundles: BundleStore::new(dir.path().join("bundles")),
    };
    assert!(site.in_use().unwrap().is_none());
    assert_eq!(
        site.downgrade(&version("1"), jiff::Timestamp::UNIX_EPOCH)
            .unwrap(),
        None
    );
    fs::create_dir(&site.config).unwrap();
    fs::write(site.document(), "kind: Cluster\n").unwrap();
    assert!(site.in_use().unwrap().is_none());
    fs::write(site.config.join("master.yaml"), "bundle: /media/halite\n").unwrap();
    let in_use = site.in_use().unwrap().unwrap();
    assert_eq!(
        (in_use.version, in_use.path),
        (None, "/media/halite".into())
    );
    fs::write(
        site.document(),
        "kind: Cluster\nresolved: {kubernetes: v1.36.3, bundle: \"1.0\"}\n",
    )
    .unwrap();
    let in_use = site.in_use().unwrap().unwrap();
    assert_eq!(
        (in_use.version.as_deref(), in_use.path),
        (Some("1.0"), site.bundles.root().join("1.0"))
    );
    fs::write(
        site.document(),
        "resolved: {kubernetes: v1.36.3, bundle: ../../etc}\n",
    )
    .unwrap();
    assert!(site.in_use().is_err());
}
