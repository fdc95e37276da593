//! A progress bar on standard error, when that is a terminal; silent otherwise.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The line: how much is done, how long the rest takes, and the current step, cut to the terminal.
const TEMPLATE: &str = "[{bar:20}] {pos}/{len}, about {left} left: {wide_msg}";

/// A bar over a known number of steps; the line is erased when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `steps` steps of about `guess` each.
    pub fn new(steps: usize, guess: Duration) -> Self {
        Self::on(ProgressDrawTarget::stderr(), steps, guess)
    }

    fn on(target: ProgressDrawTarget, steps: usize, guess: Duration) -> Self {
        let rest = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let rest = left(state.pos(), state.len().unwrap_or(0), state.elapsed(), guess);
            // The terminal may be gone: then nobody reads the line.
            let _ = write!(out, "{} s", rest.as_secs());
        };
        // The template is a constant, which the test below draws.
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.progress_chars("#.").with_key("left", rest);
        Self { bar: ProgressBar::with_draw_target(Some(steps as u64), target).with_style(style) }
    }

    /// Says what the current step does.
    pub fn says(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// One step is done.
    pub fn step(&mut self) {
        // An experiment may take more samples than it announced.
        if Some(self.bar.position()) < self.bar.length() {
            self.bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Time until all steps are done: each takes the mean of those that are, or `guess` at first.
fn left(done: u64, steps: u64, elapsed: Duration, guess: Duration) -> Duration {
    let each = if done == 0 { guess.as_secs_f64() } else { elapsed.as_secs_f64() / done as f64 };
    Duration::from_secs_f64(each * steps.saturating_sub(done) as f64)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 60 columns that keeps the text written since its line was last cleared.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn line(&self) -> String {
            self.0.lock().expect("no test panics with it").trim_end().to_owned()
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            60
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no test panics with it").push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().expect("no test panics with it").clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_fills_never_exceeds_the_line_and_is_erased_at_the_end() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let mut progress = Progress::on(target, 4, Duration::from_secs(10));
        progress.says("x");
        assert_eq!(screen.line(), "[....................] 0/4, about 40 s left: x");
        for filled in ["#####...............] 1/4", "##########..........] 2/4"] {
            progress.step();
            progress.says(&"y".repeat(200));
            let line = screen.line();
            assert!(line.starts_with(&format!("[{filled}")) && line.len() <= 60, "{line}");
        }
        (0..9).for_each(|_| progress.step());
        progress.says("z");
        assert!(
            screen.line().starts_with("[####################] 4/4, about 0 s left: z"),
            "{}",
            screen.line()
        );
        drop(progress);
        assert_eq!(screen.line(), "");
    }

    #[test]
    fn the_rest_is_guessed_until_a_step_is_done() {
        let seconds = Duration::from_secs;
        assert_eq!(left(0, 4, seconds(7), seconds(10)), seconds(40));
        assert_eq!(left(1, 4, seconds(7), seconds(10)), seconds(21));
        assert_eq!(left(4, 4, seconds(7), seconds(10)), seconds(0));
    }
}
