//! The terminal while pages are drawn: its other screen, its size, keys as they are pressed. It is
//! as it was before when this program ends: by a key, by a signal that can be caught, by a panic of
//! any thread.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::Sender;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

/// The other screen, without a cursor. A line that is too long does not take the next one.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// An Escape is a key of its own when no further bytes of a key come within this time.
const ESCAPE_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Limits the bytes of one key.
const LONGEST_KEY: usize = 32;
/// Exit status of a panic, which is Rust's own.
const PANICKED: i32 = 101;

/// What was pressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// `q`, Ctrl-C or Escape.
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    Letter(char),
}

/// News of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// A signal ends this program, or the terminal has gone.
    End,
}

/// Whether pages can be drawn: keys come from a terminal, and lines go to one that can move its
/// cursor.
pub(super) fn is_there() -> bool {
    let moves = |term: std::ffi::OsString| !term.is_empty() && term != "dumb";
    io::stdin().is_terminal() && io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(moves)
}

/// The terminal, until it is dropped.
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal over. `news`: where keys, changes of the size and the end are told.
    ///
    /// # Errors
    /// Standard input is no terminal, or the kernel refuses a thread or a signal.
    pub(super) fn open<T: From<News> + Send + 'static>(news: &Sender<T>) -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        listen(news.clone())?;
        let usual = std::panic::take_hook();
        let saved = before.clone();
        std::panic::set_hook(Box::new(move |why| {
            // Its message belongs on the screen of before, and no other thread may draw any more.
            leave(&saved);
            usual(why);
            std::process::exit(PANICKED);
        }));
        let screen = Self { before };
        let mut raw = screen.before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        say_text!("{ENTER}");
        let keys = news.clone();
        std::thread::Builder::new().name("keys".into()).spawn(move || read_keys(&keys))?;
        Ok(screen)
    }

    /// Lines and columns, as the terminal has them now. `None` when it does not know.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        let size = tcgetwinsize(stdout()).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row.into(), size.ws_col.into()))
    }

    /// Draws lines over those of before.
    pub(super) fn show(&self, page: &str) {
        say_text!("{}", drawn(page));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave(&self.before);
    }
}

/// Gives the terminal back. Keys that nobody has read are not for the shell.
fn leave(before: &Termios) {
    let mut out = io::stdout();
    let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
}

/// Catches the signals that would end this program with the terminal as it is, and that of a new
/// size.
fn listen<T: From<News> + Send + 'static>(news: Sender<T>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate, mut hangup, mut quit, mut resized) = {
        let _in_runtime = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
            signal(SignalKind::window_change())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            loop {
                let what = tokio::select! {
                    _ = interrupt.recv() => News::End,
                    _ = terminate.recv() => News::End,
                    _ = hangup.recv() => News::End,
                    _ = quit.recv() => News::End,
                    _ = resized.recv() => News::Resized,
                };
                if news.send(what.into()).is_err() {
                    return;
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// Tells keys until the terminal has gone.
fn read_keys<T: From<News>>(news: &Sender<T>) {
    let (stdin, mut waiting) = (stdin(), Vec::new());
    loop {
        // A key of several bytes may come in pieces.
        let time = (!waiting.is_empty()).then_some(&ESCAPE_TIME);
        let whole = match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], time) {
            Ok(0) => true,
            Ok(_) => {
                let mut bytes = [0; 256];
                match read(stdin, &mut bytes) {
                    Ok(0) => break,
                    Ok(n) => waiting.extend_from_slice(&bytes[..n]),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => break,
                }
                false
            }
            Err(Errno::INTR) => false,
            Err(_) => break,
        };
        for key in keys(&mut waiting, whole) {
            if news.send(News::Key(key).into()).is_err() {
                return;
            }
        }
    }
    let _ = news.send(News::End.into());
}

/// A page of all lines of the terminal, drawn from the upper left corner, each line on an empty
/// one. The last one has no line end, which would move all others up.
fn drawn(page: &str) -> String {
    let lines: Vec<String> = page.lines().map(|line| format!("\x1b[K{line}")).collect();
    format!("\x1b[H{}", lines.join("\r\n"))
}

/// Takes keys from the bytes that a terminal has sent. `whole`: no more bytes follow, so that an
/// Escape is a key.
fn keys(bytes: &mut Vec<u8>, whole: bool) -> Vec<Key> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((key, used)) = key(&bytes[at..], whole || bytes.len() - at > LONGEST_KEY) else { break };
        out.extend(key);
        at += used;
    }
    bytes.drain(..at);
    out
}

/// The first key of these bytes and their number (ECMA-48, and what xterm sends for keys without
/// letters). `None`: its last byte has not come.
fn key(bytes: &[u8], whole: bool) -> Option<(Option<Key>, usize)> {
    let found = match bytes {
        [0x1b, b'[' | b'O', b'A', ..] => (Some(Key::Up), 3),
        [0x1b, b'[' | b'O', b'B', ..] => (Some(Key::Down), 3),
        [0x1b, b'[', b'5', b'~', ..] => (Some(Key::PageUp), 4),
        [0x1b, b'[', b'6', b'~', ..] => (Some(Key::PageDown), 4),
        [0x1b, b'[', rest @ ..] => match rest.iter().position(|b| (0x40..=0x7e).contains(b)) {
            Some(end) => (None, 3 + end),
            None if whole => (None, bytes.len()),
            None => return None,
        },
        [0x1b, b'O', _, ..] => (None, 3),
        [0x1b] | [0x1b, b'O'] if !whole => return None,
        [0x1b] => (Some(Key::Quit), 1),
        // A key with Alt.
        [0x1b, ..] => (None, 2),
        [b'q' | b'Q' | 3, ..] => (Some(Key::Quit), 1),
        [byte, ..] if byte.is_ascii_graphic() || *byte == b' ' => {
            (Some(Key::Letter(byte.to_ascii_lowercase() as char)), 1)
        }
        _ => (None, 1),
    };
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Key> {
        keys(&mut bytes.to_vec(), true)
    }

    #[test]
    fn keys_are_read_and_others_are_left_out() {
        let want =
            [Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Letter('n'), Key::Letter(' '), Key::Quit];
        assert_eq!(all(b"\x1b[A\x1bOB\x1b[5~\x1b[6~N q"), want);
        assert_eq!(all(b"\x1b[1;5Cn\x1b[200~\xff\x00\x1bx\x1bOPb"), [Key::Letter('n'), Key::Letter('b')]);
        assert_eq!((all(&[3]), all(&[0x1b]), all(b"\x1b[")), (vec![Key::Quit], vec![Key::Quit], vec![]));
    }

    #[test]
    fn a_key_in_pieces_is_one_key_and_no_escape() {
        for (at, length) in [(1, 3), (2, 3), (1, 4), (2, 4), (3, 4)] {
            let (key, whole) =
                if length == 3 { (Key::Down, &b"\x1b[B"[..]) } else { (Key::PageUp, &b"\x1b[5~"[..]) };
            let mut waiting = whole[..at].to_vec();
            assert_eq!(keys(&mut waiting, false), [], "{at} of {whole:?}");
            waiting.extend_from_slice(&whole[at..]);
            assert_eq!(
                (keys(&mut waiting, false), waiting.is_empty()),
                (vec![key], true),
                "{at} of {whole:?}"
            );
        }
        // A key without an end is no place to keep bytes.
        let mut endless = b"\x1b[".to_vec();
        endless.extend([b'1'; 100]);
        assert_eq!((keys(&mut endless, false), endless.len()), (vec![], 0));
    }

    #[test]
    fn a_page_is_drawn_without_moving_the_screen() {
        assert_eq!(drawn("a\nb\n"), "\x1b[H\x1b[Ka\r\n\x1b[Kb");
    }
}
