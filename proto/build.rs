//! Generates the messages and services from `proto/halite.proto`, without needing `protoc`, and the
//! list of all methods, from which a test proves that the authorisation table is complete.

use std::fmt::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/halite.proto");
    let files = protox::compile(["proto/halite.proto"], ["proto"])?;
    let mut list = String::from("&[\n");
    for file in &files.file {
        for service in &file.service {
            for method in &service.method {
                writeln!(
                    list,
                    "    \"/{}.{}/{}\",",
                    file.package(),
                    service.name(),
                    method.name()
                )?;
            }
        }
    }
    list.push(']');
    let target = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(target.join("methods.rs"), list)?;
    let mut build = tonic_prost_build::configure().build_transport(false);
    // The contract of master and `ctl` stores real ones (lib/api/contract).
    for reply in [
        "AddNodeReply",
        "AddedNode",
        "CreateOperatorReply",
        "CreateTokenReply",
        "KubeconfigReply",
    ] {
        build = build.type_attribute(
            format!("halite.v1.{reply}"),
            "#[derive(serde::Serialize, serde::Deserialize)]",
        );
    }
    build
        // Minions and standbys store it in files.
        .type_attribute(
            "halite.v1.Epoch",
            "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]",
        )
        // It contains a private key: `src/redacted.rs`.
        .skip_debug(["halite.v1.ImportCaRequest"])
        .compile_fds(files)?;
    Ok(())
}
