//! A byte stream that preserves the reason of its end for the reader. A master that refuses a
//! client's certificate sends an alert and closes, while the client writes its first call. Without
//! this stream, the write would fail with "broken pipe", and the alert with the reason would never
//! be read.

use std::io;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream that this module describes.
pub(super) struct LastWord<S> {
    stream: S,
    /// `true` after the peer has stopped accepting bytes. Further writes are discarded; the next
    /// read returns the last bytes of the peer, or the end.
    is_closed: bool,
}

impl<S> LastWord<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            is_closed: false,
        }
    }

    /// The result of a write of `length` bytes: complete if the peer has closed.
    fn written<T>(&mut self, result: io::Result<T>, length: T) -> io::Result<T> {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match result {
            Err(error)
                if matches!(
                    error.kind(),
                    BrokenPipe | ConnectionAborted | ConnectionReset
                ) =>
            {
                self.is_closed = true;
                Ok(length)
            }
            other => other,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LastWord<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWord<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(self.written(result, bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum();
        if self.is_closed {
            return Poll::Ready(Ok(length));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts));
        Poll::Ready(self.written(result, length))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_closed {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(self.written(result, ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_closed {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
        Poll::Ready(self.written(result, ()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A peer that has sent its last bytes: it can be read, and accepts nothing.
    struct Closed {
        said: io::Cursor<&'static [u8]>,
        error: ErrorKind,
    }

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.said).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(self.error.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.error.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.error.into()))
        }
    }

    fn closed(error: ErrorKind) -> LastWord<Closed> {
        LastWord::new(Closed {
            said: io::Cursor::new(b"refused"),
            error,
        })
    }

    #[tokio::test]
    async fn what_the_peer_said_last_is_read_after_a_write_that_failed() {
        for error in [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset] {
            let mut stream = closed(error);
            stream.write_all(b"a call").await.unwrap();
            stream.flush().await.unwrap();
            let parts = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
            assert_eq!(stream.write_vectored(&parts).await.unwrap(), 3);
            let mut said = String::new();
            stream.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "refused");
            stream.shutdown().await.unwrap();
        }
    }

    #[tokio::test]
    async fn another_failure_of_a_write_is_one() {
        let mut stream = closed(ErrorKind::TimedOut);
        let error = stream.write_all(b"a call").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
