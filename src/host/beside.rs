//! Work on files for those who may not wait for a disk: done on a thread beside, and waited for briefly.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long anything on a disk is waited for.
pub const BRIEFLY: Duration = Duration::from_millis(50);

/// One piece of work at a time: a file system that hangs keeps one thread and not one more for each try.
#[derive(Debug)]
pub struct Beside<T> {
    running: Option<JoinHandle<T>>,
}

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Self { running: None }
    }
}

impl<T: Send + 'static> Beside<T> {
    /// Starts the work and waits for it; where an earlier piece has not come back, waits for that one instead. None: it did not
    /// come back in time, and its result is that of a later call.
    pub async fn run(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut running = self.running.take().unwrap_or_else(|| tokio::task::spawn_blocking(work));
        match timeout(BRIEFLY, &mut running).await {
            Ok(done) => done.ok(),
            Err(_) => {
                self.running = Some(running);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_hangs_is_waited_for_briefly_and_keeps_one_thread() {
        let (go_on, hangs) = std::sync::mpsc::channel::<()>();
        let mut beside = Beside::default();
        assert_eq!(beside.run(move || hangs.recv().map(|()| 1)).await, None);
        for _ in 0..3 {
            assert_eq!(beside.run(|| panic!("a second one beside the first")).await, None);
        }
        go_on.send(()).unwrap();
        let late = loop {
            if let Some(done) = beside.run(|| Ok(2)).await {
                break done;
            }
        };
        assert_eq!(late, Ok(1), "the first one's result");
        assert_eq!(beside.run(|| Ok(2)).await, Some(Ok(2)));
    }
}
