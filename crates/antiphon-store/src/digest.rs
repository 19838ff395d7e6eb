//! The encoding of the state and its digest. It knows no state: any type that serializes will do.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

/// The BLAKE3 digest of an encoded state, printed and parsed as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Computes the digest of an encoded state.
pub fn digest(encoded: &[u8]) -> Digest {
    Digest(*blake3::hash(encoded).as_bytes())
}

/// Encodes a state as postcard: the same state gives the same bytes, on any machine, as long as its maps are ordered.
///
/// # Panics
/// Panics when the type refuses to serialize, as a sequence of unknown length does; that is a bug in the type.
pub fn encode_state<T: Serialize>(state: &T) -> Vec<u8> {
    match postcard::to_stdvec(state) {
        Ok(encoded) => encoded,
        Err(error) => panic!(
            "a state of type `{}` does not serialize: {error}",
            std::any::type_name::<T>()
        ),
    }
}

/// Decodes what [`encode_state`] encoded.
///
/// # Errors
/// Fails with [`StoreError::Undecodable`] when the bytes are not those of a `T`, or when some are left over.
pub fn decode_state<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, StoreError> {
    let undecodable = |why: String| StoreError::Undecodable {
        bytes: encoded.len(),
        why,
    };
    match postcard::take_from_bytes(encoded) {
        Ok((state, [])) => Ok(state),
        // Postcard has no type tags, so bytes left over are often the only trace of a wrong version.
        Ok((_, rest)) => Err(undecodable(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(undecodable(error.to_string())),
    }
}

/// A text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a digest of 64 hex digits")]
pub struct ParseDigestError {
    text: String,
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| ParseDigestError {
                text: text.to_owned(),
            })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn digest_of_nothing_is_the_published_blake3_vector() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), digest(b""));
    }

    #[test]
    fn text_that_is_no_digest_is_named() {
        assert_eq!(
            "af13".parse::<Digest>().unwrap_err().to_string(),
            "`af13` is not a digest of 64 hex digits"
        );
    }

    #[test]
    fn state_comes_back_as_it_was_encoded() {
        let state: BTreeMap<String, Vec<u64>> = BTreeMap::from([("train".into(), vec![1, 2, 300])]);
        assert_eq!(
            decode_state::<BTreeMap<String, Vec<u64>>>(&encode_state(&state)).unwrap(),
            state
        );
    }

    #[test]
    fn state_with_bytes_left_over_is_refused() {
        let error = decode_state::<u8>(&encode_state(&(7_u8, 8_u8))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a state of 2 bytes does not decode: 1 bytes are left over"
        );
    }

    #[test]
    fn state_cut_short_is_refused() {
        let encoded = encode_state(&"a state of some length");
        assert!(matches!(
            decode_state::<String>(&encoded[..5]).unwrap_err(),
            StoreError::Undecodable { bytes: 5, .. }
        ));
    }
}
