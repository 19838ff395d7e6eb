//! As much HTTP/1.1 as the load needs: one kept connection, a body of known length there and back. A full client would
//! take as much of the two cores as the server that is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::Result;

/// One kept connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(1 << 16),
        })
    }

    /// Sends a whole request and reads the whole answer: status and body.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        self.stream.write_all(request)?;
        self.buffer.clear();
        let mut chunk = [0; 16_384];
        let (head, length) = loop {
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            self.buffer.extend_from_slice(&chunk[..read]);
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break (end + 4, content_length(&self.buffer[..end])?);
            }
        };
        while self.buffer.len() < head + length {
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the server closed the connection within an answer".into());
            }
            self.buffer.extend_from_slice(&chunk[..read]);
        }
        let status = std::str::from_utf8(&self.buffer[9..12])?.parse()?;
        Ok((status, &self.buffer[head..head + length]))
    }
}

fn content_length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?;
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let length = lines
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, value)| value.trim().parse())
        .next();
    Ok(length.ok_or("an answer without a length")??)
}

/// A request in whole.
pub(crate) fn request(method: &str, path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let mut whole = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    whole.extend_from_slice(body);
    whole
}
