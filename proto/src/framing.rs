//! Consecutive messages in a stream of bytes, from one program to another on the same host.

use std::io;
use std::io::{Read, Write};

use prost::Message;

/// The largest message in bytes.
const LARGEST: u32 = 4 << 20;

/// Writes a message.
///
/// # Errors
/// The message is too large, or the stream is closed.
pub fn write(to: &mut impl Write, message: &impl Message) -> io::Result<()> {
    let bytes = message.encode_to_vec();
    let size = u32::try_from(bytes.len())
        .ok()
        .filter(|size| *size <= LARGEST);
    let size = size.ok_or_else(|| malformed("a message is too large"))?;
    to.write_all(&size.to_be_bytes())?;
    to.write_all(&bytes)
}

/// Reads the next message; `None` at the end of the stream.
///
/// # Errors
/// The stream ends within a message, or the bytes are not a message.
pub fn read<M: Message + Default>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut size = [0; 4];
    match from.read_exact(&mut size[..1]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        begun => begun?,
    }
    from.read_exact(&mut size[1..])?;
    let size = u32::from_be_bytes(size);
    if size > LARGEST {
        return Err(malformed("this is not a message"));
    }
    let mut bytes = vec![0; size as usize];
    from.read_exact(&mut bytes)?;
    let message = M::decode(bytes.as_slice());
    message
        .map(Some)
        .map_err(|_| malformed("this is not a message"))
}

fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::BackupPart;
    use crate::v1::backup_part::Part;

    #[test]
    fn messages_are_read_as_they_were_written_or_refused() {
        let message = |part| BackupPart { part: Some(part) };
        let all = [
            message(Part::HeadJson("{}".to_owned())),
            message(Part::Data(vec![7; 70_000])),
            message(Part::End(true)),
        ];
        let mut bytes = Vec::new();
        for message in &all {
            write(&mut bytes, message).unwrap();
        }
        let mut from = bytes.as_slice();
        for message in &all {
            assert_eq!(read(&mut from).unwrap().as_ref(), Some(message));
        }
        assert_eq!(read::<BackupPart>(&mut from).unwrap(), None);
        let cut = read::<BackupPart>(&mut &bytes[..3]);
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let text = read::<BackupPart>(&mut b"halite-master: this is no standby".as_slice());
        assert!(text.unwrap_err().to_string().contains("not a message"));
    }
}
