//! Free memory of the heap, given back to the system.
//!
//! glibc gives back what is free above the last piece in use (`MALLOC_TRIM_THRESHOLD_`). After a job
//! of a thousand states two megabytes were free below a few dozen bytes that something else had
//! allocated meanwhile, and stayed with an idle daemon.

/// Gives the system every whole page of the heap that is free (malloc_trim(3)). Takes about a
/// millisecond for each megabyte, during which other threads wait to allocate.
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
