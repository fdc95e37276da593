//! One page after the other on a terminal. The daemon is asked on a thread of its own, so that keys
//! are obeyed while it does not answer; a daemon that has gone is looked for again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::page::{Line, Order, View, page, text};
use super::sample::{Rates, Sample};
use super::screen::{Key, News, Screen};
use super::{LINES, ONCE};
use crate::doctor::{in_colour, monotonic};
use crate::failure::Failure;
use crate::text::{COLUMNS, duration};
use crate::vici::Client;

/// The daemon may spend this part of its time for us: one of so many.
const SHARE: u32 = 5;
/// Limits the pause for that: a daemon that was stopped for a while has not worked for us.
const LONGEST: Duration = Duration::from_secs(10);
/// Lines by which the keys of a page scroll.
const LEAP: usize = 10;
/// A daemon that has not answered for so long is said to be silent.
const SILENT: Duration = Duration::from_secs(3);
/// Time from one look to the next while the page says so, or the daemon is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for keys while nothing else is to be done.
const IDLE: Duration = Duration::from_secs(3_600);

/// What the loop waits for.
enum Event {
    Terminal(News),
    /// A reading, or the reason why there is none.
    Reading(Result<Box<Sample>, Failure>),
}

impl From<News> for Event {
    fn from(news: News) -> Self {
        Self::Terminal(news)
    }
}

/// Draws pages until a key or a signal ends it.
pub(super) fn watch(uri: &str, mut client: Client, interval: Duration) -> Result<(), Failure> {
    let first = Sample::take(&mut client)?;
    let (tell, events) = channel();
    let (ask, asked) = channel();
    let screen = Screen::open(&tell).map_err(|e| {
        Failure::no(format!("the terminal cannot be used ({e}); `ironswan top --once` needs none"))
    })?;
    let uri = uri.to_owned();
    thread::Builder::new()
        .name("readings".into())
        .spawn(move || read(&uri, client, &asked, &tell))
        .map_err(|e| Failure::no(format!("cannot start a thread: {e}")))?;
    let mut pages = Pages::new(first, interval, monotonic());
    draw(&screen, &mut pages);
    loop {
        if pages.is_to_ask(monotonic()) && ask.send(()).is_err() {
            return Ok(());
        }
        match events.recv_timeout(pages.wait(monotonic())) {
            Ok(Event::Terminal(News::End | News::Key(Key::Quit))) | Err(RecvTimeoutError::Disconnected) => {
                return Ok(());
            }
            Ok(Event::Terminal(News::Key(key))) if !pages.press(key) => continue,
            Ok(Event::Reading(reading)) => pages.take(reading, monotonic()),
            Ok(Event::Terminal(_)) | Err(RecvTimeoutError::Timeout) => {}
        }
        draw(&screen, &mut pages);
    }
}

/// Reads the daemon's counters each time this is asked for.
fn read(uri: &str, client: Client, asked: &Receiver<()>, tell: &Sender<Event>) {
    let mut client = Some(client);
    while asked.recv().is_ok() {
        let reading = client.take().map_or_else(|| Client::connect(uri), Ok).and_then(|mut now| {
            let sample = Sample::take(&mut now)?;
            client = Some(now);
            Ok(Box::new(sample))
        });
        if tell.send(Event::Reading(reading)).is_err() {
            return;
        }
    }
}

fn draw(screen: &Screen, pages: &mut Pages) {
    let (height, width) = screen.size().unwrap_or((LINES, COLUMNS));
    let colour = in_colour();
    screen.show(&text(&pages.page(height, width, monotonic()), colour));
}

/// The latest page, and when there will be another.
struct Pages {
    view: View,
    interval: Duration,
    latest: Sample,
    /// Rates of the page.
    rates: Rates,
    /// The next rates are those since `latest`: it is a reading of the daemon that answers now.
    follows: bool,
    /// The next reading is asked for then.
    due: Instant,
    /// Since then an answer is waited for.
    asked: Option<Instant>,
    /// Time of the latest answer.
    answered: Instant,
    /// Reason why there was none since then.
    why: Option<String>,
}

impl Pages {
    fn new(first: Sample, interval: Duration, now: Instant) -> Self {
        // The first rates come soon, whatever the interval.
        let due = now + ONCE.min(interval);
        let view = View { footer: true, measures: true, ..View::default() };
        let rates = Rates::between(&first, &first);
        Self {
            view,
            interval,
            latest: first,
            rates,
            follows: true,
            due,
            asked: None,
            answered: now,
            why: None,
        }
    }

    /// Whether the daemon is to be asked. It is taken for asked then.
    fn is_to_ask(&mut self, now: Instant) -> bool {
        let ask = self.asked.is_none() && !self.view.paused && now >= self.due;
        if ask {
            self.asked = Some(now);
        }
        ask
    }

    /// How long nothing is to be done.
    fn wait(&self, now: Instant) -> Duration {
        match self.asked {
            Some(_) => LOOK,
            None if self.view.paused => IDLE,
            None => self.due.saturating_duration_since(now),
        }
    }

    /// Takes a reading, or that there is none.
    fn take(&mut self, reading: Result<Box<Sample>, Failure>, now: Instant) {
        let took = self.asked.take().map_or(Duration::ZERO, |asked| now.saturating_duration_since(asked));
        match reading {
            Ok(new) => {
                self.rates = Rates::between(if self.follows { &self.latest } else { &new }, &new);
                self.view.measures = !self.follows;
                self.due =
                    now + if self.follows { self.interval.max((SHARE * took).min(LONGEST)) } else { ONCE };
                (self.latest, self.follows, self.answered, self.why) = (*new, true, now, None);
            }
            Err(failure) => {
                // Another daemon counts from the beginning.
                (self.follows, self.why) = (false, Some(failure.lines.join("; ")));
                self.due = now + LOOK;
            }
        }
    }

    /// What a key changes. True when the page is to be drawn again.
    fn press(&mut self, key: Key) -> bool {
        let view = &mut self.view;
        match key {
            Key::Letter('n') => (view.order, view.first) = (Order::Name, 0),
            Key::Letter('b') => (view.order, view.first) = (Order::Rate, 0),
            Key::Letter('p' | ' ') => view.paused = !view.paused,
            Key::Down | Key::Letter('j') => view.first += 1,
            Key::Up | Key::Letter('k') => view.first = view.first.saturating_sub(1),
            Key::PageDown => view.first += LEAP,
            Key::PageUp => view.first = view.first.saturating_sub(LEAP),
            Key::Quit | Key::Letter(_) => return false,
        }
        true
    }

    fn page(&mut self, height: usize, width: usize, now: Instant) -> Vec<Line> {
        (self.view.height, self.view.width) = (height, width);
        self.view.first = self.view.first.min(self.rates.tunnels.len().saturating_sub(1));
        self.view.silent = self.silence(now);
        page(&self.latest, &self.rates, &self.view)
    }

    /// A daemon that does not answer, in words: the page is as it was then.
    fn silence(&self, now: Instant) -> Option<String> {
        let waits = self.asked.is_some_and(|asked| now.saturating_duration_since(asked) >= SILENT);
        let why = self.why.as_deref().or(waits.then_some("it takes its time"))?;
        let time = duration(now.saturating_duration_since(self.answered).as_secs());
        Some(format!("no answer for {time}, below is what was then: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::pair;
    use super::*;

    /// Pages that are drawn since `begun`.
    fn pages(begun: Instant) -> Pages {
        Pages::new(pair().0, Duration::from_secs(2), begun)
    }

    fn page(pages: &mut Pages, now: Instant) -> String {
        text(&pages.page(LINES, COLUMNS, now), false)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn keys_sort_scroll_and_pause() {
        let mut pages = pages(monotonic());
        let mut press = |key| (pages.press(key), pages.view.clone());
        assert!(matches!(press(Key::Letter('n')), (true, View { order: Order::Name, .. })));
        assert!(matches!(press(Key::Up), (true, View { first: 0, .. })));
        press(Key::PageDown);
        assert_eq!(press(Key::Up).1.first, LEAP - 1);
        assert!(press(Key::Letter('p')).1.paused && !press(Key::Letter('x')).0);
        assert!(matches!(press(Key::Letter('b')), (true, View { order: Order::Rate, first: 0, .. })));
    }

    #[test]
    fn the_daemon_is_asked_when_it_is_time_and_has_a_fifth_of_its_time_at_most_for_that() {
        let begun = monotonic();
        let mut pages = pages(begun);
        assert!(!pages.is_to_ask(begun));
        assert_eq!(pages.wait(begun), SECOND);
        let at = begun + SECOND;
        assert!(pages.is_to_ask(at) && !pages.is_to_ask(at));
        // It took a second: the next reading comes five seconds later.
        let at = at + SECOND;
        pages.take(Ok(Box::new(pair().1)), at);
        assert_eq!(pages.wait(at), 5 * SECOND);
        assert!(pages.is_to_ask(at + 5 * SECOND));
        let at = at + 300 * SECOND;
        pages.take(Ok(Box::new(pair().1)), at);
        assert_eq!(pages.wait(at), LONGEST);
        pages.press(Key::Letter('p'));
        assert!(!pages.is_to_ask(at + 30 * SECOND) && pages.wait(at) == IDLE);
        pages.press(Key::Letter('p'));
        assert!(pages.is_to_ask(at + 30 * SECOND));
    }

    #[test]
    fn a_daemon_that_hangs_goes_and_comes_again_is_told_and_its_new_counters_make_no_rates() {
        let begun = monotonic();
        let (old, new) = pair();
        let mut pages = Pages::new(old.clone(), Duration::from_secs(2), begun);
        assert!(page(&mut pages, begun).contains("(measuring)"));
        assert!(pages.is_to_ask(begun + SECOND));
        let hangs = page(&mut pages, begun + 5 * SECOND);
        assert!(
            hangs.starts_with("no answer for 5s, below is what was then: it takes its time\nironswan "),
            "{hangs}"
        );
        let at = begun + 6 * SECOND;
        pages.take(Ok(Box::new(new.clone())), at);
        let well = page(&mut pages, at);
        assert!(
            well.starts_with("ironswan ") && well.contains("20.0M") && !well.contains("(measuring)"),
            "{well}"
        );
        // It goes.
        assert!(pages.is_to_ask(at + 30 * SECOND));
        pages.take(Err(Failure::usage("no gateway answers\x1b[2J; start one")), at + 30 * SECOND);
        let gone = page(&mut pages, at + 42 * SECOND);
        assert!(
            gone.starts_with("no answer for 42s, below is what was then: no gateway answers\\u{1b}[2J;"),
            "{gone}"
        );
        assert!(gone.contains("20.0M") && gone.lines().count() == LINES, "{gone}");
        // It comes again, with fewer bytes in one counter and more in another, which say nothing.
        assert!(pages.is_to_ask(at + 43 * SECOND));
        pages.take(Ok(Box::new(old)), at + 43 * SECOND);
        let again = page(&mut pages, at + 43 * SECOND);
        assert!(
            again.starts_with("ironswan ") && again.contains("(measuring)") && !again.contains("20.0M"),
            "{again}"
        );
        assert!(pages.is_to_ask(at + 44 * SECOND));
        pages.take(Ok(Box::new(new)), at + 44 * SECOND);
        assert!(page(&mut pages, at + 44 * SECOND).contains("20.0M"));
    }
}
