//! The documentation agrees with the code: links, paths, names, tables, pictures. `DAT_BLESS=1` writes the pictures and the lock order.

mod headers;
mod man;
mod numbers;
mod picture;
mod prose;
mod references;
mod tables;
mod tree;

use tree::Tree;

/// Fails with all findings, one a line.
fn report(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// Returns true if the test writes what is generated instead of comparing it.
fn bless() -> bool {
    std::env::var_os("DAT_BLESS").is_some()
}

#[test]
fn links_lead_to_files_and_headings() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| references::dead_links(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_merge_is_unfinished() {
    let marks = ["<".repeat(7) + " ", ">".repeat(7) + " "];
    let mut findings = Vec::new();
    for page in Tree::read().pages() {
        for (index, line) in page.text.lines().enumerate() {
            if marks.iter().any(|mark| line.starts_with(mark)) {
                findings.push(format!("{}:{}: {line}", page.path, index + 1));
            }
        }
    }
    report(&findings);
}

#[test]
fn paths_are_of_files_that_exist() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| references::dead_paths(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn names_are_of_items_that_exist() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| references::dead_names(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn tests_are_in_the_files_that_are_named() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| references::dead_functions(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn steps_name_items_of_their_files() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .filter(|page| page.path.ends_with("walks.md") || page.path == "ARCHITECTURE.md")
            .flat_map(|page| references::dead_steps(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn commands_are_targets_of_the_makefile() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| references::dead_targets(&tree, &page))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn sentences_have_at_most_45_words() {
    let tree = Tree::read();
    report(
        &tree
            .pages()
            .flat_map(|page| prose::long_sentences(&page, 45))
            .collect::<Vec<_>>(),
    );
}

/// rustdoc compiles and runs the program of dat/README.md, and cannot that of README.md, whose other blocks are no Rust.
#[test]
fn the_rust_program_of_the_readme_is_the_one_that_is_tested() {
    let tree = Tree::read();
    let programs = |page: &str| -> Vec<String> {
        let text = tree.text(page);
        let blocks = text.split("```rust\n").skip(1);
        let block = |b: &str| b.split("```").next().map(str::to_owned);
        blocks.filter_map(block).collect()
    };
    let tested = programs("dat/README.md");
    let shown = programs("README.md");
    assert!(!shown.is_empty());
    for program in shown {
        assert!(
            tested.contains(&program),
            "not in dat/README.md:\n{program}"
        );
    }
}

#[test]
fn the_crate_table_has_every_crate_with_its_imports() {
    report(&tables::crates(&Tree::read()));
}

#[test]
fn the_lock_order_is_that_of_the_code() {
    report(&tables::lock_order(&Tree::read(), bless()));
}

#[test]
fn the_provider_guide_names_the_methods_of_the_trait() {
    report(&tables::transport_methods(&Tree::read()));
}

#[test]
fn limits_and_times_are_those_of_the_code() {
    report(&numbers::compare(&Tree::read()));
}

#[test]
fn the_settings_are_those_of_the_code() {
    report(&tables::settings(&Tree::read()));
}

#[test]
fn the_new_names_of_renamed_items_exist() {
    report(&tables::renames(&Tree::read()));
}

#[test]
fn the_pictures_are_those_of_their_sources() {
    let tree = Tree::read();
    let mut stale = Vec::new();
    for source in tree.files_in("docs/pictures", "txt") {
        let name = source
            .trim_start_matches("docs/pictures/")
            .trim_end_matches(".txt");
        let svg = picture::svg(name, &tree.text(&source));
        let target = tree.path(&format!("docs/pictures/{name}.svg"));
        if bless() {
            std::fs::write(&target, &svg).expect("the picture is written");
        }
        if std::fs::read_to_string(&target).ok().as_ref() != Some(&svg) {
            stale.push(format!(
                "docs/pictures/{name}.svg: run this test with DAT_BLESS=1"
            ));
        }
    }
    report(&stale);
}

#[test]
fn the_manual_pages_agree_with_the_headers() {
    report(&man::faults(&Tree::read()));
}

#[test]
fn the_programs_of_the_manual_pages_compile() {
    report(&man::compiled(&Tree::read()));
}

#[test]
fn groff_has_no_warning_for_the_manual_pages() {
    report(&man::warnings(&Tree::read()));
}
