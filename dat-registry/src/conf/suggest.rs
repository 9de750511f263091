//! The known word that a wrong one was probably meant to be.

/// Returns the word of `known` that differs least from `word`, if that is little enough to be a slip.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let with_distance = known.into_iter().map(|k| (distance(word, k), k));
    let least = with_distance.min_by_key(|(distance, _)| *distance)?;
    (least.0 <= limit).then_some(least.1)
}

/// Returns `; did you mean "..."?` for the nearest word, else nothing.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |k| format!("; did you mean {k:?}?"))
}

/// Returns the number of insertions, deletions and substitutions between two words (Levenshtein's distance), case ignored.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["library", "name", "thread_safe"];
        assert_eq!(nearest("libary", known), Some("library"));
        assert_eq!(nearest("Name", known), Some("name"));
        assert_eq!(nearest("thread-safe", known), Some("thread_safe"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(hint("nmae", ["name"]), "");
        assert_eq!(hint("nam", ["name"]), "; did you mean \"name\"?");
    }
}
