//! Typed indices of the parts of an object.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the position in the object's list.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids! {
    /// Position of a map in [`super::Object::maps`].
    MapId,
    /// Position of a section of variables in [`super::Object::data`].
    DataId,
    /// Position of a program in [`super::Object::programs`].
    ProgramId,
    /// Position of a callable function in [`super::Object::subprograms`].
    SubprogramId,
    /// Position of a kernel symbol in [`super::Object::ksyms`].
    KsymId,
    /// Position of a kernel setting in [`super::Object::kconfig`].
    KconfigId,
}
