//! Sizes and times with units.

/// Units of sizes above a byte, each 1024 times the one before.
const OF_BYTES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Units of times above a nanosecond, with the nanoseconds that they have.
const OF_TIME: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", SECOND)];

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Longer units, with their seconds; a time is shown with two of them.
const LONGER: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Formats a number of bytes in the largest unit of which there is at least one.
pub(crate) fn bytes(number: u64) -> String {
    if number < 1024 {
        return format!("{number} B");
    }
    let exponent = number.ilog2() / 10;
    let tenths = tenths(number, 1 << (10 * exponent));
    // 1023.95 KiB and more are 1.0 MiB.
    match OF_BYTES.get(exponent as usize) {
        Some(next) if tenths >= 10_240 => format!("1.0 {next}"),
        _ => format!("{}.{} {}", tenths / 10, tenths % 10, OF_BYTES[exponent as usize - 1]),
    }
}

/// Formats a time in nanoseconds in the largest unit of which there is at least one, from a minute on in two.
pub(crate) fn duration(time: u64) -> String {
    if time < OF_TIME[0].1 {
        return format!("{time} ns");
    }
    let shorter = OF_TIME.iter().enumerate().rev().find(|(_, (_, unit))| time >= *unit);
    if time < 60 * SECOND
        && let Some((at, (name, unit))) = shorter
    {
        let tenths = tenths(time, *unit);
        // 999.95 us and more are 1.0 ms.
        return match OF_TIME.get(at + 1) {
            Some((next, _)) if tenths >= 10_000 => format!("1.0 {next}"),
            _ if tenths < 600 || at < OF_TIME.len() - 1 => format!("{}.{} {name}", tenths / 10, tenths % 10),
            _ => in_two_units(60),
        };
    }
    in_two_units(time / SECOND)
}

/// Formats seconds, at least 60, as the two largest units.
fn in_two_units(seconds: u64) -> String {
    let first = LONGER.iter().position(|(_, unit)| seconds >= *unit).unwrap_or_default();
    let mut rest = seconds;
    let parts = LONGER.iter().skip(first).take(2).map(|(name, unit)| {
        let number = rest / unit;
        rest %= unit;
        format!("{number}{name}")
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns the tenths of a unit in a number, rounded.
fn tenths(number: u64, unit: u64) -> u128 {
    (u128::from(number) * 10 + u128::from(unit) / 2) / u128::from(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit() {
        let numbers = [0, 1023, 1024, 1536, 1_048_524, 1_048_525, 1 << 20, 5 << 30, u64::MAX];
        let texts = [
            "0 B",
            "1023 B",
            "1.0 KiB",
            "1.5 KiB",
            "1023.9 KiB",
            "1.0 MiB",
            "1.0 MiB",
            "5.0 GiB",
            "16.0 EiB",
        ];
        assert_eq!(numbers.map(bytes), texts);
    }

    #[test]
    fn times_have_the_largest_unit_or_two() {
        let shorter = [0, 999, 1000, 1500, 999_949, 999_950, 20_000_000, 3_249_000_000, 59_940_000_000];
        let texts =
            ["0 ns", "999 ns", "1.0 us", "1.5 us", "999.9 us", "1.0 ms", "20.0 ms", "3.2 s", "59.9 s"];
        assert_eq!(shorter.map(duration), texts);
        let longer =
            [59_960_000_000, 125 * SECOND, 3 * 3600 * SECOND + 12 * 60 * SECOND, 446_400 * SECOND, u64::MAX];
        assert_eq!(longer.map(duration), ["1m 0s", "2m 5s", "3h 12m", "5d 4h", "213503d 23h"]);
    }
}
