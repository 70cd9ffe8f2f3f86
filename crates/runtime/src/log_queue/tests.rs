use std::sync::mpsc;

use super::*;

/// Takes one write at a time, when the test allows it.
struct SlowReader {
    allowed: mpsc::Receiver<()>,
    written: mpsc::Sender<String>,
}

impl Write for SlowReader {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let _ = self.allowed.recv();
        let _ = self.written.send(String::from_utf8_lossy(lines).into_owned());
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn lines_that_do_not_fit_are_dropped_and_reported_once_the_log_is_read() {
    let (allow, allowed) = mpsc::channel();
    let (written, lines) = mpsc::channel();
    let (reported, reports) = mpsc::channel();
    let report = move |dropped| reported.send(dropped).unwrap();
    let queue = LogQueue::start_with(20, SlowReader { allowed, written }, report).unwrap();
    let before = dropped_log_lines();
    // The log is not read, and each call returns at once. Two lines of ten bytes fit, whether or not the thread has taken the first one.
    for number in 0..5 {
        queue.push(format!("a line: {number}\n").as_bytes());
    }
    assert_eq!(dropped_log_lines() - before, 3);
    allow.send(()).unwrap();
    allow.send(()).unwrap();
    let mut read = String::new();
    while read.len() < 20 {
        read.push_str(&lines.recv_timeout(PATIENCE).unwrap());
    }
    assert_eq!(read, "a line: 0\na line: 1\n");
    assert_eq!(reports.recv_timeout(PATIENCE).unwrap(), 3);
    queue.flush(PATIENCE);
    queue.push(b"a line: 5\n");
    allow.send(()).unwrap();
    assert_eq!(lines.recv_timeout(PATIENCE).unwrap(), "a line: 5\n");
    assert!(reports.try_recv().is_err(), "nothing was dropped since");
}

#[test]
fn flush_waits_for_the_lines_but_not_for_ever() {
    let (allow, allowed) = mpsc::channel();
    let (written, lines) = mpsc::channel();
    let queue = LogQueue::start(SlowReader { allowed, written }, |_| {}).unwrap();
    queue.flush(PATIENCE);
    queue.push(b"a line\n");
    queue.flush(Duration::from_millis(1));
    assert!(lines.try_recv().is_err());
    allow.send(()).unwrap();
    queue.flush(PATIENCE);
    assert_eq!(lines.try_recv().unwrap(), "a line\n");
}

#[test]
fn an_output_that_fails_loses_its_lines_and_stops_nothing() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let queue = LogQueue::start_with(10, Full, |_| {}).unwrap();
    for _ in 0..3 {
        queue.push(b"a line: 0\n");
        queue.flush(PATIENCE);
    }
    assert_eq!(queue.shared.lock().dropped, 0);
}
