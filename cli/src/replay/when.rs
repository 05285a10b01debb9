//! Times as logs write them, in milliseconds since 1970.

/// A time, and whether the log has more of it than seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct When {
    pub(crate) ms: u64,
    pub(crate) has_millis: bool,
}

/// Reads times. Neighbouring lines mostly share their second: it is read once.
#[derive(Default)]
pub(crate) struct Clock {
    text: Vec<u8>,
    second: u64,
}

/// The numbers from which on a time is in milliseconds, and in microseconds.
const FIRST_MILLIS: f64 = 1e11;
const FIRST_MICROS: f64 = 1e14;

impl Clock {
    /// The time that stands there: `2026-11-23T00:18:51.310Z`, with a space or slashes too, and with an offset;
    /// `23/Nov/2026:00:18:51 +0000`; or a number of seconds (with a fraction), milliseconds or microseconds.
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<When> {
        let text = text.strip_prefix(b"[").unwrap_or(text);
        let text = text.strip_suffix(b"]").unwrap_or(text);
        let (second, rest) = if text.get(2) == Some(&b'/') {
            (text.get(..20)?, text.get(20..)?)
        } else if matches!(text.get(4), Some(b'-' | b'/')) {
            (text.get(..19)?, text.get(19..)?)
        } else {
            return number(text);
        };
        if second != self.text {
            self.second = date(second)?;
            self.text.clear();
            self.text.extend_from_slice(second);
        }
        let (fraction, digits, rest) = fraction(rest)?;
        let utc_ms = (self.second * 1000 + fraction) as i64 - offset(rest)? * 60_000;
        Some(When {
            ms: u64::try_from(utc_ms).ok()?,
            has_millis: digits > 0,
        })
    }
}

/// A number of seconds, milliseconds or microseconds.
fn number(text: &[u8]) -> Option<When> {
    let number = crate::text::number(text)?;
    if !(0.0..1e18).contains(&number) {
        return None;
    }
    let (ms, has_millis) = match number {
        n if n >= FIRST_MICROS => (n / 1000.0, true),
        n if n >= FIRST_MILLIS => (n, true),
        n => ((n * 1000.0).round(), text.contains(&b'.')),
    };
    Some(When {
        ms: ms as u64,
        has_millis,
    })
}

/// The milliseconds of `.310`, how many digits there were, and what stands behind them.
fn fraction(rest: &[u8]) -> Option<(u64, usize, &[u8])> {
    let Some(digits) = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) else {
        return Some((0, 0, rest));
    };
    let length = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = digits.split_at_checked(length)?;
    let scaled = [100, 10, 1].into_iter().zip(digits);
    let ms = scaled
        .map(|(scale, digit)| scale * u64::from(digit - b'0'))
        .sum();
    Some((ms, length, rest))
}

/// The minutes of `+02:00`, ` -0700`, `Z` or nothing.
fn offset(rest: &[u8]) -> Option<i64> {
    let rest = rest.trim_ascii();
    let (sign, digits) = match rest.split_first() {
        None | Some((b'Z' | b'z', [])) => return Some(0),
        Some((b'+', digits)) => (1, digits),
        Some((b'-', digits)) => (-1, digits),
        Some(_) => return None,
    };
    let hours = decimal(digits.get(..2)?)?;
    let minutes = digits.get(2..)?;
    let minutes = minutes.strip_prefix(b":").unwrap_or(minutes);
    let minutes = if minutes.is_empty() {
        0
    } else {
        decimal(minutes)?
    };
    Some(sign * (hours * 60 + minutes) as i64)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The second of `2026-11-23T00:18:51` or `23/Nov/2026:00:18:51`, as if it were of Greenwich.
fn date(text: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let at = |from: usize, to: usize| decimal(text.get(from..to)?);
    let (year, month, day, time) = if text.get(2) == Some(&b'/') {
        let name = text.get(3..6)?;
        let month = MONTHS
            .iter()
            .position(|month| month.eq_ignore_ascii_case(name))?;
        (at(7, 11)?, month as u64 + 1, at(0, 2)?, 12)
    } else {
        (at(0, 4)?, at(5, 7)?, at(8, 10)?, 11)
    };
    let (hour, minute, second) = (
        at(time, time + 2)?,
        at(time + 3, time + 5)?,
        at(time + 6, time + 8)?,
    );
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    // A leap second is 60.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970 of the proleptic Gregorian calendar, with years that begin in March.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, of_era) = (y / 400, y % 400);
    let of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_each_notation() {
        let at = |ms, has_millis| Some(When { ms, has_millis });
        let cases = [
            ("2016-04-15T20:17:00.310Z", at(1_460_751_420_310, true)),
            ("[2016-04-15T20:17:00.310Z]", at(1_460_751_420_310, true)),
            ("2016-04-15T22:17:00.3+02:00", at(1_460_751_420_300, true)),
            ("2016-04-15 20:17:00,310999", at(1_460_751_420_310, true)),
            ("2016/04/15 20:17:00", at(1_460_751_420_000, false)),
            ("15/Apr/2016:13:17:00 -0700", at(1_460_751_420_000, false)),
            ("29/Feb/2024:23:59:60 +0000", at(1_709_251_200_000, false)),
            ("1460751420.310", at(1_460_751_420_310, true)),
            ("1460751420", at(1_460_751_420_000, false)),
            ("1460751420310", at(1_460_751_420_310, true)),
            ("1460751420310999", at(1_460_751_420_310, true)),
            ("15/Apr/2016:25:17:00 +0000", None),
            ("2016-13-15T20:17:00Z", None),
            ("2016-04-15T20:17:00 CET", None),
            ("1960-04-15T20:17:00Z", None),
            ("-5", None),
            ("NaN", None),
            ("", None),
        ];
        let mut clock = Clock::default();
        for (text, expected) in cases {
            assert_eq!(clock.read(text.as_bytes()), expected, "{text}");
        }
    }
}
