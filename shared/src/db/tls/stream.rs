//! TLS under tokio-postgres: a stream over a socket of ours, driven by whoever polls that socket.

use super::{PreparedTls, TlsError, end_point, handshake_error};
use crate::db::frames::Frames;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// What tokio-postgres is given for the TLS handshake. Without `prepared` it is never asked to.
#[derive(Debug)]
pub struct Handshake {
    pub prepared: Option<PreparedTls>,
    /// Set once the connection is encrypted.
    pub encrypted: Rc<Cell<bool>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted<S>, TlsError>>>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let Some(prepared) = self.prepared else { return Err(TlsError::Declined) };
            // From here on the connection is not plain, however the handshake ends.
            self.encrypted.set(true);
            let connector = TlsConnector::from(prepared.config);
            let stream = connector.connect(prepared.name, socket).await.map_err(|error| {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                inner.map_or_else(|| TlsError::Cut(error.to_string()), handshake_error)
            })?;
            Ok(Encrypted { stream, frames: Frames::new(false, Instant::now()) })
        })
    }
}

#[derive(Debug)]
pub struct Encrypted<S> {
    stream: tokio_rustls::client::TlsStream<S>,
    frames: Frames,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        match certificate.and_then(|certificate| end_point(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = outcome {
            self.frames.pass(buffer.filled().get(before..).unwrap_or_default(), Instant::now())?;
        }
        outcome
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
