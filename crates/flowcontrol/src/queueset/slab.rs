//! A slab of requests. Slots are reused, and the ID of a removed request finds no other.

/// Identifies a request of one queue set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct SlabSlot<R> {
    generation: u32,
    value: Option<R>,
}

#[derive(Debug)]
pub(super) struct Slab<R> {
    slots: Vec<SlabSlot<R>>,
    free: Vec<u32>,
}

impl<R> Default for Slab<R> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<R> Slab<R> {
    pub(super) fn insert(&mut self, value: R) -> RequestId {
        if let Some(slot) = self.free.pop()
            && let Some(free) = self.slots.get_mut(slot as usize)
        {
            free.value = Some(value);
            return RequestId { slot, generation: free.generation };
        }
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(SlabSlot { generation: 0, value: Some(value) });
        RequestId { slot, generation: 0 }
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&R> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut R> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<R> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &R)> {
        (0..).zip(&self.slots).filter_map(|(slot, found)| {
            let id = RequestId { slot, generation: found.generation };
            found.value.as_ref().map(|value| (id, value))
        })
    }
}
