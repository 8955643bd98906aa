//! Durations as people write them.

use std::time::Duration;

/// Reads a whole number with a unit: `ms`, `s`, `m`, `h`.
pub(crate) fn parse(written: &str) -> Result<Duration, String> {
    let accepted = || "a whole number with a unit is accepted: 500ms, 30s, 5m, 1h".to_owned();
    let digits = written.len()
        - written
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    let (number, unit) = written.split_at(digits);
    let number: u64 = number.parse().map_err(|_| accepted())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(accepted()),
    };
    match number.checked_mul(millis) {
        Some(0) => Err("it must be longer than nothing".to_owned()),
        // CMD-1's bound.
        Some(millis @ 1..=2_147_483_647) => Ok(Duration::from_millis(millis)),
        _ => Err("at most 2147483647 ms (596 h) is accepted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-1
    #[test]
    fn cli_1_durations_have_a_unit() {
        for (written, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(written), Ok(Duration::from_millis(millis)));
        }
        for refused in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "0s",
            "1d",
            "1 s",
            "99999999h",
            "18446744073709551615h",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}
