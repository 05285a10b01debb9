//! Numbers and spans as sentences show them.

/// `1 rule`, `2 rules`.
pub fn count(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(n))
}

/// With a comma between thousands: `12,345`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part as a share in percent: `0.52 %`, `12 %`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".into();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match share {
        share if share < 0.01 => "less than 0.01 %".into(),
        share if share < 10.0 => format!("{share:.2} %"),
        share => format!("{share:.1} %"),
    }
}

/// A span of time: `1 s`, `250 ms`, `90 s`, `10 min`, `2 h`.
pub fn span(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "days"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1000, "s"),
    ];
    for (length, unit) in UNITS {
        if ms >= length && ms.is_multiple_of(length) {
            return format!("{} {unit}", ms / length);
        }
    }
    format!("{ms} ms")
}

/// A decimal number, such as `12.5` or `1.7e9`, as exact as a double is for up to 15 digits. (The parser of std has a table of ten
/// kilobytes, which a page would load.)
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    let (text, sign) = match text.split_first()? {
        (b'-', rest) => (rest, -1.0),
        _ => (text, 1.0),
    };
    let (mut mantissa, mut exponent, mut digits) = (0_u64, 0_i32, 0_u32);
    let mut rest = text;
    let mut is_fraction = false;
    while let Some((byte, behind)) = rest.split_first() {
        match byte {
            b'.' if !is_fraction => is_fraction = true,
            b'0'..=b'9' => {
                digits += 1;
                // Further digits are below the last one of a double.
                if mantissa < 10_u64.pow(17) {
                    mantissa = mantissa * 10 + u64::from(byte - b'0');
                    exponent -= i32::from(is_fraction);
                } else {
                    exponent += i32::from(!is_fraction);
                }
            }
            _ => break,
        }
        rest = behind;
    }
    if let Some(power) = rest.strip_prefix(b"e").or(rest.strip_prefix(b"E")) {
        let power: i32 = std::str::from_utf8(power).ok()?.parse().ok()?;
        exponent = exponent.checked_add(power)?;
    } else if !rest.is_empty() {
        return None;
    }
    let scale = 10_f64.powi(exponent.unsigned_abs().min(400) as i32);
    let number = mantissa as f64;
    let number = if exponent < 0 {
        number / scale
    } else {
        number * scale
    };
    (digits > 0).then_some(sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_std() {
        for text in [
            "0",
            "7",
            "-3.25",
            "0.001",
            "12.5",
            "1760000000.123",
            "1760000000123",
            "1760000000.123456",
            "1.76e9",
            "5E-3",
            "007",
            ".5",
            "5.",
            "123456789012345",
            "0.000000000001",
        ] {
            assert_eq!(number(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in [
            "",
            "-",
            ".",
            "1.2.3",
            "12a",
            "e5",
            "1e",
            "nan",
            "inf",
            "1e99999999999",
            "--1",
        ] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        let long = number("1646861401.52410240123456789".as_bytes()).unwrap();
        assert!((long - 1_646_861_401.524_102_4).abs() < 1e-6);
        assert_eq!(number("9".repeat(400).as_bytes()), Some(f64::INFINITY));
    }
}
