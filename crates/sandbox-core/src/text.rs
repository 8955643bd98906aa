//! How a value of a caller's is shown in a message: cut, and with nothing that steers a terminal.

use std::fmt::Write as _;

/// The longest part of a value that a message repeats, in bytes of input.
const MAX_SHOWN_BYTES: usize = 120;

/// Quotes a value for a message: cut to a sane length, control characters escaped.
///
/// Bytes that are not UTF-8 show as `\xNN`. SPEC ERR-3.
///
/// ```
/// assert_eq!(sandbox_core::shown("a\nb"), r#""a\nb""#);
/// assert_eq!(sandbox_core::shown(b"caf\xe9"), r#""caf\xe9""#);
/// ```
#[must_use]
pub fn shown(value: impl AsRef<[u8]>) -> String {
    let value = value.as_ref();
    let cut = cut_point(value);
    let mut out = String::from("\"");
    for chunk in value[..cut].utf8_chunks() {
        for character in chunk.valid().chars() {
            push_escaped(&mut out, character);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    if cut < value.len() {
        let _ = write!(out, "… ({} bytes)", value.len());
    }
    out
}

/// The last character boundary at or before the bound, so that a cut shows no half character.
fn cut_point(value: &[u8]) -> usize {
    if value.len() <= MAX_SHOWN_BYTES {
        return value.len();
    }
    let mut cut = MAX_SHOWN_BYTES;
    // A continuation byte is 10xxxxxx (RFC 3629): at most three stand before a boundary.
    while cut > MAX_SHOWN_BYTES - 4 && value[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    cut
}

fn push_escaped(out: &mut String, character: char) {
    match character {
        '"' | '\\' => {
            out.push('\\');
            out.push(character);
        }
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        // `Debug` escapes what does not print, the bidirectional controls among it.
        other => out.extend(other.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ERR-3: what is shown never holds a control character and is bounded.
    #[test]
    fn err_3_values_are_cut_and_escaped() {
        assert_eq!(shown(""), "\"\"");
        assert_eq!(shown("\u{1b}[31m"), "\"\\u{1b}[31m\"");
        assert_eq!(shown("a\u{202e}b"), "\"a\\u{202e}b\"");
        assert_eq!(shown("nul\0"), "\"nul\\0\"");
        let long = shown("é".repeat(1000));
        assert!(long.len() < 160, "{long}");
        assert!(long.ends_with("… (2000 bytes)"), "{long}");
        assert!(!long.contains("\\x"), "{long}");
    }
}
