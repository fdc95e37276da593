//! `top`: rates of tunnels, packets that are lost and why, work of the threads, tunnels that are
//! down, the latest diagnoses. Two readings of the daemon's counters make one page.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `sample` | one reading, and the rates between two |
//! | `page` | a page of lines, and the document |
//! | `watch` | one page after the other on a terminal |
//! | `screen` | the terminal: its size, keys, and that it is as before afterwards |

mod page;
mod sample;
mod screen;
mod watch;

use std::time::Duration;

use crate::args::Top;
use crate::doctor::in_colour;
use crate::failure::Failure;
use crate::json;
use crate::text::COLUMNS;
use crate::vici::Client;
use page::View;
use sample::{Rates, Sample};

/// Time between the two readings of `--once`, and the longest from the first page to the second.
const ONCE: Duration = Duration::from_secs(1);
/// Lines of a page whose terminal does not say how high it is.
const LINES: usize = 24;

/// One page, again and again unless it is to be once, or nobody would see it change.
pub(crate) fn top(a: &Top) -> Result<(), Failure> {
    let mut client = Client::connect(&a.daemon.vici)?;
    if !(a.once || a.daemon.json) && screen::is_there() {
        return watch::watch(&a.daemon.vici, client, Duration::from_secs(a.interval.into()));
    }
    let old = Sample::take(&mut client)?;
    std::thread::sleep(ONCE);
    let new = Sample::take(&mut client)?;
    let rates = Rates::between(&old, &new);
    if a.daemon.json {
        json::print("top", page::document(&new, &rates));
    } else {
        let view = View { height: LINES, width: COLUMNS, ..View::default() };
        say_text!("{}", page::text(&page::page(&new, &rates, &view), in_colour()));
    }
    Ok(())
}
