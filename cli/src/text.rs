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
