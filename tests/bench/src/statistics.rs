//! Medians.

/// The middle value; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that `part` of the values do not exceed, between neighbours in proportion; NaN of
/// nothing.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * sorted.len().saturating_sub(1) as f64;
    let neighbour = |i: f64| sorted.get(i as usize).copied().unwrap_or(f64::NAN);
    let (below, above) = (neighbour(at.floor()), neighbour(at.ceil()));
    below + (above - below) * at.fract()
}

/// The median of the ratios that each round gives: a machine that slows down does so for both.
pub(crate) fn ratio(values: &[f64], to: &[f64]) -> f64 {
    median(
        &values
            .iter()
            .zip(to)
            .map(|(value, to)| value / to)
            .collect::<Vec<_>>(),
    )
}

/// The median of the differences that each round gives.
pub(crate) fn difference(values: &[f64], from: &[f64]) -> f64 {
    median(&differences(values, from))
}

/// What each round gives.
pub(crate) fn differences(values: &[f64], from: &[f64]) -> Vec<f64> {
    values
        .iter()
        .zip(from)
        .map(|(value, from)| value - from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(
            (
                quantile(&values, 0.0),
                median(&values),
                quantile(&values, 1.0)
            ),
            (10.0, 25.0, 40.0)
        );
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn rounds_are_compared_with_themselves() {
        // The machine is ten times slower in the second round: the ratio does not notice.
        let (fast, slow) = ([1.0, 10.0, 1.1], [2.0, 20.0, 2.2]);
        assert_eq!(ratio(&slow, &fast), 2.0);
        assert_eq!(difference(&[5.0, 9.0, 4.0], &[1.0, 1.0, 1.0]), 4.0);
    }
}
