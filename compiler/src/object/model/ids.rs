//! Positions of the parts of an object.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the list of the object.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids! {
    /// A map: a position in [`super::Object::maps`].
    MapId,
    /// A section of variables: a position in [`super::Object::data`].
    DataId,
    /// A program: a position in [`super::Object::programs`].
    ProgramId,
    /// A function that programs call: a position in [`super::Object::subprograms`].
    SubprogramId,
    /// Something of the kernel: a position in [`super::Object::ksyms`].
    KsymId,
    /// A fact about the kernel: a position in [`super::Object::kconfig`].
    KconfigId,
}
