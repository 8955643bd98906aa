//! Reads the number of a command's pid 1 out of what bubblewrap writes to its status descriptor.

/// What has come so far of `{"child-pid": N, …}`.
///
/// bubblewrap writes the object field by field, and a read may end anywhere in it; after the
/// number nothing is needed, but the rest must be read, since bubblewrap would die of a closed
/// pipe.
#[derive(Debug, Default)]
pub(super) struct StatusReader {
    pending: Vec<u8>,
    found: bool,
}

impl StatusReader {
    /// Takes the next piece; gives the number once, when it is there as a whole.
    pub(super) fn push(&mut self, piece: &[u8]) -> Option<i32> {
        if self.found {
            return None;
        }
        self.pending.extend(piece);
        let number = child_pid(&self.pending);
        self.found = number.is_some() || self.pending.len() > MAX_PENDING_BYTES;
        if self.found {
            self.pending = Vec::new();
        }
        number
    }
}

fn child_pid(bytes: &[u8]) -> Option<i32> {
    const KEY: &[u8] = b"\"child-pid\":";
    let at = bytes.windows(KEY.len()).position(|part| part == KEY)?;
    let value = bytes[at + KEY.len()..].trim_ascii_start();
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    // What follows the last digit says that it was the last one.
    value.get(digits)?;
    str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

/// More than ten times what bubblewrap writes before the number.
const MAX_PENDING_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_wherever_a_read_ends() {
        let text = b"{\n    \"child-pid\": 1234\n}\n{ \"exit-code\": 0 }\n";
        let end = text.iter().position(|byte| *byte == b'4').unwrap();
        for cut in 0..text.len() {
            let mut reader = StatusReader::default();
            let (head, tail) = text.split_at(cut);
            let found = [reader.push(head), reader.push(tail), reader.push(text)];
            // The byte after the last digit decides which piece gives the number.
            let first = cut > end + 1;
            let expected = [first.then_some(1234), (!first).then_some(1234), None];
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_status_gives_no_number_and_stays_small() {
        let mut reader = StatusReader::default();
        assert_eq!(reader.push(b"{ \"child-pid\": x }"), None);
        assert_eq!(reader.push(b"{ \"child-pid\": 99999999999 }"), None);
        for _ in 0..10_000 {
            assert_eq!(reader.push(b"garbage"), None);
        }
        assert!(reader.pending.capacity() <= 2 * MAX_PENDING_BYTES);
    }
}
