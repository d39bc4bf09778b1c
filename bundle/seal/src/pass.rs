//! One pass over an image: reading and hashing every segment.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use halite_durable::{ByteProgress, digest};
use sha2::{Digest as _, Sha256};

use super::map::Segment;
use super::report::{FoundContent, Problem};
use crate::error::Error;

/// Hashing is CPU-bound, and the smallest supported host has two processors.
const READERS: usize = 2;

/// Size of one read in bytes.
const CHUNK: usize = 1 << 20;

/// The number of chunks by which the reader may be ahead of the digest of the whole image.
const AHEAD: usize = 8;

/// Hashes every segment of an image and, in the same pass, the whole image, whose digest it
/// returns.
pub fn measure(
    image: &Path,
    segments: &mut [Segment],
    size: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<String, Error> {
    let file = File::open(image).map_err(Error::file("read", image))?;
    let mut tenths = ByteProgress::new("sealed", size, progress);
    let (sender, chunks) = mpsc::sync_channel::<Arc<Vec<u8>>>(AHEAD);
    thread::scope(|scope| {
        let whole = scope.spawn(move || {
            let hash = chunks.iter().fold(Sha256::new(), |hash, chunk| {
                hash.chain_update(chunk.as_slice())
            });
            digest::hex(&hash.finalize())
        });
        for segment in segments {
            let mut hash = Sha256::new();
            let mut at = 0;
            while at < segment.size {
                let mut chunk = vec![0; piece(segment.size - at)];
                file.read_exact_at(&mut chunk, segment.offset + at)
                    .map_err(Error::file("read", image))?;
                let chunk = Arc::new(chunk);
                // The receiver lives until the sender is dropped.
                let _ = sender.send(Arc::clone(&chunk));
                hash.update(chunk.as_slice());
                at += chunk.len() as u64;
            }
            segment.sha256 = hash.finalize().into();
            tenths.add(segment.size);
        }
        drop(sender);
        whole
            .join()
            .map_err(|_| Error::content(image, "the thread that hashes it ended early"))
    })
}

/// Compares every segment of an image with the map.
pub fn compare(
    image: &Path,
    segments: &[Segment],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Problem>, Error> {
    // Each reader has its own file, so that the kernel reads ahead for each.
    let open = |_| File::open(image).map_err(Error::file("read", image));
    let readers = (0..READERS).map(open).collect::<Result<Vec<_>, _>>()?;
    let total = segments.iter().map(|segment| segment.size).sum();
    let mut tenths = ByteProgress::new("read", total, progress);
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut wrong = Vec::new();
    thread::scope(|scope| {
        for file in readers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let mut buffer = vec![0; CHUNK];
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(segment) = segments.get(index) else {
                        return;
                    };
                    let found = examine(&file, segment, &mut buffer).err();
                    if sender.send((index, segment.size, found)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, size, found) in results {
            wrong.extend(found.map(|found| (index, found)));
            tenths.add(size);
        }
    });
    wrong.sort_unstable_by_key(|(index, _)| *index);
    Ok(problems(segments, wrong))
}

fn examine(file: &File, segment: &Segment, buffer: &mut [u8]) -> Result<(), FoundContent> {
    let mut hash = Sha256::new();
    let mut at = 0;
    while at < segment.size {
        let chunk = &mut buffer[..piece(segment.size - at)];
        file.read_exact_at(chunk, segment.offset + at)
            .map_err(|error| FoundContent::Unreadable(error.to_string()))?;
        hash.update(&*chunk);
        at += chunk.len() as u64;
    }
    let sha256: [u8; 32] = hash.finalize().into();
    if sha256 == segment.sha256 {
        Ok(())
    } else {
        Err(FoundContent::Other)
    }
}

fn piece(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
}

/// Lists the problems; adjacent segments with the same problem become one.
fn problems(segments: &[Segment], wrong: Vec<(usize, FoundContent)>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for (index, found) in wrong {
        let Some(segment) = segments.get(index) else {
            continue;
        };
        if let Some(last) = problems.last_mut()
            && last.path == segment.path
            && last.offset + last.size == segment.offset
            && last.found == found
        {
            last.size += segment.size;
            continue;
        }
        let path = segment.path.clone();
        let within = segment.offset
            - if path.is_some() {
                beginning(segments, index)
            } else {
                0
            };
        problems.push(Problem {
            path,
            within,
            offset: segment.offset,
            size: segment.size,
            found,
        });
    }
    problems
}

/// The offset of the first byte of the file that contains a segment.
fn beginning(segments: &[Segment], index: usize) -> u64 {
    let path = segments.get(index).map(|segment| &segment.path);
    let before = segments.get(..=index).unwrap_or_default().iter().rev();
    before
        .take_while(|segment| Some(&segment.path) == path)
        .last()
        .map_or(0, |segment| segment.offset)
}
