//! Sessions by the beginning of their ids.

use sandbox_core::{ErrorCode, Result, SandboxError, SessionId, shown};

/// The fewest digits that name a session.
const MIN_DIGITS: usize = 4;

/// How much of an id is shown to a person.
pub(crate) const SHOWN_DIGITS: usize = 12;

/// The one session whose id begins with this.
pub(crate) fn find(ids: &[SessionId], written: &str) -> Result<SessionId> {
    let is_prefix = (MIN_DIGITS..=64).contains(&written.len())
        && written
            .bytes()
            .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    if !is_prefix {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "{} is no session id: 4 to 64 lower-case hex digits are accepted",
                shown(written)
            ),
        )
        .with_hint("`sandbox session list` shows them"));
    }
    let found: Vec<SessionId> = ids
        .iter()
        .filter(|id| id.to_string().starts_with(written))
        .copied()
        .collect();
    match found.as_slice() {
        [id] => Ok(*id),
        [] => Err(SandboxError::new(
            ErrorCode::NotFound,
            format!("there is no session {}", shown(written)),
        )
        .with_hint("`sandbox session list` shows them")),
        several => {
            let named: Vec<String> = several.iter().take(5).map(short).collect();
            Err(SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "{} names {} sessions: {}; more digits are needed",
                    shown(written),
                    several.len(),
                    named.join(", ")
                ),
            ))
        }
    }
}

/// The id as a person needs it.
pub(crate) fn short(id: &SessionId) -> String {
    id.to_string().chars().take(SHOWN_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2: a beginning is enough while it is one's own.
    #[test]
    fn cli_2_a_unique_beginning_names_a_session() {
        let id = |first: u8| SessionId::from_bytes([first; 32]);
        let mut near = [0xab; 32];
        near[31] = 0;
        let ids = [id(0xab), SessionId::from_bytes(near), id(0xcd)];
        assert_eq!(find(&ids, "cdcd").unwrap(), id(0xcd));
        assert_eq!(find(&ids, &id(0xab).to_string()).unwrap(), id(0xab));
        for (written, code) in [
            ("abab", ErrorCode::Invalid),
            ("eeee", ErrorCode::NotFound),
            ("cdc", ErrorCode::Invalid),
            ("", ErrorCode::Invalid),
            ("CDCD", ErrorCode::Invalid),
            ("../x", ErrorCode::Invalid),
        ] {
            assert_eq!(find(&ids, written).unwrap_err().code(), code, "{written}");
        }
    }
}
