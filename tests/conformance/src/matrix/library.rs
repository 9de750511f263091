//! Functions of the C libraries that no provider has.

/// A function of the C libraries.
#[derive(Clone, Copy, Debug)]
pub struct LibraryFunction {
    /// Name of the function.
    pub name: &'static str,
    /// True if libdat.so.1 exports it.
    pub libdat: bool,
    /// True if libdat2.so.2 exports it.
    pub libdat2: bool,
    /// The test of `tests/tests`, or the statement's page.
    pub tested_by: &'static str,
}

const fn both(name: &'static str, tested_by: &'static str) -> LibraryFunction {
    LibraryFunction {
        name,
        libdat: true,
        libdat2: true,
        tested_by,
    }
}

const fn newer(name: &'static str, tested_by: &'static str) -> LibraryFunction {
    LibraryFunction {
        libdat: false,
        ..both(name, tested_by)
    }
}

/// All functions: a library exports the slots of the table and these.
pub static LIBRARY: &[LibraryFunction] = &[
    both(
        "dat_ia_openv",
        "c_libraries::data_moves_through_both_libraries_from_c_and_cpp",
    ),
    both(
        "dat_registry_add_provider",
        "c_libraries::one_process_may_use_both_with_providers_of_ours_and_classic_ones",
    ),
    both(
        "dat_registry_remove_provider",
        "c_libraries::one_process_may_use_both_with_providers_of_ours_and_classic_ones",
    ),
    both(
        "dat_registry_list_providers",
        "c_libraries::every_code_has_its_strings_and_providers_are_listed",
    ),
    both(
        "dat_strerror",
        "c_libraries::every_code_has_its_strings_and_providers_are_listed",
    ),
    newer(
        "dat_registry_providers_related",
        "c_libraries::every_code_has_its_strings_and_providers_are_listed",
    ),
    newer("dat_extension_op", "dat_ib_*"),
    both(
        "dats_get_ia_handle",
        "c_libraries::data_moves_through_both_libraries_from_c_and_cpp",
    ),
];
