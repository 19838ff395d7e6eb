//! A file as text, decompressed where it is compressed. Knows no format.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::TraceError;

/// No file is larger once decompressed: a month of a large cluster is a tenth of it, a compression bomb is more.
const BYTES_MAX: u64 = 1 << 30;

/// A file that was read.
pub(crate) struct Source {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// What it says; without the line in which it was cut short.
    pub(crate) text: String,
    /// In which line and why it ends early.
    pub(super) cut: Option<(u64, String)>,
}

impl Source {
    /// Reads a file. Compression is told from the first bytes, not from the name.
    pub(crate) fn open(path: &Path) -> Result<Self, TraceError> {
        let unreadable = |source| TraceError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut raw = Vec::new();
        (&mut file)
            .take(BYTES_MAX)
            .read_to_end(&mut raw)
            .map_err(unreadable)?;
        let (bytes, ended) = decompress(raw);
        if let Err(error) = &ended
            && bytes.is_empty()
        {
            return Err(TraceError::CutShort {
                path: path.to_owned(),
                line: 1,
                reason: error.to_string(),
            });
        }
        let mut text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let cut = ended.err().map(|error| {
            text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
            (line_at(&text, text.len()), error.to_string())
        });
        Ok(Self {
            path: path.to_owned(),
            text,
            cut,
        })
    }

    /// The file's name without its endings.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut name = name.as_ref();
        for ending in [
            ".gz", ".zst", ".csv", ".trace", ".json", ".txt", ".tsv", ".psv",
        ] {
            name = name.strip_suffix(ending).unwrap_or(name);
        }
        name.to_owned()
    }
}

/// The line, from 1, that the byte at `offset` stands in.
pub(super) fn line_at(text: &str, offset: usize) -> u64 {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// What could be decompressed, and how it ended.
fn decompress(raw: Vec<u8>) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    let ended = if raw.starts_with(&[0x1f, 0x8b]) {
        drain(flate2::read::MultiGzDecoder::new(&raw[..]), &mut bytes)
    } else if raw.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        match zstd::stream::read::Decoder::new(&raw[..]) {
            Ok(decoder) => drain(decoder, &mut bytes),
            Err(error) => Err(error),
        }
    } else {
        return (raw, Ok(()));
    };
    (bytes, ended)
}

/// Reads to the end or to the first error, and keeps what came before it.
fn drain(mut from: impl Read, into: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = vec![0; 1 << 16];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => into.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if into.len() as u64 > BYTES_MAX {
            return Err(io::Error::other("it is larger than 1 GiB"));
        }
    }
}
