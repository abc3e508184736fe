//! Parsers of sizes and times as people write them.
//!
//! Units of sizes are powers of 1024, as in perf's `-m` and in `ls -h`; times are those of systemd.time(7).

use std::time::Duration;

/// Parses a number of bytes: `4096`, `64K`, `16M`, `1G`, also with `iB` after the letter.
///
/// # Errors
/// Describes the expected form.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => Some(1),
        "K" | "k" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        "G" | "GiB" => Some(1 << 30),
        "T" | "TiB" => Some(1_u64 << 40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("`{text}` is not a size: write a number of bytes, or 64K, 16M, 1G"))
}

/// Parses a time: a number of seconds with or without a fraction, or numbers with units, `300ms`, `2m`, `1h
/// 30m`.
///
/// # Errors
/// Describes the expected form.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let found = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => humantime::parse_duration(text).ok(),
    };
    found.ok_or_else(|| format!("`{text}` is not a time: write a number of seconds, or 300ms, 10s, 2m, 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        let sizes = ["0", "4096", "64K", "1M", "2GiB", "1T"].map(|text| bytes(text).ok());
        assert_eq!(sizes, [0, 4096, 65_536, 1 << 20, 2 << 30, 1 << 40].map(Some));
        for text in ["", "K", "-1", "1X", "1.5M", "99999999999T", "1 M"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let times = ["1", "0.5", "300ms", "2m", "1h 30m"].map(|text| duration(text).ok());
        let wanted = [1000, 500, 300, 120_000, 5_400_000];
        assert_eq!(times, wanted.map(|time| Some(Duration::from_millis(time))));
        for text in ["", "-1", "m", "NaN", "inf", "3 elephants"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
