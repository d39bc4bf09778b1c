//! The ids in the write-ahead log of an etcd member, which identify the owner of the data.
//!
//! Each file of the log begins with a record of the metadata (etcd, `server/storage/wal/wal.go` and
//! `encoder.go`): frames of eight bytes with the length, whose highest byte counts the padding, a
//! record, and the padding.

use std::fmt;

use prost::Message;

/// Bytes at the beginning of a file of the log that contain the metadata.
pub const HEAD: u64 = 4096;

/// The type of the record with the metadata.
const METADATA: i64 = 1;

/// The ids of a member and of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The cluster's.
    pub cluster: u64,
    /// The member's. A member that is removed and added again has another one.
    pub member: u64,
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {:x} of cluster {:x}", self.member, self.cluster)
    }
}

/// etcd's `walpb.Record`, without its checksum.
#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

/// etcd's `etcdserverpb.Metadata`.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    member: u64,
    #[prost(uint64, tag = "2")]
    cluster: u64,
}

/// Reads the ids from the first bytes of a log file; `None` if it is not a log file of etcd.
#[must_use]
pub fn ids(head: &[u8]) -> Option<Ids> {
    let mut rest = head;
    loop {
        let (frame, after) = rest.split_first_chunk::<8>()?;
        let frame = u64::from_le_bytes(*frame);
        let [.., highest] = frame.to_le_bytes();
        let padding = if highest & 0x80 == 0 { 0 } else { highest & 7 };
        let size = usize::try_from(frame & (u64::MAX >> 8)).ok()?;
        if size == 0 {
            return None;
        }
        let record = LogRecord::decode(after.get(..size)?).ok()?;
        if record.kind == METADATA {
            let Metadata { member, cluster } = Metadata::decode(record.data.as_slice()).ok()?;
            return (member != 0 && cluster != 0).then_some(Ids { cluster, member });
        }
        rest = after.get(size + usize::from(padding)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: i64, data: Vec<u8>) -> Vec<u8> {
        let record = LogRecord { kind, data }.encode_to_vec();
        let padding = (8 - record.len() % 8) % 8;
        let mut length = (record.len() as u64).to_le_bytes();
        if padding != 0 {
            length[7] = 0x80 | u8::try_from(padding).unwrap();
        }
        let zeros = std::iter::repeat_n(0, padding);
        length.into_iter().chain(record).chain(zeros).collect()
    }

    fn metadata(member: u64, cluster: u64) -> Vec<u8> {
        frame(METADATA, Metadata { member, cluster }.encode_to_vec())
    }

    #[test]
    fn the_metadata_come_after_the_checksum() {
        let wanted = Ids {
            cluster: 0xcdf8_1819_4e3a_8c32,
            member: 0x8e9e_05c5_2164_694d,
        };
        for other in [Vec::new(), vec![7; 3], vec![7; 4], vec![7; 90]] {
            let log = [
                frame(4, other),
                metadata(wanted.member, wanted.cluster),
                vec![0; 64],
            ];
            assert_eq!(ids(&log.concat()), Some(wanted));
        }
        assert_eq!(
            wanted.to_string(),
            "member 8e9e05c52164694d of cluster cdf818194e3a8c32"
        );
    }

    #[test]
    fn a_file_that_is_not_a_log_has_no_ids() {
        let whole = metadata(1, 2);
        for damaged in [
            &b""[..],
            b"etcd",
            b"no log of etcd, but a text",
            &[0; 4096],
            &[0xff; 4096],
            whole.get(..whole.len() / 2).unwrap(),
            &metadata(0, 2),
            &frame(2, vec![1]),
        ] {
            assert_eq!(ids(damaged), None, "{damaged:?}");
        }
    }
}
