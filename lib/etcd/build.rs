//! Generates messages and clients from `proto/etcd.proto`, without needing `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/etcd.proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .build_server(false)
        .compile_fds(files)?;
    Ok(())
}
