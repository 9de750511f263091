//! A program that gained rights at exec does not read dat.conf beside itself: other users may be able to make hard links to it, and
//! then choose the folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const NAME: &str = "a_program_with_gained_rights_does_not_read_the_dat_conf_beside_it";
const CHILD: &str = "DAT_TEST_GAINED_RIGHTS_CHILD";
const OTHER_USER: u32 = 65_534;

/// Returns the output of a copy of this program: whether it gained rights, and whether it found the entry of its prefix.
fn ask(program: &Path) -> String {
    let mut command = Command::new(program);
    command.args(["--exact", NAME, "--nocapture"]);
    command.env(CHILD, "1").env_remove("DAT_OVERRIDE");
    let output = command.output().expect("the copy runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.split_once("says: "));
    line.expect(&said).1.to_owned()
}

fn answer() {
    // SAFETY: getauxval only reads what the kernel gave the process.
    let gained = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let found = udapl::configured().is_ok_and(|all| all.iter().any(|(name, _)| name == "beside"));
    println!("\nsays: gained {gained}, found {found}");
}

#[test]
fn a_program_with_gained_rights_does_not_read_the_dat_conf_beside_it() {
    if std::env::var_os(CHILD).is_some() {
        return answer();
    }
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        dat_untested::untested("only root can make a program setuid to another user");
        return;
    }
    let prefix = tempfile::tempdir().expect("a temporary folder");
    let program = prefix.path().join("bin/program");
    for folder in ["bin", "etc"] {
        fs::create_dir(prefix.path().join(folder)).expect("a folder");
    }
    let everyone = fs::Permissions::from_mode(0o755);
    fs::set_permissions(prefix.path(), everyone).expect("other users may read it");
    let entry = "beside u2.0 threadsafe default libmissing.so dapl.2.0 \"\" \"\"\n";
    fs::write(prefix.path().join("etc/dat.conf"), entry).expect("written");
    fs::copy(std::env::current_exe().expect("a path"), &program).expect("copied");
    assert_eq!(ask(&program), "gained false, found true");
    chown(&program, Some(OTHER_USER), None).expect("root may");
    let setuid = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(&program, setuid).expect("root may");
    assert_eq!(ask(&program), "gained true, found false");
}
