//! Reads Markdown: its spans of code, its links, its sentences.

use crate::tree::Page;

/// Returns the lines outside of code blocks, with their numbers.
pub(crate) fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            all.push((at + 1, line));
        }
    }
    all
}

/// Returns the spans of code (between backticks), with their lines.
pub(crate) fn spans(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (at, line) in lines(text) {
        let parts: Vec<&str> = line.split('`').collect();
        // A line break within a span is not used in these pages: every second part is code.
        all.extend(
            parts
                .iter()
                .skip(1)
                .step_by(2)
                .map(|span| (at, (*span).to_owned())),
        );
    }
    all
}

/// Returns the links as (line, text, target).
pub(crate) fn links(text: &str) -> Vec<(usize, String, String)> {
    let mut all = Vec::new();
    for (at, line) in lines(text) {
        let mut rest = line;
        while let Some(middle) = rest.find("](") {
            let label = rest[..middle]
                .rsplit_once('[')
                .map_or("", |(_, label)| label);
            let after = &rest[middle + 2..];
            let end = after.find(')').unwrap_or(after.len());
            all.push((at, label.to_owned(), after[..end].to_owned()));
            rest = &after[end..];
        }
    }
    all
}

/// Returns the anchors of a page's headings, as GitHub makes them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let headings = lines(text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(|(_, line)| anchor(line)).collect()
}

/// Returns the sentences with more than `most` words. A list item and a paragraph end a sentence; tables do not count.
pub(crate) fn long_sentences(page: &Page, most: usize) -> Vec<String> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (at, line) in lines(&page.text) {
        let line = line.trim();
        let apart = line.is_empty() || line.starts_with(['|', '#', '<']);
        let item = ["- ", "* "].iter().any(|mark| line.starts_with(mark))
            || line
                .split_once(". ")
                .is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()));
        if apart {
            open = false;
        } else if open && !item {
            let (_, text) = paragraphs.last_mut().expect("an open paragraph");
            *text += " ";
            *text += line;
        } else {
            paragraphs.push((at, line.to_owned()));
            open = true;
        }
    }
    let mut long = Vec::new();
    for (at, paragraph) in paragraphs {
        let mut words = Vec::new();
        for word in paragraph.split_whitespace() {
            words.push(word);
            let end = word.trim_end_matches([')', '*', '"', '`']);
            if end.ends_with(['.', '!', '?']) && !end.ends_with("...") {
                measure(page, at, &words, most, &mut long);
                words.clear();
            }
        }
        measure(page, at, &words, most, &mut long);
    }
    long
}

/// Adds the sentence if it is too long.
fn measure(page: &Page, line: usize, words: &[&str], most: usize, into: &mut Vec<String>) {
    if words.len() > most {
        into.push(format!(
            "{}:{line}: {} words: {}",
            page.path,
            words.len(),
            words[..12].join(" ")
        ));
    }
}
