//! PEM (RFC 7468): blocks of base64 in a text, each with a label.
//!
//! Text around blocks says nothing. Headers (RFC 1421) stand in old files alone, and mean there
//! that the block is encrypted in a way that nobody should use any more. Not here: what the bytes
//! are.

use base64::engine::{Engine as _, general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::key_file::FileFault;

/// Most blocks of one file that are read.
const MAX_BLOCKS: usize = 100;

const BEGIN: &str = "-----BEGIN ";

/// One block.
pub struct Block {
    /// Label, such as `CERTIFICATE`. Empty when the file is DER.
    pub label: String,
    /// Decoded bytes. They may be a key, so they are wiped.
    pub der: Zeroizing<Vec<u8>>,
}

/// The blocks of a file. A file without the beginning of a block is DER, and one block without a
/// label.
///
/// # Errors
/// The file has too many blocks, or one without its end or with headers, or with other characters
/// than those of base64.
pub fn blocks(bytes: &[u8]) -> Result<Vec<Block>, FileFault> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.contains(BEGIN));
    let Some(mut rest) = text else {
        return Ok(vec![Block { label: String::new(), der: Zeroizing::new(bytes.to_vec()) }]);
    };
    let mut blocks = Vec::new();
    while let Some((_, block)) = rest.split_once(BEGIN) {
        if blocks.len() == MAX_BLOCKS {
            return Err(FileFault::TooMany { max: MAX_BLOCKS });
        }
        let (label, block) = block.split_once("-----").ok_or(FileFault::Pem)?;
        let (body, after) = block.split_once(&format!("-----END {label}-----")).ok_or(FileFault::Pem)?;
        if body.contains(':') {
            let encrypted = body.contains("ENCRYPTED");
            return Err(if encrypted { FileFault::OldEncryption } else { FileFault::Pem });
        }
        let mut digits = Zeroizing::new(Vec::with_capacity(body.len()));
        digits.extend(body.bytes().filter(|b| !b.is_ascii_whitespace()));
        // Decoded into one piece, so that no copy is left behind.
        let mut der = Zeroizing::new(vec![0; digits.len() / 4 * 3 + 3]);
        let len = STANDARD.decode_slice(&*digits, &mut der).map_err(|_| FileFault::Pem)?;
        der.truncate(len);
        blocks.push(Block { label: label.to_owned(), der });
        rest = after;
    }
    Ok(blocks)
}
