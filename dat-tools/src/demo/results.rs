//! The table of what was transferred.

use std::time::Duration;

use serde_json::{Value, json};

/// What was transferred: printed at once, or kept for JSON.
pub(super) struct Results {
    pub(super) json: bool,
    pub(super) rows: Vec<Value>,
}

impl Results {
    /// Adds what was transferred and compared.
    pub(super) fn row(&mut self, what: &str, bytes: usize, count: usize, spent: Duration) {
        let each = spent.as_secs_f64() / count as f64;
        if self.json {
            self.rows.push(json!({
                "operation": what,
                "bytes": bytes,
                "count": count,
                "microseconds_each": each * 1e6,
                "verified": true,
            }));
            return;
        }
        let rate = match bytes {
            0 => String::new(),
            n if n < 4096 => format!("{:.0} /s", 1.0 / each),
            n => format!("{:.1} MB/s", n as f64 / each / 1e6),
        };
        let each = format!("{:.1} us", each * 1e6);
        println!("{what:<30} {bytes:>9} {count:>7} {each:>12} {rate:>12}  yes");
    }
}
