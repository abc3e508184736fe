//! Vectors that are indexed by their own id type, so that an id of one kind cannot index another.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A hash map with a fast hash that is the same in every run. Not for keys that an attacker chooses: they
/// could collide.
pub type FastMap<K, V> = std::collections::HashMap<K, V, rustc_hash::FxBuildHasher>;

/// An id that is a position in an [`IndexVec`].
pub trait Id: Copy {
    /// Returns the id of a position.
    fn new(index: usize) -> Self;
    /// Returns the position of the id.
    fn index(self) -> usize;
}

/// Defines id types: `id_type!(/// doc  MapId)`.
#[macro_export]
macro_rules! id_type {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl $crate::index::Id for $name {
            fn new(index: usize) -> Self {
                $name(u32::try_from(index).expect("fewer than 2^32 items fit a source file"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

/// A vector indexed by the id type `I`.
pub struct IndexVec<I, T> {
    items: Vec<T>,
    id: PhantomData<fn(I)>,
}

impl<I: Id, T> IndexVec<I, T> {
    /// Creates an empty vector.
    pub fn new() -> Self {
        IndexVec { items: Vec::new(), id: PhantomData }
    }

    /// Creates a vector of `ids` copies of an item, with some spare capacity.
    pub fn filled(ids: usize, item: T) -> Self
    where
        T: Clone,
    {
        let mut items = Vec::with_capacity(ids + ids / 8 + 8);
        items.resize(ids, item);
        IndexVec { items, id: PhantomData }
    }

    /// Appends copies of an item until `id` is a valid index.
    pub fn grow_to(&mut self, id: I, item: T)
    where
        T: Clone,
    {
        if self.items.len() <= id.index() {
            self.items.resize(id.index() + 1, item);
        }
    }

    /// Appends an item and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::new(self.items.len() - 1)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the vector has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the item of an id; none if the id is out of range.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// Returns the ids in ascending order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::new)
    }

    /// Returns the items in the order of their ids.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Returns mutable references to the items in the order of their ids.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// Returns ids and items in the order of the ids.
    pub fn iter_enumerated(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::new(index), item))
    }
}

impl<I, T> Index<I> for IndexVec<I, T>
where
    I: Id,
{
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IndexVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I: Id, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        IndexVec::new()
    }
}

impl<I, T: Clone> Clone for IndexVec<I, T> {
    fn clone(&self) -> Self {
        IndexVec { items: self.items.clone(), id: PhantomData }
    }
}

impl<I, T: PartialEq> PartialEq for IndexVec<I, T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<I, T: Eq> Eq for IndexVec<I, T> {}

impl<I, T: Hash> Hash for IndexVec<I, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.items.hash(state);
    }
}

impl<I, T: fmt::Debug> fmt::Debug for IndexVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<I: Id, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        IndexVec { items: items.into_iter().collect(), id: PhantomData }
    }
}

impl<I: Id, T> IntoIterator for IndexVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// A list of items for each id, all of them in one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lists<I, T> {
    /// The end of each list, which is the start of the next one.
    ends: IndexVec<I, usize>,
    items: Vec<T>,
}

impl<I: Id, T: Copy> Lists<I, T> {
    /// Creates lists for `ids` ids from pairs in any order; each list keeps the order of its pairs.
    pub fn new(ids: usize, pairs: &[(I, T)]) -> Lists<I, T> {
        let mut starts = vec![0; ids + 1];
        pairs.iter().for_each(|(id, _)| starts[id.index() + 1] += 1);
        (0..ids).for_each(|id| starts[id + 1] += starts[id]);
        // Each start moves to the end of its list as the list fills.
        let mut items: Vec<T> = pairs.iter().map(|(_, item)| *item).collect();
        for (id, item) in pairs {
            let at = &mut starts[id.index()];
            items[*at] = *item;
            *at += 1;
        }
        starts.truncate(ids);
        Lists { ends: IndexVec { items: starts, id: PhantomData }, items }
    }

    /// Returns the number of lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no lists.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<I: Id, T> Index<I> for Lists<I, T> {
    type Output = [T];
    fn index(&self, id: I) -> &[T] {
        let at = id.index();
        let start = if at == 0 { 0 } else { self.ends.items[at - 1] };
        &self.items[start..self.ends.items[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    id_type! {
        /// An id type for the tests below.
        Thing,
    }

    #[test]
    fn lists_keep_the_order_of_their_pairs() {
        let things = [2, 0, 2, 3, 2].map(Thing::new);
        let pairs: Vec<(Thing, char)> = things.into_iter().zip("abcde".chars()).collect();
        let lists = Lists::new(4, &pairs);
        let all: Vec<String> = (0..4).map(|index| lists[Thing::new(index)].iter().collect()).collect();
        assert_eq!(all, ["b", "", "ace", "d"]);
        assert_eq!(lists.len(), 4);
    }
}
