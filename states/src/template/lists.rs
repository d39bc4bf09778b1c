//! Lists that templates change in place, as Python's.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, Value};

use super::error::invalid;

/// A list. Lists of the pillar and the grains are the engine's own, which do not change.
#[derive(Default)]
pub(crate) struct List {
    /// The lock is never held while another one is taken.
    items: RwLock<Vec<Value>>,
    /// Loops that go through it.
    loops: AtomicUsize,
}

/// A list that templates may change.
pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::from_object(List {
        items: RwLock::new(items.into_iter().collect()),
        loops: AtomicUsize::new(0),
    })
}

/// Tests whether a value is a list: not a tuple, but also a sum or slice that the engine evaluates
/// only when it is read.
pub(crate) fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => !value.is_tuple(),
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

/// The value as a list of its own, if it is a list that the engine evaluates only when it is read:
/// a sum or a slice, whose parts may change until then.
pub(super) fn own(value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Iterable && value.len().is_some() {
        return Ok(list(value.try_iter()?.collect::<Vec<_>>()));
    }
    Ok(value.clone())
}

impl List {
    fn read(&self) -> RwLockReadGuard<'_, Vec<Value>> {
        self.items.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its items.
    pub(crate) fn items(&self) -> Vec<Value> {
        self.read().clone()
    }

    /// Changes it in place; every name of this list sees the change.
    ///
    /// # Errors
    /// A loop goes through it: Python's loop would see the change, the engine's would not. Or that
    /// of `change`.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Value>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.loops.load(Ordering::Relaxed) > 0 {
            return Err(invalid(
                "a list cannot be changed in a loop over it; loop over a copy: `for x in l | list`",
            ));
        }
        change(&mut self.items.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Self::change`], for a change that cannot fail.
    ///
    /// # Errors
    /// A loop goes through it.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Vec<Value>)) -> Result<(), Error> {
        self.change(|items| {
            edit(items);
            Ok(())
        })
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items()).finish()
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = usize::try_from(key.as_i64()?).ok()?;
        self.read().get(at).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.loops.fetch_add(1, Ordering::Relaxed);
        // The engine does not reverse a `RevIter`.
        Enumerator::Iter(Box::new(Items {
            rest: 0..self.read().len(),
            list: self.clone(),
        }))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.read().len())
    }

    fn custom_cmp(self: &Arc<Self>, _: &DynObject) -> Option<std::cmp::Ordering> {
        None
    }
}

/// One loop through a list.
struct Items {
    list: Arc<List>,
    rest: std::ops::Range<usize>,
}

impl Iterator for Items {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let at = self.rest.next()?;
        self.list.read().get(at).cloned()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.list.loops.fetch_sub(1, Ordering::Relaxed);
    }
}
