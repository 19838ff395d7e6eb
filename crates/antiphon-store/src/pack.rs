//! The form of an image at rest: compressed, and checked against its digest on the way in and out. It stores nothing.

use std::io::{self, Read};

use crate::digest::digest;
use crate::{Image, ImageHeader, StoreError};

/// An image with its state compressed.
pub(crate) struct Packed {
    pub(crate) header: ImageHeader,
    pub(crate) compressed: Vec<u8>,
}

/// Verifies and compresses an image: one that would not verify later must not push out one that does.
pub(crate) fn pack(image: &Image, place: &str) -> Result<Packed, StoreError> {
    verify(image, place)?;
    let bytes = image.state.len() as u64;
    let header = ImageHeader {
        seq: image.seq,
        version: image.version,
        digest: image.digest,
        bytes,
    };
    // Zstd's default level: the higher ones cost several times the time for a few percent of an image that is replaced soon.
    let compressed = zstd::encode_all(image.state.as_slice(), zstd::DEFAULT_COMPRESSION_LEVEL)
        .map_err(|error| StoreError::Io {
            place: place.to_owned(),
            doing: "compress an image",
            source: error.into(),
        })?;
    Ok(Packed { header, compressed })
}

/// Decompresses and verifies an image.
pub(crate) fn unpack(packed: &Packed, place: &str) -> Result<Image, StoreError> {
    let Packed {
        header:
            ImageHeader {
                seq,
                version,
                digest,
                bytes,
            },
        ref compressed,
    } = *packed;
    let state = decompress(compressed, bytes).map_err(|error| StoreError::Corrupt {
        place: place.to_owned(),
        what: format!("the image at event {seq} does not decompress: {error}"),
    })?;
    let image = Image {
        seq,
        version,
        digest,
        state,
    };
    verify(&image, place)?;
    Ok(image)
}

/// Stops after `bytes`, so that a damaged image cannot fill the memory.
fn decompress(compressed: &[u8], bytes: u64) -> io::Result<Vec<u8>> {
    let mut state = Vec::new();
    zstd::Decoder::new(compressed)?
        .take(bytes.saturating_add(1))
        .read_to_end(&mut state)?;
    Ok(state)
}

fn verify(image: &Image, place: &str) -> Result<(), StoreError> {
    let found = digest(&image.state);
    if found == image.digest {
        return Ok(());
    }
    let Image { seq, digest, .. } = image;
    let what = format!("the image at event {seq} has digest {found}, and {digest} was recorded");
    Err(StoreError::Corrupt {
        place: place.to_owned(),
        what,
    })
}
