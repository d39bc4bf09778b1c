//! The lab's own chart (`tests/charts/hello`): pods that answer what its values say, and a Service before them.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::build::source_root;

/// Its name, and that of its namespace.
pub const NAME: &str = "hello";

/// How many pods its values want.
pub const REPLICAS: u64 = 2;

/// What they answer.
pub const GREETING: &str = "hello from the bundle's chart";

/// Its folder.
#[must_use]
pub fn folder() -> PathBuf {
    source_root().join("tests/charts").join(NAME)
}

/// What a recipe says of it; its pods run `image`, which is agnhost's.
#[must_use]
pub fn entry(image: &str) -> Value {
    json!({
        "name": NAME,
        "source": folder(),
        "namespace": NAME,
        "values": {"replicas": REPLICAS, "greeting": GREETING, "image": image},
    })
}
