//! Free memory of the heap, returned to the system.
//!
//! glibc returns only the free memory above the last allocated block (`MALLOC_TRIM_THRESHOLD_`).
//! After a job of a thousand states, two megabytes were free below a few dozen bytes that had been
//! allocated during the job, and an idle daemon kept them.

/// Returns every free whole page of the heap to the system (malloc_trim(3)). Takes about a
/// millisecond per megabyte; other threads that allocate wait during that time.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no library has a safe form of this call")]
    // SAFETY: the function takes no pointer, may be called at any time from any thread, and frees
    // only what is not allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    /// Resident kilobytes of this process.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_free_below_a_piece_in_use_goes_back() {
        // Small enough for the heap, too large for the lists of small pieces.
        let mut pieces: Vec<Vec<u8>> = (0..15_000).map(|_| vec![1; 2000]).collect();
        let above = pieces.pop();
        drop(pieces);
        let before = resident();
        super::give_back();
        let after = resident();
        assert!(after + 20_000 < before, "{before} kB, then {after} kB");
        drop(above);
    }
}
