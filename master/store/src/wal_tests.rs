//! Checks the reader of the log against logs that SQLite wrote, and SQLite against logs that the
//! reader accepts.

use std::fs;
use std::os::unix::fs::FileExt as _;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tempfile::TempDir;

use super::*;

/// A database with a log, opened by SQLite.
struct Database {
    directory: TempDir,
    connection: SqliteConnection,
}

async fn connect(path: &Path, page: u32) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .page_size(page)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("wal_autocheckpoint", "0");
    SqliteConnection::connect_with(&options).await.unwrap()
}

impl Database {
    async fn new(page: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let connection = connect(&directory.path().join("db"), page).await;
        let mut new = Self {
            directory,
            connection,
        };
        new.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB)")
            .await;
        new
    }

    async fn execute(&mut self, sql: &str) {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        sqlx::query(sql)
            .execute(&mut self.connection)
            .await
            .unwrap();
    }

    /// Commits a row of this size.
    async fn commit(&mut self, size: u32) {
        self.execute(&format!("INSERT INTO t (x) VALUES (randomblob({size}))"))
            .await;
    }

    /// Writes all of the log into the file, so that the next commit starts another one.
    async fn checkpoint(&mut self) {
        self.execute("PRAGMA wal_checkpoint(PASSIVE)").await;
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("db-wal")
    }

    fn end(&self) -> End {
        end(&self.directory.path().join("db-shm")).unwrap().unwrap()
    }

    /// The bytes of the log in the file, including those behind its end.
    fn bytes(&self) -> Vec<u8> {
        fs::read(self.log()).unwrap()
    }
}

/// Reads the chain of these bytes through a file.
fn read(bytes: &[u8]) -> Option<Chain> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, bytes).unwrap();
    Chain::read(&path).unwrap()
}

fn committed(bytes: &[u8]) -> u32 {
    let chain = read(bytes);
    let position = chain.as_ref().and_then(Chain::committed);
    position.map_or(0, |position| position.frames)
}

/// The number of rows that SQLite finds in a database with this log.
async fn rows_by_sqlite(database: &[u8], log: &[u8]) -> i64 {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("db");
    fs::write(&path, database).unwrap();
    fs::write(directory.path().join("db-wal"), log).unwrap();
    let mut connection = connect(&path, 4096).await;
    let row = sqlx::query("SELECT count(*) FROM t")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    row.try_get(0).unwrap()
}

/// The log with the checksums of the other byte order, as a machine with that byte order writes it.
fn in_other_order(log: &[u8], page: usize) -> Vec<u8> {
    let mut log = log.to_vec();
    let magic = u32::from_be_bytes(array(&log));
    let (other, word): (u32, fn([u8; 4]) -> u32) = match magic {
        LITTLE => (BIG, u32::from_be_bytes),
        BIG => (LITTLE, u32::from_le_bytes),
        _ => panic!("{magic:x}"),
    };
    log[..4].copy_from_slice(&other.to_be_bytes());
    let mut sum = Sum(0, 0).add(&log[..24], word);
    log[24..32].copy_from_slice(&sum.bytes());
    for frame in log[HEADER..].chunks_exact_mut(FRAME_HEADER + page) {
        sum = sum.add(&frame[..8], word).add(&frame[FRAME_HEADER..], word);
        frame[16..FRAME_HEADER].copy_from_slice(&sum.bytes());
    }
    log
}

#[tokio::test]
async fn the_index_and_the_frames_have_the_same_end_for_each_size_of_a_page() {
    for page in [512, 1024, 4096, 32768, 65536] {
        let mut database = Database::new(page).await;
        for size in [1, 100, 5000, 100_000, 3] {
            database.commit(size).await;
            let end = database.end();
            assert_eq!(end.page, usize::try_from(page).unwrap());
            let chain = Chain::read(&database.log()).unwrap().unwrap();
            assert_eq!(chain.committed(), Some(end.position), "{page}");
            assert!(chain.is_whole());
            assert_eq!(chain.offset(), offset(end.position.frames, end.page));
        }
    }
}

#[tokio::test]
async fn a_log_of_the_other_byte_order_is_read_as_sqlite_reads_it() {
    let mut database = Database::new(4096).await;
    for _ in 0..9 {
        database.commit(3000).await;
    }
    let (own, page) = (database.bytes(), database.end().page);
    let other = in_other_order(&own, page);
    assert_ne!(own, other);
    let file = fs::read(database.directory.path().join("db")).unwrap();
    assert_eq!(rows_by_sqlite(&file, &other).await, 9);
    assert_eq!(committed(&other), database.end().position.frames);
    // A damaged bit is detected in this byte order too.
    let mut damaged = other.clone();
    let last = damaged.len() - 100;
    damaged[last] ^= 4;
    assert!(committed(&damaged) < committed(&other));
    assert_eq!(rows_by_sqlite(&file, &damaged).await, 8);
}

#[tokio::test]
async fn a_log_that_is_cut_anywhere_ends_with_the_last_whole_commit() {
    let mut database = Database::new(512).await;
    let mut ends = vec![0, database.end().position.frames];
    for size in [10, 700, 2000, 10] {
        database.commit(size).await;
        ends.push(database.end().position.frames);
    }
    let bytes = database.bytes();
    let at = |frames: u32| usize::try_from(offset(frames, 512)).unwrap();
    let file = fs::read(database.directory.path().join("db")).unwrap();
    for length in (0..=bytes.len())
        .step_by(61)
        .chain([31, 32, 33, bytes.len() - 1])
    {
        let expected = ends.iter().rev().find(|end| at(**end) <= length);
        let expected = expected.copied().unwrap_or(0);
        assert_eq!(committed(&bytes[..length]), expected, "{length}");
        // SQLite finds the same.
        let commits = ends
            .iter()
            .filter(|end| **end != 0 && **end <= expected)
            .count();
        if commits > 0 {
            let rows = rows_by_sqlite(&file, &bytes[..length]).await;
            assert_eq!(usize::try_from(rows).unwrap(), commits - 1, "{length}");
        }
    }
}

#[tokio::test]
async fn each_flipped_bit_ends_the_log_before_its_frame() {
    let mut database = Database::new(512).await;
    let mut ends = vec![0, database.end().position.frames];
    for _ in 0..5 {
        database.commit(600).await;
        ends.push(database.end().position.frames);
    }
    let bytes = database.bytes();
    let frame = FRAME_HEADER + 512;
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1 << (byte % 8);
        let expected = if byte < HEADER {
            0
        } else {
            let damaged = u32::try_from((byte - HEADER) / frame).unwrap();
            ends.iter()
                .rev()
                .find(|end| **end <= damaged)
                .copied()
                .unwrap()
        };
        let chain = match Chain::begin(&damaged) {
            Ok(mut chain) => {
                for frame in damaged[HEADER..].chunks_exact(frame) {
                    if chain.add(frame).is_err() {
                        break;
                    }
                }
                chain.rewind();
                chain.committed()
            }
            Err(_) => None,
        };
        assert_eq!(chain.map_or(0, |end| end.frames), expected, "byte {byte}");
    }
    // Frames that are added at once count completely or not at all.
    let mut chain = Chain::begin(&bytes).unwrap();
    let mut damaged = bytes[HEADER..].to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(chain.add(&damaged), Err(WalError::Chain(_))));
    assert_eq!(chain.committed(), None);
    chain.add(&bytes[HEADER..]).unwrap();
    assert_eq!(chain.committed(), Some(database.end().position));
}

#[tokio::test]
async fn frames_of_the_log_before_are_behind_the_end_and_of_another_salt() {
    let mut database = Database::new(4096).await;
    for _ in 0..20 {
        database.commit(3000).await;
    }
    let before = database.end();
    let length = database.bytes().len();
    database.checkpoint().await;
    assert_eq!(database.end(), before, "the log starts again with a commit");
    database.commit(10).await;
    let after = database.end();
    assert_ne!(after.position.salt, before.position.salt);
    assert!(after.position.frames < before.position.frames);
    // SQLite overwrites the file: the rest of it belongs to the previous log.
    assert_eq!(database.bytes().len(), length);
    let chain = Chain::read(&database.log()).unwrap().unwrap();
    assert_eq!(chain.committed(), Some(after.position));
    assert!(!has(&database.log(), &after, &before.position).unwrap());
    assert!(has(&database.log(), &after, &after.position).unwrap());
    // One salt grows by one with each log: logs of one file can be put in order.
    let number = |end: &End| u32::from_be_bytes(array(&end.position.salt));
    assert_eq!(number(&after), number(&before).wrapping_add(1));
}

#[tokio::test]
async fn a_place_is_found_only_after_a_commit_of_the_same_log() {
    let mut database = Database::new(512).await;
    let mut places = vec![database.end().position];
    for _ in 0..4 {
        database.commit(2000).await;
        places.push(database.end().position);
    }
    let (log, end) = (database.log(), database.end());
    for place in &places {
        assert!(has(&log, &end, place).unwrap(), "{place:?}");
        for other in [
            Position {
                frames: place.frames - 1,
                ..*place
            },
            Position {
                frames: end.position.frames + 1,
                ..*place
            },
            Position {
                checksum: [7; 8],
                ..*place
            },
            Position {
                salt: [7; 8],
                ..*place
            },
        ] {
            assert!(!has(&log, &end, &other).unwrap(), "{other:?}");
        }
    }
}

#[tokio::test]
async fn pieces_are_the_bytes_of_the_log_and_follow_each_other() {
    let mut database = Database::new(512).await;
    for _ in 0..6 {
        database.commit(5000).await;
    }
    let (log, end) = (database.log(), database.end());
    let bytes = database.bytes();
    for most in [1, 536, 1500, 1 << 20] {
        let (mut behind, mut joined) = (0, Vec::new());
        let mut chain = Chain::begin(&bytes).unwrap();
        while let Some(next) = piece(&log, behind, &end, most).unwrap() {
            assert_eq!(usize::try_from(next.offset).unwrap(), joined.len());
            let frames = next.data.get(if behind == 0 { HEADER } else { 0 }..);
            chain.add(frames.unwrap()).unwrap();
            joined.extend(next.data);
            behind = next.frames;
        }
        assert_eq!(joined, bytes[..joined.len()], "{most}");
        assert_eq!(chain.committed(), Some(end.position), "{most}");
    }
    // Another log has replaced it.
    database.checkpoint().await;
    database.commit(10).await;
    // The file has the first frames of the new log, and the last ones of the previous log.
    for (behind, most) in [(0, 1 << 20), (0, 1)] {
        let refused = piece(&log, behind, &end, most);
        assert!(
            matches!(refused, Err(WalError::Chain(_))),
            "{behind} {most}"
        );
    }
}

#[tokio::test]
async fn a_changing_or_damaged_index_gives_no_end() {
    let mut database = Database::new(4096).await;
    database.commit(10).await;
    let directory = TempDir::new().unwrap();
    let index = directory.path().join("index");
    assert_eq!(end(&index).unwrap(), None, "no index, no log");
    fs::copy(database.directory.path().join("db-shm"), &index).unwrap();
    assert_eq!(end(&index).unwrap(), Some(database.end()));
    let file = fs::OpenOptions::new().write(true).open(&index).unwrap();
    // Damage one of the two copies of its header, as in the middle of a commit.
    file.write_all_at(&[9], 16).unwrap();
    assert!(matches!(end(&index), Err(WalError::Busy)));
    file.write_all_at(&[9], 16 + 48).unwrap();
    assert!(matches!(end(&index), Err(WalError::Busy)), "its checksum");
}

#[test]
fn an_invalid_log_is_refused_or_ignored() {
    for bytes in [&[] as &[u8], &[0; 31], &[0; 32], &[0xff; 4096]] {
        assert!(read(bytes).is_none());
        assert!(Chain::begin(bytes).is_err());
    }
    let directory = TempDir::new().unwrap();
    assert!(
        Chain::read(&directory.path().join("none"))
            .unwrap()
            .is_none()
    );
    // An unreadable log is not a short log.
    let error = Chain::read(directory.path()).unwrap_err();
    assert!(matches!(error, WalError::File { .. }), "{error}");
}
