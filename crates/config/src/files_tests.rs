//! Tests of files that are none, and of those that do not answer.

use std::os::unix::fs::symlink;
use std::sync::mpsc;

use super::*;
use ironswan_testkit::clock::now;
use ironswan_testkit::scratch::Scratch;

#[test]
fn only_regular_files_and_links_to_them_are_read_and_a_pipe_is_not_waited_for() {
    let dir = Scratch::new();
    let files = Files::new(now);
    let path = |name: &str| dir.path().join(name);
    dir.write("plain", "text");
    symlink("plain", path("link")).unwrap();
    for name in ["plain", "link"] {
        assert_eq!(&files.read(&path(name), 4).unwrap().0[..], b"text");
    }
    assert!(files.read(&path("plain"), 3).unwrap_err().to_string().starts_with("4 bytes, more than the 3 "));
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    symlink("pipe", path("link-to-pipe")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    for name in ["pipe", "link-to-pipe", "socket", ".", "/dev/null", "/dev/tty"] {
        assert_eq!(files.read(&path(name), 9).unwrap_err(), FileFault::NotRegular, "{name}");
    }
    // A file whose size `stat` does not know is bounded all the same.
    let text = files.read(Path::new("/proc/cpuinfo"), 10).unwrap_err();
    assert_eq!(text, FileFault::TooLong { bytes: None, max: 10 });
}

#[test]
fn a_file_of_any_length_is_read_whole_whatever_stat_has_said() {
    /// Gives its bytes a few at a time.
    struct Slowly<'a>(&'a [u8]);
    impl Read for Slowly<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let few = buf.len().min(7);
            self.0.read(&mut buf[..few])
        }
    }
    let bytes: Vec<u8> = (0..1_000).map(|i| i as u8).collect();
    for len in [0, 1, 7, 63, 64, 65, 1_000] {
        for expected in [0, len, len + 1, 5_000] {
            let read = read_at_most(&mut Slowly(&bytes[..len]), 1_001, expected).unwrap();
            assert_eq!(*read, bytes[..len], "{len}, {expected} expected");
        }
        let cut = read_at_most(&mut Slowly(&bytes[..len]), 10, len).unwrap();
        assert_eq!(*cut, bytes[..len.min(10)]);
    }
}

#[test]
fn what_does_not_answer_is_named_in_time_and_ends_later() {
    let (tx, rx) = mpsc::channel::<()>();
    let asked = |files: &Files, name: &str, f: &dyn Fn()| {
        files.ask(Path::new(name), || {
            f();
            Ok(())
        })
    };
    let limit = Duration::from_millis(200);
    let mut task = Task::limited(now, limit, move |files| {
        let first = asked(files, "/first", &|| {});
        let hangs = asked(files, "/net/b.conf", &|| {
            let _ = rx.recv();
        });
        let last = asked(files, "/last", &|| {});
        [first.is_ok(), hangs.is_ok(), last.is_ok()]
    })
    .unwrap();
    let began = now();
    let why = loop {
        match task.look() {
            Progress::UnderWay => std::thread::sleep(POLL),
            Progress::Overdue(why) => break why,
            progress => panic!("{progress:?}"),
        }
    };
    let took = now().saturating_duration_since(began);
    assert!(why.to_string().starts_with("/net/b.conf: the file system has not answered for "), "{why}");
    assert!((limit..5 * limit).contains(&took), "{took:?}");
    drop(tx);
    // Once it is answered, it does not go on for nobody.
    let ended = loop {
        match task.look() {
            Progress::Done(ended) => break ended,
            _ => std::thread::sleep(POLL),
        }
    };
    assert_eq!(ended, [true, true, false]);
}

#[test]
fn many_slow_answers_are_too_slow_together_and_so_is_endless_work_between_them() {
    let limit = Duration::from_millis(200);
    let slow = move |files: &Files| {
        let answer = || {
            std::thread::sleep(limit / 5);
            Ok(())
        };
        files.ask(Path::new("/slow"), answer).is_ok()
    };
    let why = Task::limited(now, limit, move |files| while slow(files) {}).unwrap().wait().unwrap_err();
    assert!(
        why.to_string().starts_with("/slow: the file system is too slow, it has taken 2 s for "),
        "{why}"
    );
    // A disk that is slow and answers every time is not one that does not answer.
    let alive = Task::limited(now, limit, move |files| (0..20).all(|_| slow(files)));
    assert_eq!(alive.unwrap().wait(), Ok(true));
    // Each reading of a configuration has all the time.
    let again = Task::limited(now, limit, move |files| {
        (0..4).all(|_| {
            files.begin_again();
            (0..20).all(|_| slow(files))
        })
    });
    assert_eq!(again.unwrap().wait(), Ok(true));
    let busy = Task::limited(now, limit, move |files| {
        let first = slow(files);
        std::thread::sleep(2 * limit);
        first && slow(files)
    });
    assert_eq!(busy.unwrap().wait(), Ok(true));
    // Work has a limit as well, which is not the file system's.
    let (end, ended) = mpsc::channel::<()>();
    let endless = Task::limited(now, limit, move |files| {
        let first = slow(files);
        let _ = ended.recv();
        first
    });
    let began = now();
    let why = endless.unwrap().wait().unwrap_err();
    let took = now().saturating_duration_since(began);
    println!("given up after {took:?}: {why}");
    assert!(why.to_string().starts_with("making sense of the configuration has taken 2 s"), "{why}");
    assert!((12 * limit..60 * limit).contains(&took), "{took:?}");
    drop(end);
    let bad = Task::limited(now, limit, |_| panic!("a test's panic"));
    assert_eq!(bad.unwrap().wait(), Err::<(), _>(Configuration::ReadingFailed { why: None }));
}
