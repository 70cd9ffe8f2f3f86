//! A disk that forgets what was not synced, and that fails on request.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use crate::fixture::Dice;

/// A simulated disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What a reader sees.
    current: Vec<u8>,
    /// What is left if the power goes now.
    durable: Vec<u8>,
    /// What was written since the last sync, in order.
    unsynced: Vec<Step>,
    /// Handles opened before the last crash are dead.
    life: u64,
    /// How many more operations succeed before the power goes.
    fuse: Option<u64>,
    /// The most bytes it can hold.
    room: Option<u64>,
    /// Syncs report success and do nothing.
    lies: bool,
    /// Syncs fail.
    sync_fails: bool,
    pub(crate) syncs: u64,
}

#[derive(Debug)]
enum Step {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>, part: usize) {
        match self {
            Step::Write { offset, data } => {
                let end = offset + data.len().min(part);
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(&data[..end - offset]);
            }
            Step::SetLen(length) => bytes.resize(*length, 0),
        }
    }
}

impl Disk {
    /// A handle that works until the next crash.
    pub(crate) fn open(&self) -> io::Result<Handle> {
        let state = self.lock();
        if state.fuse == Some(0) {
            return Err(io::Error::other("the power is gone"));
        }
        Ok(Handle { disk: self.clone(), life: state.life })
    }

    /// From now on syncs do nothing.
    pub(crate) fn lie(&self) {
        self.lock().lies = true;
    }

    /// After this many more operations the power goes.
    pub(crate) fn light_fuse(&self, operations: u64) {
        self.lock().fuse = Some(operations);
    }

    /// The disk is full from `room` bytes on, counted as the file grows.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.lock().sync_fails = fail;
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    pub(crate) fn size(&self) -> u64 {
        self.lock().current.len() as u64
    }

    /// The power goes and comes back: what was synced is there, and of the rest whatever the dice say.
    pub(crate) fn crash(&self, dice: &mut Dice) {
        let mut state = self.lock();
        let steps = std::mem::take(&mut state.unsynced);
        let mut bytes = state.durable.clone();
        match dice.roll(4) {
            // Nothing of it.
            0 => {}
            // The beginning of it, the last write torn.
            1 => {
                let kept = usize::try_from(dice.roll(steps.len() as u64 + 1)).unwrap();
                for (number, step) in steps.iter().take(kept).enumerate() {
                    let whole = number + 1 < kept;
                    let part = if whole { usize::MAX } else { usize::try_from(dice.roll(8192)).unwrap() };
                    step.apply(&mut bytes, part);
                }
            }
            // Some of it, in any combination, some torn.
            2 => {
                for step in &steps {
                    match dice.roll(4) {
                        0 => {}
                        1 => step.apply(&mut bytes, usize::try_from(dice.roll(4096)).unwrap()),
                        _ => step.apply(&mut bytes, usize::MAX),
                    }
                }
            }
            // All of it.
            _ => steps.iter().for_each(|step| step.apply(&mut bytes, usize::MAX)),
        }
        state.current.clone_from(&bytes);
        state.durable = bytes;
        state.life += 1;
        state.fuse = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Handle {
    disk: Disk,
    life: u64,
}

impl Handle {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.lock();
        if state.life != self.life || state.fuse == Some(0) {
            return Err(io::Error::other("the power is gone"));
        }
        if let Some(fuse) = &mut state.fuse {
            *fuse -= 1;
        }
        Ok(state)
    }

    fn change(&self, step: Step) -> io::Result<()> {
        let mut state = self.state()?;
        let length = match &step {
            Step::Write { offset, data } => offset + data.len(),
            Step::SetLen(length) => *length,
        };
        if length > state.current.len() && state.room.is_some_and(|room| length as u64 > room) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        step.apply(&mut state.current, usize::MAX);
        state.unsynced.push(step);
        Ok(())
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.state()?.current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.state()?;
        let offset = usize::try_from(offset).unwrap();
        let bytes = state.current.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.change(Step::SetLen(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.state()?;
        state.syncs += 1;
        if state.sync_fails {
            // As Linux: what could not be written is forgotten, and the next sync succeeds without it.
            state.unsynced.clear();
            return Err(io::Error::other("the disk does not answer"));
        }
        if !state.lies {
            let state = &mut *state;
            for step in state.unsynced.drain(..) {
                step.apply(&mut state.durable, usize::MAX);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.change(Step::Write { offset: usize::try_from(offset).unwrap(), data: data.to_owned() })
    }
}
