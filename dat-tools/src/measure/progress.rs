//! The progress bar: one line on standard error, if that is a terminal and results go elsewhere or take long.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time between two drawings.
const EVERY: Duration = Duration::from_millis(100);
/// Characters of the bar.
const WIDTH: usize = 24;

/// The bar. It is erased when the value is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    is_drawn: bool,
    last: Instant,
    steps: usize,
    step: usize,
    label: String,
}

impl Progress {
    /// Begins with a number of steps.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            is_drawn: false,
            last: Instant::now(),
            steps,
            step: 0,
            label: String::new(),
        }
    }

    /// Begins a step, counted from 0.
    pub(crate) fn begin(&mut self, step: usize, label: String) {
        (self.step, self.label) = (step, label);
    }

    /// Shows the share of the step that is done.
    #[inline]
    pub(crate) fn show(&mut self, share: f64) {
        if self.is_shown && self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            self.is_drawn = true;
            let line = line(self.step, self.steps, share, &self.label);
            // A terminal that is gone is no reason to end.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    }

    /// Erases the bar, so that other text can be printed.
    pub(crate) fn erase(&mut self) {
        if self.is_drawn {
            self.is_drawn = false;
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Returns the line.
fn line(step: usize, steps: usize, share: f64, label: &str) -> String {
    let all = (step as f64 + share.clamp(0.0, 1.0)) / steps.max(1) as f64;
    let full = ((all * WIDTH as f64) as usize).min(WIDTH);
    let bar = "#".repeat(full) + &"-".repeat(WIDTH - full);
    format!("[{bar}] {}/{steps} {label}", step + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_filled_by_what_is_done_of_all() {
        assert_eq!(line(0, 2, 0.5, "x"), "[######------------------] 1/2 x");
        assert_eq!(line(1, 2, 9.0, "x"), "[########################] 2/2 x");
        assert!(line(0, 1, f64::NAN, "x").contains("1/1"));
    }
}
