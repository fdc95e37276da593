//! The state of the programs at the ingress, as their thread tells it.

use ironswan_keying::diagnosis::Guard;

use super::{LogLine, StandingGuard};
use crate::guard::Count;
use crate::guard::ingress::thread::KeeperThread;

impl StandingGuard {
    /// Gives the thread that keeps the plan's program at the ingress of interfaces, from the next
    /// plan on.
    pub fn set_keeper_thread(&mut self, thread: KeeperThread) {
        self.ingress = Some(thread);
    }

    /// The thread that keeps the programs.
    pub fn keeper_thread(&self) -> Option<&KeeperThread> {
        self.ingress.as_ref()
    }

    /// Interfaces at whose ingress the program stands, and the reason why it does not stand at all
    /// of them.
    pub fn ingress(&self) -> (Vec<String>, Option<&Guard>) {
        (self.ingress.as_ref().map(KeeperThread::stands).unwrap_or_default(), self.without_ingress.as_ref())
    }

    /// Counts the packets that the programs have dropped.
    pub fn dropped_at_ingress(&self) -> Count {
        self.ingress.as_ref().map(KeeperThread::counted).unwrap_or_default()
    }

    /// Takes the thread's latest report: logs what is new in it, and returns the interfaces at
    /// which somebody had removed the program.
    pub fn ingress_kept(&mut self) -> Vec<String> {
        let Some(thread) = &self.ingress else { return Vec::new() };
        let kept = thread.take();
        kept.said.into_iter().for_each(|d| self.problems.say(d));
        if kept.problem != self.without_ingress {
            match &kept.problem {
                Some(why) => self.problems.say(why.clone()),
                // Without anything to drop, the program stands nowhere.
                None if self.plan.ingress.is_empty() => {}
                None => {
                    let text = "the program at the ingress stands at all interfaces";
                    self.problems.say(LogLine::Text(text.to_owned()));
                }
            }
            self.without_ingress = kept.problem;
        }
        if kept.stricter != self.stricter {
            kept.stricter.iter().for_each(|d| self.problems.say(d.clone()));
            self.stricter = kept.stricter;
        }
        kept.restored
    }
}
