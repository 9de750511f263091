//! The known word that a wrong one was probably meant to be.

/// Returns the word of `known` that differs least from `word`, if that is little enough to be a slip.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    // Of a word of one letter nothing would be left.
    let limit = (length / 3).max(1).min(length.saturating_sub(1));
    let with_distance = known.into_iter().map(|k| (distance(word, k), k));
    let least = with_distance.min_by_key(|(distance, _)| *distance)?;
    (least.0 <= limit).then_some(least.1)
}

/// Returns `; did you mean "..."?` for the nearest word, else nothing.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |k| format!("; did you mean {k:?}?"))
}

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours between two words (the optimal string alignment
/// distance), the case of ASCII letters ignored.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.to_ascii_lowercase().chars().collect();
    let other: Vec<char> = other.to_ascii_lowercase().chars().collect();
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let cost = usize::from(one[i - 1] != other[j - 1]);
            let least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            rows[i][j] = least.min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[one.len()][other.len()]
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
        assert_eq!(nearest("mut", ["engine", "mtu", "tos"]), Some("mtu"));
        assert_eq!(hint("n", ["name"]), "");
        assert_eq!(hint("nam", ["name"]), "; did you mean \"name\"?");
    }
}
