//! The IAs that filters wrap: whether each is there, and whether filters wrap each other in a circle, or too many do.
//!
//! The filter finds this out when it is opened. Here it is found from the entries alone.

use std::path::Path;

use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::{ConfError, ConfErrorKind, Entry, Origin, Setting};

use crate::wrapped::is_filter;

/// Filters that may wrap each other: the tables that the filter library has (its `slots.rs`).
const MAX_FILTERS: usize = 4;

/// Returns the faults of the filters in `catalog` whose entries are in a file for which `of` returns true.
pub(super) fn faults(catalog: &Catalog, of: impl Fn(&Path) -> bool) -> Vec<ConfError> {
    let entries = catalog.entries().iter();
    let filters = entries.filter(|e| is_filter(&e.library) && !e.is_pattern());
    let own = filters.filter(|entry| of(&entry.origin.path));
    own.filter_map(|entry| fault(catalog, entry)).collect()
}

/// Returns the setting that names the IA which a filter wraps.
fn inner(entry: &Entry) -> Option<&Setting> {
    let mut settings = entry.places.settings.iter();
    settings.find(|setting| setting.key == "inner")
}

/// Returns the fault of the IAs below a filter. That of a filter further below is its own.
fn fault(catalog: &Catalog, filter: &Entry) -> Option<ConfError> {
    let next = |of: &Entry| {
        let name = inner(of)?.value.to_string();
        let request = Request {
            thread_safe: of.thread_safe,
            ..Request::new(&name, (2, 0))
        };
        Some(
            catalog
                .find(&request)
                .ok_or_else(|| catalog.explain_missing_below(&request, &of.name)),
        )
    };
    let place = inner(filter)?.place;
    let found = |text: String| {
        Some(ConfError {
            origin: Origin {
                path: filter.origin.path.clone(),
                line: place.line,
            },
            column: place.column,
            kind: ConfErrorKind::Provider(text),
        })
    };
    let mut last = match next(filter)? {
        Ok(entry) => entry,
        Err(missing) => return found(missing),
    };
    let mut names = vec![filter.name.clone()];
    while is_filter(&last.library) {
        let is_circle = last.name == filter.name;
        // A circle that this filter is not part of is a fault of those that are.
        if !is_circle && names.contains(&last.name) {
            return None;
        }
        names.push(last.name.clone());
        if is_circle {
            return found(format!(
                "the filters wrap each other in a circle, {}: let one of them name an IA that is no filter by inner=",
                names.join(" over ")
            ));
        }
        if names.len() > MAX_FILTERS {
            return found(format!(
                "more than {MAX_FILTERS} filters wrap each other, {}: take some of them out",
                names.join(" over ")
            ));
        }
        last = next(&last)?.ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use dat_registry::search::Found;

    use super::*;

    fn said(lines: &[&str]) -> Vec<String> {
        let line = |line: &&str| {
            let (name, params) = line.split_once(' ').expect("a name and settings");
            let library = if params.contains("inner") {
                "libdat-provider-filter.so.2"
            } else {
                "l"
            };
            format!("{name} u2.0 threadsafe default {library} v.1.0 \"{params}\" \"\"\n")
        };
        let text: String = lines.iter().map(line).collect();
        let catalog = Catalog::of(&[Found {
            path: "c".into(),
            contents: Ok(text.into_bytes()),
        }]);
        assert_eq!(catalog.errors(), []);
        let faults = faults(&catalog, |path| path == Path::new("c"));
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn filters_over_an_ia_or_over_filters_over_one_have_no_fault() {
        assert_eq!(
            said(&["base 0", "a inner=base", "b inner=a", "c inner=b"]),
            [""; 0]
        );
    }

    /// The filter library refuses to open them.
    #[test]
    fn more_filters_than_the_library_has_tables_for_are_a_fault_of_the_outermost() {
        let four = [
            "base 0",
            "a inner=base",
            "b inner=a",
            "c inner=b",
            "d inner=c",
        ];
        assert_eq!(said(&four), [""; 0]);
        let five = [&four[..], &["e inner=d"]].concat();
        let said = said(&five);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("c:6:"), "{said:?}");
        let path = "more than 4 filters wrap each other, e over d over c over b over a";
        assert!(said[0].contains(path), "{said:?}");
    }

    #[test]
    fn an_inner_ia_that_is_not_there_is_a_fault_of_its_filter_alone() {
        let said = said(&["base 0", "a inner=bas", "b inner=a"]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("c:2:"), "{said:?}");
        assert!(said[0].contains("no IA \"bas\""), "{said:?}");
    }

    #[test]
    fn a_filter_is_no_remedy_for_the_ia_that_it_lacks() {
        let said = said(&["base 0", "based inner=basd"]);
        let wants = "has no IA \"basd\"; did you mean \"base\"?; it has: base;";
        assert!(said.len() == 1 && said[0].contains(wants), "{said:?}");
    }

    #[test]
    fn a_circle_is_a_fault_of_each_filter_in_it() {
        let said = said(&["a inner=b", "b inner=a", "c inner=a", "d inner=d"]);
        let circle = |line, path| {
            format!(
                "c:{line}:62: the filters wrap each other in a circle, {path}: let one of them name an IA that is no filter by inner=; this IA does not open"
            )
        };
        assert_eq!(
            said,
            [
                circle(1, "a over b over a"),
                circle(2, "b over a over b"),
                circle(4, "d over d")
            ]
        );
    }
}
