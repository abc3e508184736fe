//! An image: BTF followed by the tables that finding its types takes. A kernel's 200,000 types are read once to make it;
//! who maps the file then touches a few pages of it.
//!
//! ```text
//! BTF | padding to 4 | starts of records | heads and chain of names | heads and entries of enumerators | trailer
//! ```
//!
//! All numbers have 32 bits and are little-endian. The trailer has the bytes of the BTF, the length of each table in its
//! order, the version of the format, and a magic number. Only the trailer and the header of the BTF are checked on opening:
//! tables that do not belong to the types give wrong answers or none, but no panic and no search without end.

use std::sync::OnceLock;

use super::names::{EnumeratorIndex, NameIndex};
use super::read::{Btf, BtfReadError, Bytes, word};
use super::table::Table;

/// Version of the format; it changes with the tables and with how names are hashed.
pub const IMAGE_VERSION: u32 = 1;
/// `KSTY`.
const IMAGE_MAGIC: u32 = u32::from_le_bytes(*b"KSTY");
/// Tables of an image.
const TABLES: usize = 5;
/// Numbers of the trailer.
const TRAILER_WORDS: usize = 1 + TABLES + 2;
const WORD: usize = size_of::<u32>();

impl Btf {
    /// Returns the image of these types. It is computed if they were read; those of an image are copied.
    ///
    /// # Errors
    /// More bytes than 32 bits count.
    pub fn to_image(&self) -> Result<Vec<u8>, BtfReadError> {
        let names = self.names.get_or_init(|| NameIndex::build(self));
        let enumerators = self.enumerators.get_or_init(|| EnumeratorIndex::build(self));
        let tables = [&self.records, &names.heads, &names.chain, &enumerators.heads, &enumerators.entries];
        let types = self.btf_bytes();
        let small =
            |len: usize| u32::try_from(len).map_err(|_| BtfReadError::Header("it is too large for an image"));
        let mut trailer = vec![small(types.len())?];
        for table in tables {
            trailer.push(small(table.len())?);
        }
        trailer.extend([IMAGE_VERSION, IMAGE_MAGIC]);
        let mut image = types.to_vec();
        image.resize(types.len().next_multiple_of(WORD), 0);
        tables.iter().for_each(|table| image.extend(table.to_bytes(self.bytes())));
        image.extend(trailer.iter().flat_map(|number| number.to_le_bytes()));
        Ok(image)
    }

    /// Opens an image that [`Btf::to_image`] has made.
    ///
    /// # Errors
    /// Another version, tables that do not fill the bytes, and what [`Btf::parse`] refuses of the header.
    pub fn open_image(image: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Btf, BtfReadError> {
        let image = Bytes::new(image);
        let malformed = BtfReadError::Header("it is not an image of this version");
        let start = image.len().checked_sub(TRAILER_WORDS * WORD).ok_or(malformed)?;
        let trailer = image.get(start..).unwrap_or_default();
        let number = |index: usize| word(trailer, index).ok_or(malformed);
        if (number(TABLES + 1)?, number(TABLES + 2)?) != (IMAGE_VERSION, IMAGE_MAGIC) {
            return Err(malformed);
        }
        let btf = number(0)? as usize;
        let mut end = btf.next_multiple_of(WORD);
        let mut table = |index: usize| {
            let first = end;
            end = (number(index)? as usize)
                .checked_mul(WORD)
                .and_then(|bytes| first.checked_add(bytes))
                .filter(|end| *end <= start)
                .ok_or(malformed)?;
            Ok(Table::Image(first..end))
        };
        let records = table(1)?;
        let names = NameIndex { heads: table(2)?, chain: table(3)? };
        let enumerators = EnumeratorIndex { heads: table(4)?, entries: table(5)? };
        let are_powers = [&names.heads, &enumerators.heads].iter().all(|heads| heads.len().is_power_of_two());
        if end != start || !are_powers || names.chain.len() != records.len() + 1 {
            return Err(malformed);
        }
        Btf::with_tables(image, btf, records, OnceLock::from(names), OnceLock::from(enumerators))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BtfBuilder, BtfKind, Enumerator, IntEncoding, Signedness, TypeId};
    use super::*;

    fn types() -> Btf {
        let mut builder = BtfBuilder::new();
        builder.int("u32", 4, IntEncoding::Unsigned);
        for (name, green) in [("colour", 2), ("light", 3)] {
            let values = [("RED", 1), ("GREEN", green)].map(|(name, value)| Enumerator { name, value });
            builder.enumeration(name, 4, Signedness::Unsigned, &values);
        }
        Btf::parse(builder.finish().expect("it is small")).expect("it is sound")
    }

    #[test]
    fn an_image_answers_as_the_types_that_it_was_made_from() {
        let read = types();
        let image = Btf::open_image(read.to_image().expect("it is small")).expect("it was just made");
        assert_eq!(image.to_image(), read.to_image());
        assert_eq!(image.len(), read.len());
        for (kind, name) in [
            (BtfKind::Int, "u32"),
            (BtfKind::Enum, "colour"),
            (BtfKind::Enum, "light"),
            (BtfKind::Int, "u64"),
        ] {
            assert_eq!(image.find(name, kind), read.find(name, kind), "{name}");
        }
        let red = image.find_enumerator("RED").expect("it is there");
        assert_eq!((Some(red.owner), red.differs), (read.find_enum("colour"), false));
        assert!(image.find_enumerator("GREEN").expect("it is there").differs);
        assert_eq!(image.find_enumerator("BLUE"), None);
    }

    #[test]
    fn a_changed_image_is_refused_or_answers_without_end_of_the_process() {
        let image = types().to_image().expect("it is small");
        for cut in 0..image.len() {
            assert!(Btf::open_image(image[..cut].to_vec()).is_err(), "{cut}");
        }
        for at in 0..image.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = image.clone();
                changed[at] = value;
                let Ok(btf) = Btf::open_image(changed) else { continue };
                let _ = (btf.find_struct("colour"), btf.find_enum("light"), btf.find_enumerator("GREEN"));
                let _ = (1..=btf.len().min(20)).filter(|id| btf.get(TypeId(*id)).is_ok()).count();
            }
        }
    }
}
