//! Signatures of plugin files.
//!
//! A signature is a record (JSON) of the custom section `kernelscript:signature` at the end of the component.
//! It signs, with ed25519, a fixed prefix, the digest of the file and the identity of the signer, so neither
//! can be exchanged: the digest is SHA-256 of the file without its signature sections. Keys are in PEM files:
//! PKCS#8 private keys, as `openssl genpkey -algorithm ed25519` creates them, and their public halves
//! (`openssl pkey -pubout`). Trust in signers is decided elsewhere (`policy`).

use std::fmt;
use std::ops::Range;

use ed25519_compact::{KeyPair, Seed};
use ks_wit::section;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::text::visible;

/// Prefix of the signed message: a signature for another purpose is never valid for a plugin.
const DOMAIN: &[u8] = b"kernelscript plugin signature 1\0";

/// Limit on the bytes of an identity. Guards messages and policies against unreadably long names.
const MAX_IDENTITY_BYTES: usize = 256;

/// Hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// A public key, as policies write it: 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// A signer whose signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The identity that the signer chose, covered by the signature.
    pub identity: String,
    /// The public key that verified the signature.
    pub key: PublicKey,
}

/// A signature from the file: an unverified claim until [`Signature::check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The claimed identity of the signer.
    pub identity: String,
    /// The claimed public key, 64 hexadecimal digits.
    pub key: String,
    /// SHA-256 of the signed file without signatures: 64 hexadecimal digits.
    pub digest: String,
    /// The ed25519 signature, 128 hexadecimal digits.
    pub signature: String,
}

/// Why a signature or a key is not valid.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The signature is for other bytes.
    #[error(
        "the file has changed since: it was signed with digest {}, and has {found}",
        visible(.signed, DIGEST_DIGITS)
    )]
    Digest {
        /// The digest in the signature.
        signed: String,
        /// The digest of the file.
        found: String,
    },
    /// The signature does not match this key, identity and digest.
    #[error("it was not made with its key, or for another identity")]
    Forged,
    /// A field is not hexadecimal or has a wrong length; the text names it.
    #[error("`{0}` is not as long as it must be, or not hexadecimal")]
    Hex(&'static str),
    /// A key file is malformed, for the reason in the text.
    #[error("not an ed25519 key in PEM: {0}")]
    Key(String),
    /// The identity is empty or too long, or contains characters that are invisible or act on a terminal.
    #[error(
        "an identity has 1 to {MAX_IDENTITY_BYTES} bytes, and no control characters or other invisible ones"
    )]
    Identity,
}

impl PublicKey {
    /// Reads 64 hexadecimal digits, or a public key in PEM.
    ///
    /// # Errors
    /// [`SignatureError::Hex`]; [`SignatureError::Key`].
    pub fn read(text: &str) -> Result<PublicKey, SignatureError> {
        let text = text.trim();
        if text.starts_with("-----BEGIN") {
            let key = ed25519_compact::PublicKey::from_pem(text)
                .map_err(|error| SignatureError::Key(error.to_string()))?;
            return Ok(PublicKey(*key));
        }
        from_hex(text).map(PublicKey).ok_or(SignatureError::Hex("key"))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl Signature {
    /// Verifies the signature for a file of this digest, and returns the signer.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn check(&self, digest: &[u8; 32]) -> Result<Signer, SignatureError> {
        check_identity(&self.identity)?;
        let found = hex(digest);
        if self.digest != found {
            return Err(SignatureError::Digest { signed: self.digest.clone(), found });
        }
        let key: [u8; 32] = from_hex(&self.key).ok_or(SignatureError::Hex("key"))?;
        let signature: [u8; 64] = from_hex(&self.signature).ok_or(SignatureError::Hex("signature"))?;
        let signature = ed25519_compact::Signature::new(signature);
        let valid = ed25519_compact::PublicKey::new(key).verify(message(digest, &self.identity), &signature);
        valid.map_err(|_| SignatureError::Forged)?;
        Ok(Signer { identity: self.identity.clone(), key: PublicKey(key) })
    }
}

/// Returns the file with one more signature, by this identity with this private key (PEM). Existing
/// signatures stay.
///
/// # Errors
/// [`SignatureError::Key`]; [`SignatureError::Identity`].
pub fn sign(plugin: &super::Plugin, identity: &str, key: &str) -> Result<Vec<u8>, SignatureError> {
    check_identity(identity)?;
    let key = KeyPair::from_pem(key).map_err(|error| SignatureError::Key(error.to_string()))?;
    let digest = plugin.digest();
    let signature = Signature {
        identity: identity.into(),
        key: hex(&*key.pk),
        digest: hex(&digest),
        signature: hex(&*key.sk.sign(message(&digest, identity), None)),
    };
    let record = serde_json::to_vec(&signature).map_err(|error| SignatureError::Key(error.to_string()))?;
    let mut data = Vec::new();
    section::push_record(&mut data, &record);
    let mut body = Vec::new();
    push_leb(&mut body, section::SIGNATURE.len());
    body.extend_from_slice(section::SIGNATURE.as_bytes());
    body.extend_from_slice(&data);
    let mut file = plugin.bytes().to_vec();
    file.push(0);
    push_leb(&mut file, body.len());
    file.extend_from_slice(&body);
    Ok(file)
}

/// Returns the private and the public key of a secret random number, in PEM.
///
/// # Errors
/// [`SignatureError::Key`] if the number is 0, which is not random.
pub fn key_pair(seed: &[u8; 32]) -> Result<(String, String), SignatureError> {
    let pair =
        KeyPair::try_from_seed(Seed::new(*seed)).map_err(|error| SignatureError::Key(error.to_string()))?;
    Ok((pair.sk.to_pem(), pair.pk.to_pem()))
}

/// Computes SHA-256 of a component without its signature sections.
pub(super) fn digest(component: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut from = 0;
    for part in signature_sections(component) {
        digest.update(&component[from..part.start]);
        from = part.end;
    }
    digest.update(&component[from..]);
    digest.finalize().into()
}

/// Finds the ranges of a component's signature sections, headers included; sections of nested modules do not
/// count.
fn signature_sections(component: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // Skips magic and version; each section is an id byte, a length and its content.
    let mut at = 8;
    while let Some(section) = component.get(at..).and_then(Section::first) {
        let end = at + section.bytes;
        if section.id == 0 && name(section.content) == Some(section::SIGNATURE.as_bytes()) {
            found.push(at..end);
        }
        at = end;
    }
    found
}

struct Section<'a> {
    id: u8,
    content: &'a [u8],
    /// Size including the header.
    bytes: usize,
}

impl Section<'_> {
    fn first(bytes: &[u8]) -> Option<Section<'_>> {
        let (&id, rest) = bytes.split_first()?;
        let (len, rest) = leb(rest)?;
        let content = rest.get(..len)?;
        Some(Section { id, content, bytes: bytes.len() - rest.len() + len })
    }
}

fn name(content: &[u8]) -> Option<&[u8]> {
    let (len, rest) = leb(content)?;
    rest.get(..len)
}

/// Decodes a LEB128 number of at most 32 bits; returns it with the remaining bytes.
fn leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

fn push_leb(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn message(digest: &[u8; 32], identity: &str) -> Vec<u8> {
    [DOMAIN, digest, identity.as_bytes()].concat()
}

fn check_identity(identity: &str) -> Result<(), SignatureError> {
    let is_visible = visible(identity, MAX_IDENTITY_BYTES) == identity;
    let fits = (1..=MAX_IDENTITY_BYTES).contains(&identity.len()) && is_visible;
    if fits { Ok(()) } else { Err(SignatureError::Identity) }
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let bytes: Vec<u8> = digits?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    // Rejects an odd number of digits, too.
    if text.len() == 2 * N { bytes.try_into().ok() } else { None }
}
