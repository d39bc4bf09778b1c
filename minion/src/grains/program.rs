//! The program that this minion runs.

use std::sync::OnceLock;

use halite_durable::digest::sha256_of_reader;

/// The SHA-256 (hex) of the program of this process, which stays the same however often the file is
/// replaced; read once. `None` if it cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "the minion's own program, in pieces"
)]
pub(super) fn digest() -> Option<&'static str> {
    static DIGEST: OnceLock<Option<String>> = OnceLock::new();
    let digest = DIGEST.get_or_init(|| {
        let mut program = std::fs::File::open("/proc/self/exe").ok()?;
        let (_, sha256) = sha256_of_reader(&mut program).ok()?;
        Some(sha256)
    });
    digest.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_running_program() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(
            digest(),
            Some(halite_durable::digest::sha256(&program).as_str())
        );
    }
}
