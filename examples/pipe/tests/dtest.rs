//! Runs Debian's unmodified dtest on the pipe, as two processes under Debian's own libdat2.

#[test]
fn two_processes_move_data_under_the_classic_library() {
    let here = std::env::current_exe().expect("this test has a path");
    // Cargo builds the shared object beside this test.
    let library = here.with_file_name("libdat_pipe.so");
    let line = format!(
        "pipe0 u2.0 nonthreadsafe default {} pipe.1.0 \"127.0.7.9 0\" \"\"\n",
        library.display()
    );
    dat_tests::dtest::pair(&line, "pipe0", "127.0.7.9", "");
}
