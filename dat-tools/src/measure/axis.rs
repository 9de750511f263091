//! Axes of plots: which numbers are labelled, and where a value lies.

/// An axis from one value to another, linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    /// Returns a linear axis from 0 that includes the values.
    pub(crate) fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let high = values.into_iter().fold(0.0, f64::max);
        let step = step(high);
        Self {
            low: 0.0,
            high: ((high / step).ceil() * step).max(step),
            is_log: false,
        }
    }

    /// Returns a logarithmic axis between marks of 1, 2 and 5 that includes the values. Values of 0 are taken for the smallest mark.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|v| *v > 0.0);
        let (low, high) = positive.fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        if high == 0.0 {
            return Self {
                low: 0.1,
                high: 1.0,
                is_log: true,
            };
        }
        let marks = marks(low / 10.0, high * 10.0);
        let below = marks.iter().rev().find(|mark| **mark <= low);
        let above = marks.iter().find(|mark| **mark > high);
        Self {
            low: below.copied().unwrap_or(low / 2.0),
            high: above.copied().unwrap_or(high * 2.0),
            is_log: true,
        }
    }

    /// Returns a logarithmic axis for values that differ by more than a decade, of which a linear one would show the largest only; else
    /// a linear one.
    pub(crate) fn fitting(values: impl IntoIterator<Item = f64> + Clone) -> Self {
        let positive = values.clone().into_iter().filter(|v| *v > 0.0);
        let (low, high) = positive.fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        if high > low * 10.0 {
            Self::log(values)
        } else {
            Self::linear(values)
        }
    }

    /// Returns whether the axis is logarithmic.
    pub(crate) fn is_log(&self) -> bool {
        self.is_log
    }

    /// Returns the place of a value, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            let value = value.max(self.low);
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns the values to label.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = step(self.high);
            let count = (self.high / step).round() as usize;
            return (0..=count).map(|n| n as f64 * step).collect();
        }
        let all = marks(self.low, self.high);
        if all.len() <= 10 {
            return all;
        }
        // Over many decades the powers of ten are enough.
        let powers = all
            .into_iter()
            .filter(|mark| (mark.log10() - mark.log10().round()).abs() < 1e-9);
        powers.collect()
    }
}

/// Returns the distance of about five labels up to `high`: 1, 2 or 5 times a power of ten.
fn step(high: f64) -> f64 {
    if high <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power * 5.0 >= high);
    factor.unwrap_or(10.0) * power
}

/// Returns the numbers 1, 2 and 5 times a power of ten from `low` to `high`.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let all = (first..=last).flat_map(|power| {
        [1.0, 2.0, 5.0].map(|factor| {
            // Division keeps 0.2 exact, which 2 * 0.1 is not.
            if power < 0 {
                factor / 10_f64.powi(-power)
            } else {
                factor * 10_f64.powi(power)
            }
        })
    });
    all.filter(|mark| (low * 0.999_999..=high * 1.000_001).contains(mark))
        .collect()
}

/// Returns a number for a label: no more digits than it needs.
pub(crate) fn label(value: f64) -> String {
    let text = if value >= 1000.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns a number of bytes for a label.
pub(crate) fn bytes_label(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_0_and_has_round_labels() {
        let axis = Axis::linear([3.0, 870.0]);
        assert_eq!(axis.ticks(), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(axis.place(500.0), 0.5);
        assert_eq!(Axis::linear([]).ticks().len(), 6);
        assert_eq!(Axis::linear([0.0]).place(0.0), 0.0);
    }

    #[test]
    fn a_logarithmic_axis_includes_its_values_between_marks() {
        let axis = Axis::log([0.3, 45.0]);
        assert_eq!(axis.ticks(), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert!((axis.place(0.2), axis.place(50.0)) == (0.0, 1.0));
        assert_eq!(axis.place(0.0), 0.0);
        let wide = Axis::log([1.0, 99_999.0]);
        assert_eq!(
            wide.ticks(),
            [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]
        );
        assert!(Axis::log([7.0]).ticks().len() >= 2);
        assert!(!Axis::log([]).ticks().is_empty());
    }

    #[test]
    fn values_over_decades_get_a_logarithmic_axis() {
        let over_decades = Axis::fitting([0.02, 7.0, 20_000.0]);
        assert!(over_decades.is_log());
        assert!(over_decades.place(7.0) > 0.3 && over_decades.place(7.0) < 0.6);
        assert!(!Axis::fitting([50.0, 100.0]).is_log());
        assert!(!Axis::fitting([]).is_log());
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.002, 0.5, 2.0, 12.25, 1500.0].map(label);
        assert_eq!(labels, ["0", "0.002", "0.5", "2", "12.25", "1500"]);
        let sizes = [1, 1023, 1024, 3 << 20, (1 << 20) + 1].map(bytes_label);
        assert_eq!(sizes, ["1", "1023", "1K", "3M", "1048577"]);
    }
}
