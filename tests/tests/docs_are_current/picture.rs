//! Draws the pictures of the documentation: a text file of boxes and arrows becomes SVG.
//!
//! ```text
//! size WIDTH HEIGHT
//! title TEXT
//! box NAME X Y WIDTH HEIGHT [strong|dashed]: FIRST LINE | SECOND LINE ...
//! frame X Y WIDTH HEIGHT: LABEL
//! arrow FROM TO [dashed] [at X]: LABEL
//! ```
//!
//! An arrow is vertical where the boxes share a range of x (at its middle, or `at X`), else horizontal where they share a range
//! of y, else slanted from one box's lower edge to the other's upper edge. Lines that are empty or begin with `#` are skipped.

use std::collections::HashMap;
use std::fmt::Write;

/// A box's place.
#[derive(Clone, Copy)]
struct Area {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

impl Area {
    /// Parses `X Y WIDTH HEIGHT`.
    fn parse(words: &[&str]) -> Self {
        let number = |at: usize| words[at].parse().expect("a number");
        Self {
            x: number(0),
            y: number(1),
            width: number(2),
            height: number(3),
        }
    }

    /// Returns the middle of the x range that both areas have.
    fn shared_x(self, other: Self) -> Option<i32> {
        let (from, to) = (
            self.x.max(other.x),
            (self.x + self.width).min(other.x + other.width),
        );
        (from < to).then_some(i32::midpoint(from, to))
    }

    /// Returns the middle of the y range that both areas have.
    fn shared_y(self, other: Self) -> Option<i32> {
        let (from, to) = (
            self.y.max(other.y),
            (self.y + self.height).min(other.y + other.height),
        );
        (from < to).then_some(i32::midpoint(from, to))
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Returns the SVG of a source text, with `name` in its first comment.
pub(crate) fn svg(name: &str, source: &str) -> String {
    let mut boxes = HashMap::new();
    let (mut size, mut title) = ((0, 0), "");
    let (mut frames, mut shapes, mut arrows) = (String::new(), String::new(), String::new());
    for line in source.lines().map(str::trim) {
        let (head, text) = line.split_once(": ").unwrap_or((line, ""));
        let words: Vec<&str> = head.split_whitespace().collect();
        match words.first().copied() {
            Some("size") => size = (words[1].parse().unwrap(), words[2].parse().unwrap()),
            Some("title") => title = line.trim_start_matches("title "),
            Some("box") => {
                let area = Area::parse(&words[2..6]);
                boxes.insert(words[1], area);
                draw_box(
                    &mut shapes,
                    area,
                    words.get(6).copied().unwrap_or("plain"),
                    text,
                );
            }
            Some("frame") => draw_frame(&mut frames, Area::parse(&words[1..5]), text),
            Some("arrow") => {
                let at = words.iter().position(|word| *word == "at");
                let x = at.map(|at: usize| words[at + 1].parse().expect("a number"));
                let dashed = words.contains(&"dashed");
                let place = |name| *boxes.get(name).expect("an arrow's box is drawn before");
                draw_arrow(
                    &mut arrows,
                    place(words[1]),
                    place(words[2]),
                    x,
                    dashed,
                    text,
                );
            }
            Some(other) => assert!(other.starts_with('#'), "{name}: {line}"),
            None => {}
        }
    }
    let (width, height) = size;
    format!(
        r##"<!-- Generated from {name}.txt by tests/tests/docs_are_current (DAT_BLESS=1). -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#333"/></marker></defs>
<rect width="{width}" height="{height}" fill="#fff"/>
<text x="20" y="30" font-size="16" font-weight="bold">{}</text>
{frames}{shapes}{arrows}</svg>
"##,
        escaped(title)
    )
}

/// Draws a box with its first line in bold.
fn draw_box(into: &mut String, area: Area, style: &str, text: &str) {
    let Area {
        x,
        y,
        width,
        height,
    } = area;
    let (fill, line) = match style {
        "strong" => ("#fde9c8", "stroke-width=\"2\""),
        "dashed" => ("#fff", "stroke-dasharray=\"5 3\""),
        _ => ("#e6eef8", ""),
    };
    writeln!(into, r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="#333" {line}/>"##).unwrap();
    let lines: Vec<&str> = text.split('|').map(str::trim).collect();
    let top = y + (height - 16 * lines.len() as i32) / 2 + 13;
    for (at, line) in lines.iter().enumerate() {
        let weight = if at == 0 {
            " font-weight=\"bold\""
        } else {
            " font-size=\"12\""
        };
        writeln!(
            into,
            r#"<text x="{}" y="{}" text-anchor="middle"{weight}>{}</text>"#,
            x + width / 2,
            top + 16 * at as i32,
            escaped(line)
        )
        .unwrap();
    }
}

/// Draws a frame around boxes, with its label above the upper right corner.
fn draw_frame(into: &mut String, area: Area, text: &str) {
    let Area {
        x,
        y,
        width,
        height,
    } = area;
    writeln!(into, r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#f7f7f7" stroke="#999" stroke-dasharray="3 3"/>"##).unwrap();
    writeln!(
        into,
        r##"<text x="{}" y="{}" text-anchor="end" font-size="12" fill="#555">{}</text>"##,
        x + width - 8,
        y + 15,
        escaped(text)
    )
    .unwrap();
}

/// Draws an arrow with its label beside the middle.
fn draw_arrow(into: &mut String, from: Area, to: Area, at: Option<i32>, dashed: bool, text: &str) {
    let down = from.y < to.y;
    let edge = |area: Area, lower: bool| if lower { area.y + area.height } else { area.y };
    let (x1, y1, x2, y2) = if let Some(x) = at.or_else(|| from.shared_x(to)) {
        (x, edge(from, down), x, edge(to, !down))
    } else if let Some(y) = from.shared_y(to) {
        let right = from.x < to.x;
        let side = |area: Area, far: bool| if far { area.x + area.width } else { area.x };
        (side(from, right), y, side(to, !right), y)
    } else {
        let middle = |area: Area| area.x + area.width / 2;
        (middle(from), edge(from, down), middle(to), edge(to, !down))
    };
    let dash = if dashed {
        r#" stroke-dasharray="5 3""#
    } else {
        ""
    };
    writeln!(into, r##"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#333" stroke-width="1.5"{dash} marker-end="url(#tip)"/>"##).unwrap();
    if !text.is_empty() {
        writeln!(
            into,
            r##"<text x="{}" y="{}" font-size="12" fill="#333">{}</text>"##,
            i32::midpoint(x1, x2) + 7,
            i32::midpoint(y1, y2) + 4,
            escaped(text)
        )
        .unwrap();
    }
}
