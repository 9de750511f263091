//! The send window: limits the packets in flight.
//!
//! Go-back-N collapses when it overflows the peer's socket buffer. So the window starts small, doubles each round trip
//! until the first loss, is halved at each loss, and grows by one packet a round trip after that.

/// Smallest window: two packets on the way to the peer, and two whose acknowledgements are on the way back.
const MIN_WINDOW: u32 = 4;
/// Window of a new connection, which fits the default socket buffer.
const INITIAL_WINDOW: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    size: u32,
    threshold: u32,
    max: u32,
    acknowledged: u32,
}

impl SendWindow {
    pub(crate) fn new(max: u32) -> Self {
        let max = max.max(MIN_WINDOW);
        Self {
            size: INITIAL_WINDOW.min(max),
            threshold: max,
            max,
            acknowledged: 0,
        }
    }

    /// Returns a window that begins with its maximum, for a link without loss.
    pub(crate) fn full(max: u32) -> Self {
        Self {
            size: max,
            ..Self::new(max)
        }
    }

    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// Records that `packets` more were acknowledged.
    #[inline]
    pub(crate) fn acknowledged(&mut self, packets: u32) {
        // It grows no more, and a loss begins to count anew.
        if self.size == self.max {
            return;
        }
        if self.size < self.threshold {
            self.size = (self.size + packets).min(self.threshold);
            return;
        }
        self.acknowledged += packets;
        if self.acknowledged >= self.size {
            self.acknowledged = 0;
            self.size = (self.size + 1).min(self.max);
        }
    }

    /// Halves the window after a loss.
    pub(crate) fn lost(&mut self) {
        self.size = (self.size / 2).max(MIN_WINDOW);
        self.threshold = self.size;
        self.acknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_then_slowly_and_halves_on_loss() {
        let mut window = SendWindow::new(100);
        window.acknowledged(16);
        assert_eq!(window.size(), 32);
        window.acknowledged(1000);
        assert_eq!(window.size(), 100);
        window.lost();
        assert_eq!(window.size(), 50);
        window.acknowledged(50);
        assert_eq!(window.size(), 51);
        for _ in 0..20 {
            window.lost();
        }
        assert_eq!(window.size(), MIN_WINDOW);
    }
}
