//! A small site with a minimal state tree, and `ctl` at work there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use halite_pillar::options;
use halite_states::shipped;
use halite_testkit::process::{done, within};
use halite_testkit::{Site, process, put};
use serde_json::json;

/// The program under test.
const CTL: &str = env!("CARGO_BIN_EXE_ctl");

/// Checks that `ctl` finds the builder, which cargo only builds with the whole workspace.
fn has_builder() {
    let builder = Path::new(CTL).with_file_name("halite-builder");
    assert!(
        builder.is_file(),
        "{} is not there: test the whole workspace, or build it with `cargo build -p halite-builder`",
        builder.display()
    );
}

/// A site with a recipe that `ctl` builds, and a key `builder.key`.
pub fn site() -> Site {
    has_builder();
    let mut site = Site::new();
    // One example cluster for each build: the builder's tests and the suites check all of them.
    let defaults: BTreeMap<_, _> = options::choices()
        .map(|(option, values)| (option, values[..1].to_vec()))
        .collect();
    site.recipe["options"] = json!(defaults);
    let alone = [
        shipped::RESTART_MASTER,
        shipped::RESTART_MINION,
        shipped::VIP_ASIDE,
    ];
    for name in shipped::ORCHESTRATIONS.iter().chain(&alone) {
        let file = name.replace('.', "/");
        put(&site.path(&format!("states/{file}.sls")), b"{}\n");
    }
    fs::create_dir(site.path("tmp")).unwrap();
    site.written();
    done(ctl(
        &site,
        &["bundle", "key", "--unencrypted", "builder.key"],
    ));
    site
}

/// `ctl` in the site's directory.
pub fn ctl(site: &Site, args: &[&str]) -> Command {
    within(site.dir.path(), CTL, args)
}

/// Builds the site's bundle, signed: into an image, or a directory.
pub fn build(site: &Site, out: &str) -> Command {
    ctl(
        site,
        &[
            "bundle",
            "build",
            "--recipe",
            "recipe.yaml",
            "--out",
            out,
            "--key",
            "builder.key",
        ],
    )
}

/// A script in the site's directory.
pub fn script(site: &Site, text: &str) -> Command {
    process::script(site.dir.path(), CTL, text)
}
