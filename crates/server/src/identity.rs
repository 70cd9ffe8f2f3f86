//! The identity of this server among the servers of a cluster, and hashes for the labels of metrics.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// `apiserver-` and a short hash of the host name, as in kube-apiserver.
pub fn id() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let digest = Sha256::digest(host.trim().to_lowercase());
    let mut text = String::from("apiserver-");
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in digest.iter().take(16) {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(letter(held >> bits));
            held &= (1 << bits) - 1;
        }
    }
    if bits > 0 {
        text.push(letter(held << (5 - bits)));
    }
    text
}

/// The base 32 digit of the low five bits, in lower case.
fn letter(value: u32) -> char {
    char::from_digit(value & 31, 32).map_or('a', |digit| match digit.to_digit(32) {
        Some(value @ 0..=25) => char::from(b'a' + u8::try_from(value).unwrap_or(0)),
        Some(value) => char::from(b'2' + u8::try_from(value - 26).unwrap_or(0)),
        None => 'a',
    })
}

/// `sha256:` and the hex digest; empty for empty content.
pub fn hash(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_server_identity_is_stable_and_has_the_format_of_kubernetes() {
        let id = super::id();
        assert_eq!(id, super::id());
        let hash = id.strip_prefix("apiserver-").unwrap();
        assert_eq!(hash.len(), 26);
        assert!(hash.chars().all(|c| matches!(c, 'a'..='z' | '2'..='7')));
    }
}
