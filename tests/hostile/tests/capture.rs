//! Another user prepares the path where a victim writes a capture (`pcap=`): a link to a file of the victim, a second
//! name of it, a FIFO, a file of its own. The victim must not write there, and must not wait.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use dat_hostile::{Identity, Stage, UNPRIVILEGED, echo, print_line, read_line, run_test};

#[test]
fn a_prepared_place_is_not_written_to() {
    let name = "a_prepared_place_is_not_written_to";
    let scenario = || {
        let place = tempfile::tempdir().expect("a folder");
        // As /tmp: all users may create files there.
        let all = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(place.path(), all).expect("it is ours");
        let precious = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(precious.path(), b"precious").expect("it is ours");
        let stage = Stage::new(name, "127.60.4.1", "");
        let mut attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
        let folder = place.path().display();
        attacker.send_line(&format!("{folder} {}", precious.path().display()));
        attacker.expect_line("prepared");
        // Some systems forbid hard links to files of other users; root's link stands for those that do not.
        std::fs::hard_link(precious.path(), place.path().join("second")).expect("one file system");
        for (trap, why) in [
            ("link", "symbolic link"),
            ("second", "another name"),
            ("fifo", "no regular file"),
            ("file", "belongs to user 65534"),
        ] {
            let stage = Stage::new(name, "127.60.4.1", &format!("pcap={folder}/{trap}"));
            let victim = stage.start("victim", Identity::Root);
            let said = victim.expect_log("pcap=");
            assert!(said.contains(why), "{trap}: {said}");
            victim.expect_line("error ");
        }
        assert_eq!(
            std::fs::read(precious.path()).expect("it is there"),
            b"precious"
        );
        assert_eq!(
            std::fs::read(place.path().join("file")).expect("it is there"),
            b"trap"
        );
        let stage = Stage::new(name, "127.60.4.1", &format!("pcap={folder}/own"));
        let victim = stage.start("victim", Identity::Root);
        victim.expect_line("ready");
        let own = std::fs::metadata(place.path().join("own")).expect("it is written");
        assert_eq!((own.mode() & 0o777, own.uid()), (0o600, 0));
    };
    run_test(name, scenario, |part| match part {
        "victim" => echo::serve(5001),
        _ => {
            let line = read_line().expect("where");
            let (folder, precious) = line.split_once(' ').expect("two paths");
            let folder = Path::new(folder);
            symlink(precious, folder.join("link")).expect("a link");
            std::fs::write(folder.join("file"), b"trap").expect("a file");
            let everyone = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(folder.join("file"), everyone).expect("it is ours");
            let fifo = std::ffi::CString::new(folder.join("fifo").to_str().expect("text"));
            let fifo = fifo.expect("no zero");
            // SAFETY: the path ends with a zero.
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
            print_line("prepared");
            while read_line().is_some() {}
        }
    });
}
