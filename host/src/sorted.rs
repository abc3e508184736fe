//! A map that is looked up far more often than it is changed.

/// Entries by ascending keys. A lookup is a search in one slice, which is compiled into its caller; those of the standard
/// library's maps are calls, for a dozen entries as for thousands.
#[derive(Debug)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap(Vec::new())
    }
}

impl<K: Ord + Copy, V> SortedMap<K, V> {
    #[inline]
    fn position(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Returns the value of a key.
    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.position(key).ok().map(|at| &self.0[at].1)
    }

    /// Sets the value of a key. Cheap for a key above all others.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.position(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Removes a key. Returns its value.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        self.position(key).ok().map(|at| self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_set_last() {
        let mut map = SortedMap::default();
        for key in [3, 1, 2, 3] {
            map.insert(key, key * 10);
        }
        map.insert(1, 7);
        assert_eq!([0, 1, 2, 3].map(|key| map.get(key).copied()), [None, Some(7), Some(20), Some(30)]);
        assert_eq!([map.remove(2), map.remove(2)], [Some(20), None]);
        assert_eq!((map.get(2), map.get(3)), (None, Some(&30)));
    }
}
