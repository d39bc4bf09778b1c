//! The files of keepalived, as the state tree renders them for the control planes of the lab.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::CLUSTER;
use halite_lab::layout::{HA, LayoutHost};
use halite_pillar::view::Pki;
use halite_states::compile;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::shipped_tree;

/// The interface with the control-plane address.
pub(super) const INTERFACE: &str = "eth0";
/// The states that write the files.
const STATES: &str = "halite.host.keepalived";
/// The directory of the files.
const DIRECTORY: &str = "/etc/keepalived/";

/// A file of a host.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) contents: String,
    pub(super) mode: u32,
}

/// The arguments of a state of a file.
#[derive(Deserialize)]
struct FileArguments {
    contents: String,
    mode: u32,
}

/// The files of a host.
pub(super) fn files(member: &LayoutHost) -> Result<Vec<File>> {
    let declaration = shipped_tree::declaration(CLUSTER, &HA)?;
    let bundle = shipped_tree::bundle()?;
    let address = member.network.address(member.number);
    let grains = json!({
        "id": member.name, "os_family": "Debian", "os": "Debian", "nodename": member.name,
        "host": member.name, "ip4_interfaces": {INTERFACE: [address]},
    });
    let wanted = [STATES.to_owned()];
    let compiled = shipped_tree::compile(
        &declaration,
        (&bundle, &Pki::default()),
        member.name,
        &grains,
        &json!({}),
        |input| compile::step(input, &wanted),
    )?;
    let mut files = Vec::new();
    for chunk in &compiled.low.chunks {
        if chunk.function() != "file.managed" || !chunk.name.starts_with(DIRECTORY) {
            continue;
        }
        let args = Value::Object(chunk.args.clone());
        let FileArguments { contents, mode } = FileArguments::deserialize(args)
            .with_context(|| format!("{} has no contents or no mode", chunk.name))?;
        files.push(File {
            path: chunk.name.clone(),
            contents,
            mode,
        });
    }
    ensure!(files.len() == 2, "{STATES} writes {files:?}");
    Ok(files)
}

/// The time from one advertisement to the next.
pub(super) fn advertisement(files: &[File]) -> Result<Duration> {
    let mut lines = files.iter().flat_map(|file| file.contents.lines());
    let seconds = lines.find_map(|line| line.trim().strip_prefix("advert_int "));
    let seconds: f64 = seconds.context("no advert_int")?.trim().parse()?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_control_plane_has_a_configuration_with_its_address_and_the_others() {
        for (own, peers) in [("11", ["12", "13"]), ("12", ["11", "13"])] {
            let member = HA
                .hosts
                .iter()
                .find(|member| member.number.to_string() == own);
            let files = files(member.unwrap()).unwrap();
            assert_eq!(advertisement(&files).unwrap(), Duration::from_millis(500));
            let text = &files[1].contents;
            assert!(
                text.contains(&format!("unicast_src_ip 10.10.0.{own}")),
                "{text}"
            );
            assert!(text.contains("interface eth0") && text.contains("10.10.0.100/32"));
            for peer in peers {
                assert!(text.contains(&format!("    10.10.0.{peer}\n")), "{text}");
            }
            assert!(
                files[0]
                    .contents
                    .contains(&format!("https://10.10.0.{own}:6443/readyz"))
            );
            assert_eq!(files[0].mode, 0o755);
        }
    }
}
