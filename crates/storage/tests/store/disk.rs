//! A simulated disk that loses unsynced data in a crash, and that fails on request.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use fuzz::Dice;
use redb::StorageBackend;
use storage::embedded::StoreLocation;

/// A simulated disk for one store. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    /// All files ever created. A handle identifies its file by the index here.
    files: Vec<File>,
    /// The index of the store's file, and of the new file.
    store: Option<usize>,
    begun: Option<usize>,
    /// The index of the preserved file.
    preserved: Option<usize>,
    /// Number of crashes; handles opened before the last crash are dead.
    life: u64,
    /// Number of operations that still succeed before the power fails.
    fuse: Option<u64>,
    /// Maximum size of a file in bytes.
    room: Option<u64>,
    /// Syncs report success without doing anything.
    lies: bool,
    /// Syncs report an error.
    sync_fails: bool,
    syncs: u64,
}

#[derive(Debug, Default)]
struct File {
    /// The content that a reader sees.
    current: Vec<u8>,
    /// The content that survives a crash now.
    durable: Vec<u8>,
    /// Changes since the last sync, in order.
    unsynced: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

impl Step {
    /// Applies the step, or the first `part` bytes of it.
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

impl File {
    /// Crashes: synced data survives, and a random part of the unsynced changes.
    fn crash(&mut self, dice: &mut Dice) {
        let steps = std::mem::take(&mut self.unsynced);
        let mut roll = |sides: usize| usize::try_from(dice.roll(sides as u64)).unwrap();
        match roll(4) {
            // No unsynced change survives.
            0 => {}
            // The first changes survive, the last of them torn.
            1 => {
                let synced_steps = roll(steps.len() + 1);
                for (number, step) in steps.iter().take(synced_steps).enumerate() {
                    let is_last = number + 1 == synced_steps;
                    step.apply(&mut self.durable, if is_last { roll(8192) } else { usize::MAX });
                }
            }
            // Any combination of changes survives, some torn.
            2 => {
                for step in &steps {
                    match roll(4) {
                        0 => {}
                        1 => step.apply(&mut self.durable, roll(4096)),
                        _ => step.apply(&mut self.durable, usize::MAX),
                    }
                }
            }
            // All unsynced changes survive.
            _ => steps.iter().for_each(|step| step.apply(&mut self.durable, usize::MAX)),
        }
        self.current.clone_from(&self.durable);
    }
}

impl SimulatedDisk {
    /// Makes all further syncs do nothing.
    pub(crate) fn lie(&self) {
        self.lock().lies = true;
    }

    /// Cuts the power after this many more operations.
    pub(crate) fn light_fuse(&self, operations: u64) {
        self.lock().fuse = Some(operations);
    }

    /// Limits the size of every file to `room` bytes.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.lock().sync_fails = fail;
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The size of the store's file in bytes.
    pub(crate) fn size(&self) -> u64 {
        let state = self.lock();
        state.store.map_or(0, |store| state.files[store].current.len() as u64)
    }

    /// The preserved file, on a disk of its own.
    pub(crate) fn preserved(&self) -> Option<SimulatedDisk> {
        let state = self.lock();
        let bytes = state.files[state.preserved?].durable.clone();
        let file = File { current: bytes.clone(), durable: bytes, unsynced: Vec::new() };
        Some(SimulatedDisk(Arc::new(Mutex::new(DiskState {
            files: vec![file],
            store: Some(0),
            ..DiskState::default()
        }))))
    }

    /// The power fails and comes back.
    pub(crate) fn crash(&self, dice: &mut Dice) {
        let mut state = self.lock();
        for file in
            [state.store, state.preserved.filter(|file| Some(*file) != state.store)].into_iter().flatten()
        {
            state.files[file].crash(dice);
        }
        state.life += 1;
        state.fuse = None;
    }

    /// Counts one operation; fails if the power is off.
    fn operate(&self, life: Option<u64>) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.lock();
        if life.is_some_and(|life| life != state.life) || state.fuse == Some(0) {
            return Err(io::Error::other("the power is gone"));
        }
        state.fuse = state.fuse.map(|fuse| fuse - 1);
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap()
    }
}

impl StoreLocation for SimulatedDisk {
    type File = Handle;

    fn open(&self) -> io::Result<Option<Handle>> {
        let state = self.operate(None)?;
        Ok(state.store.map(|file| Handle { disk: self.clone(), life: state.life, file }))
    }

    fn begin(&self) -> io::Result<Handle> {
        let mut state = self.operate(None)?;
        let file = state.files.len();
        state.files.push(File::default());
        state.begun = Some(file);
        Ok(Handle { disk: self.clone(), life: state.life, file })
    }

    fn preserve(&self, _: u32) -> io::Result<()> {
        let mut state = self.operate(None)?;
        state.preserved = state.store;
        Ok(())
    }

    fn replace(&self) -> io::Result<()> {
        let mut state = self.operate(None)?;
        if let Some(old) = state.store.filter(|old| Some(*old) != state.preserved) {
            state.files[old] = File::default();
        }
        state.store = Some(state.begun.take().ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Handle {
    disk: SimulatedDisk,
    life: u64,
    file: usize,
}

impl Handle {
    fn change(&self, step: Step) -> io::Result<()> {
        let mut state = self.disk.operate(Some(self.life))?;
        let room = state.room;
        let file = &mut state.files[self.file];
        let length = match &step {
            Step::Write { offset, data } => offset + data.len(),
            Step::SetLen(length) => *length,
        };
        if length > file.current.len() && room.is_some_and(|room| length as u64 > room) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        step.apply(&mut file.current, usize::MAX);
        file.unsynced.push(step);
        Ok(())
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.disk.operate(Some(self.life))?.files[self.file].current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.disk.operate(Some(self.life))?;
        let offset = usize::try_from(offset).unwrap();
        let bytes = state.files[self.file].current.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.change(Step::SetLen(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.disk.operate(Some(self.life))?;
        state.syncs += 1;
        let (lies, fails) = (state.lies, state.sync_fails);
        let file = &mut state.files[self.file];
        if fails {
            // Like Linux: data that could not be written is dropped, and the next sync succeeds without it.
            file.unsynced.clear();
            return Err(io::Error::other("the disk does not answer"));
        }
        if !lies {
            for step in file.unsynced.drain(..) {
                step.apply(&mut file.durable, usize::MAX);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.change(Step::Write { offset: usize::try_from(offset).unwrap(), data: data.to_owned() })
    }
}
