//! Text and numbers as error sentences show them.

/// At most `most` characters of `text`, on one line and each of them visible.
pub(crate) fn escaped(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        match c {
            _ if i == most => {
                shown.push('…');
                break;
            }
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Control characters, and characters that change the direction of a line or have no width.
            '\0'..' '
            | '\x7f'..'\u{a0}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' => {
                shown.extend(c.escape_unicode());
            }
            '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'.. => {
                shown.extend(c.escape_unicode())
            }
            c => shown.push(c),
        }
    }
    shown
}

/// `number` in up to 15 digits. (The standard library's formatting of `f64` would be a quarter of a small module.)
pub(crate) fn decimal(number: f64) -> String {
    let (sign, magnitude) = (if number < 0.0 { "-" } else { "" }, number.abs());
    if magnitude.is_nan() {
        return "NaN".into();
    }
    if magnitude.is_infinite() {
        return [sign, "Infinity"].concat();
    }
    if magnitude == 0.0 || (1e-4..1e19).contains(&magnitude) {
        return [sign, &digits(magnitude, 15)].concat();
    }
    let (mut mantissa, mut exponent) = (magnitude, 0_i32);
    while mantissa >= 10.0 {
        (mantissa, exponent) = (mantissa / 10.0, exponent + 1);
    }
    while mantissa < 1.0 {
        (mantissa, exponent) = (mantissa * 10.0, exponent - 1);
    }
    // Each step above has rounded a little: show fewer digits.
    [sign, &digits(mantissa, 10), "e", &exponent.to_string()].concat()
}

/// `magnitude`, below 2^64, in `most` digits or as many as its whole part has.
fn digits(magnitude: f64, most: usize) -> String {
    let mut whole = magnitude as u64;
    let places = most.saturating_sub(whole.to_string().len());
    let scale = 10_u64.pow(places as u32);
    let mut fraction = ((magnitude - whole as f64) * scale as f64).round() as u64;
    if fraction == scale {
        (whole, fraction) = (whole + 1, 0);
    }
    let fraction = (scale + fraction).to_string();
    // Its first digit is that of `scale`.
    let fraction = fraction.get(1..).unwrap_or_default().trim_end_matches('0');
    if fraction.is_empty() {
        whole.to_string()
    } else {
        [&whole.to_string(), ".", fraction].concat()
    }
}
