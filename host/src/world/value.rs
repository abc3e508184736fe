//! JSON form of the contract's values in a recording of calls; `docs/recording.md` describes the form of each
//! type.
//!
//! Types of the bindings implement it by `#[derive(Recorded)]`; a type without it does not compile.

use serde_json::{Map, Value, json};
use wasmtime::component::Resource;

pub(crate) use handles::Handles;
pub(crate) use misfit::Misfit;

mod handles;
mod misfit;

/// A value with a form in a recording of calls.
pub(crate) trait Recorded: Sized {
    /// Converts the value to JSON. A handle becomes its number.
    fn write(&self, handles: &mut Handles) -> Value;

    /// Converts JSON to the value.
    ///
    /// # Errors
    /// The position where the JSON is not of this type.
    fn read(value: &Value) -> Result<Self, Misfit>;

    /// Converts a list of these values; bytes have a form of their own.
    fn write_list(items: &[Self], handles: &mut Handles) -> Value {
        items.iter().map(|item| item.write(handles)).collect()
    }

    /// Converts JSON to a list.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    fn read_list(value: &Value) -> Result<Vec<Self>, Misfit> {
        let items = value.as_array().ok_or_else(|| Misfit::wanted("a list"))?;
        let item = |(index, item)| Self::read(item).map_err(|misfit| misfit.within(&format!("[{index}]")));
        items.iter().enumerate().map(item).collect()
    }
}

/// The parameters or results of a function.
pub(crate) trait RecordedList: Sized {
    /// Converts all values to JSON.
    fn write_all(&self, handles: &mut Handles) -> Vec<Value>;

    /// Converts the JSON of a function's only result, or null if it has none.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    fn read_answer(answer: &Value) -> Result<Self, Misfit>;
}

macro_rules! lists {
    ($(($($name:ident),+))*) => {
        $(impl<$($name: Recorded),+> RecordedList for ($($name,)+) {
            fn write_all(&self, handles: &mut Handles) -> Vec<Value> {
                #[expect(non_snake_case, reason = "a value is called as its type")]
                let ($($name,)+) = self;
                vec![$($name.write(handles)),+]
            }

            fn read_answer(answer: &Value) -> Result<Self, Misfit> {
                let single = std::slice::from_ref(answer);
                let mut answers = single.iter();
                Ok(($($name::read(answers.next().ok_or_else(|| Misfit::wanted("one result"))?)?,)+))
            }
        })*
    };
}

lists! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }

impl RecordedList for () {
    fn write_all(&self, _: &mut Handles) -> Vec<Value> {
        Vec::new()
    }

    fn read_answer(answer: &Value) -> Result<Self, Misfit> {
        <() as Recorded>::read(answer)
    }
}

macro_rules! integers {
    ($($ty:ident)*) => {
        $(impl Recorded for $ty {
            fn write(&self, _: &mut Handles) -> Value {
                (*self).into()
            }

            fn read(value: &Value) -> Result<$ty, Misfit> {
                let number = value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
                let fits = number.and_then(|number| $ty::try_from(number).ok());
                let wanted = || format!("a whole number from {} to {}", $ty::MIN, $ty::MAX);
                fits.ok_or_else(|| Misfit::wanted(&wanted()))
            }
        })*
    };
}

integers! { u16 u32 u64 i8 i16 i32 i64 }

/// A list of bytes is a string if it is printable UTF-8, else `{"hex": ".."}`.
impl Recorded for u8 {
    fn write(&self, _: &mut Handles) -> Value {
        (*self).into()
    }

    fn read(value: &Value) -> Result<u8, Misfit> {
        let fits = value.as_u64().and_then(|number| u8::try_from(number).ok());
        fits.ok_or_else(|| Misfit::wanted("a whole number from 0 to 255"))
    }

    fn write_list(items: &[u8], _: &mut Handles) -> Value {
        crate::record::bytes(items)
    }

    fn read_list(value: &Value) -> Result<Vec<u8>, Misfit> {
        crate::record::read_bytes(value).ok_or_else(|| Misfit::wanted("text, or {\"hex\": \"..\"}"))
    }
}

impl Recorded for bool {
    fn write(&self, _: &mut Handles) -> Value {
        (*self).into()
    }

    fn read(value: &Value) -> Result<bool, Misfit> {
        value.as_bool().ok_or_else(|| Misfit::wanted("true or false"))
    }
}

/// A number, or the text of one that JSON lacks: `NaN`, `inf`, `-inf`.
impl Recorded for f64 {
    fn write(&self, _: &mut Handles) -> Value {
        serde_json::Number::from_f64(*self).map_or_else(|| self.to_string().into(), Value::Number)
    }

    fn read(value: &Value) -> Result<f64, Misfit> {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        number.ok_or_else(|| Misfit::wanted("a number, or \"NaN\", \"inf\" or \"-inf\""))
    }
}

impl Recorded for String {
    fn write(&self, _: &mut Handles) -> Value {
        self.as_str().into()
    }

    fn read(value: &Value) -> Result<String, Misfit> {
        value.as_str().map(str::to_owned).ok_or_else(|| Misfit::wanted("text"))
    }
}

/// The result of a function without results.
impl Recorded for () {
    fn write(&self, _: &mut Handles) -> Value {
        Value::Null
    }

    fn read(value: &Value) -> Result<(), Misfit> {
        value.as_null().ok_or_else(|| Misfit::wanted("null"))
    }
}

impl<T: Recorded> Recorded for Vec<T> {
    fn write(&self, handles: &mut Handles) -> Value {
        T::write_list(self, handles)
    }

    fn read(value: &Value) -> Result<Vec<T>, Misfit> {
        T::read_list(value)
    }
}

/// A list of two.
impl<A: Recorded, B: Recorded> Recorded for (A, B) {
    fn write(&self, handles: &mut Handles) -> Value {
        Value::Array(vec![self.0.write(handles), self.1.write(handles)])
    }

    fn read(value: &Value) -> Result<(A, B), Misfit> {
        match value.as_array().map(Vec::as_slice) {
            Some([first, second]) => {
                let first = A::read(first).map_err(|misfit| misfit.within("[0]"))?;
                Ok((first, B::read(second).map_err(|misfit| misfit.within("[1]"))?))
            }
            _ => Err(Misfit::wanted("a list of two")),
        }
    }
}

/// Null for none. The contract has no option of an option, which this form could not distinguish.
impl<T: Recorded> Recorded for Option<T> {
    fn write(&self, handles: &mut Handles) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.write(handles))
    }

    fn read(value: &Value) -> Result<Option<T>, Misfit> {
        if value.is_null() { Ok(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Recorded, E: Recorded> Recorded for Result<T, E> {
    fn write(&self, handles: &mut Handles) -> Value {
        match self {
            Ok(value) => json!({ "ok": value.write(handles) }),
            Err(error) => json!({ "err": error.write(handles) }),
        }
    }

    fn read(value: &Value) -> Result<Result<T, E>, Misfit> {
        match case(value)? {
            ("ok", Some(value)) => T::read(value).map(Ok).map_err(|misfit| misfit.within("ok")),
            ("err", Some(error)) => E::read(error).map(Err).map_err(|misfit| misfit.within("err")),
            _ => Err(Misfit::wanted("{\"ok\": ..} or {\"err\": ..}")),
        }
    }
}

impl<T: 'static> Recorded for Resource<T> {
    fn write(&self, handles: &mut Handles) -> Value {
        if self.owned() { handles.given(self.rep()) } else { handles.lent(self.rep()) }.into()
    }

    fn read(value: &Value) -> Result<Resource<T>, Misfit> {
        u32::read(value).map(Resource::new_own).map_err(|_| Misfit::wanted("the number of a handle"))
    }
}

/// Builds an object with these members.
pub(crate) fn members<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Splits a case of a variant: its name alone, or the only member of an object.
///
/// # Errors
/// If it is neither.
pub(crate) fn case(value: &Value) -> Result<(&str, Option<&Value>), Misfit> {
    match value {
        Value::String(name) => Ok((name, None)),
        Value::Object(members) if members.len() == 1 => {
            let (name, payload) = members.iter().next().ok_or_else(|| Misfit::wanted("a case"))?;
            Ok((name, Some(payload)))
        }
        _ => Err(Misfit::wanted("a case: its name, or an object with one member")),
    }
}

/// Reader of an object's members: each is taken once, and none may remain.
pub(crate) struct Members<'a> {
    members: &'a Map<String, Value>,
    taken: usize,
}

impl<'a> Members<'a> {
    /// Starts reading an object.
    ///
    /// # Errors
    /// If the value is not an object.
    pub(crate) fn of(value: &'a Value) -> Result<Members<'a>, Misfit> {
        let members = value.as_object().ok_or_else(|| Misfit::wanted("an object"))?;
        Ok(Members { members, taken: 0 })
    }

    /// Takes a member by its name.
    ///
    /// # Errors
    /// If it is missing or of another type.
    pub(crate) fn take<T: Recorded>(&mut self, name: &str) -> Result<T, Misfit> {
        let value = self.members.get(name).ok_or_else(|| Misfit::wanted("a value").within(name))?;
        self.taken += 1;
        T::read(value).map_err(|misfit| misfit.within(name))
    }

    /// Checks that no members remain.
    ///
    /// # Errors
    /// If some do.
    pub(crate) fn end(self) -> Result<(), Misfit> {
        if self.taken == self.members.len() {
            return Ok(());
        }
        Err(Misfit::wanted(&format!("an object with {} members, and no others", self.taken)))
    }
}

/// Wraps wasmtime's `flags` macro and adds the form in a recording, a list of names, and in messages between
/// processes, a truth value each.
macro_rules! flags {
    ($name:ident { $(#[component(name = $text:literal)] const $flag:ident;)* }) => {
        wasmtime::component::flags!($name { $(#[component(name = $text)] const $flag;)* });

        impl crate::world::value::Recorded for $name {
            fn write(&self, _: &mut crate::world::value::Handles) -> serde_json::Value {
                let all = [$(($text, $name::$flag)),*];
                all.into_iter().filter(|(_, flag)| self.contains(*flag)).map(|(text, _)| text).collect()
            }

            fn read(value: &serde_json::Value) -> Result<$name, crate::world::value::Misfit> {
                let mut flags = $name::empty();
                for name in <Vec<String> as crate::world::value::Recorded>::read(value)? {
                    flags |= match name.as_str() {
                        $($text => $name::$flag,)*
                        _ => {
                            let known = [$($text),*].join(", ");
                            return Err(crate::world::value::Misfit::wanted(&format!("some of {known}")));
                        }
                    };
                }
                Ok(flags)
            }
        }

        impl crate::world::wire::Wire for $name {
            fn put(&self, to: &mut Vec<u8>) {
                for flag in [$($name::$flag),*] {
                    to.push(self.contains(flag).into());
                }
            }

            fn take(
                from: &mut crate::world::wire::Input<'_>,
            ) -> Result<$name, crate::world::wire::Malformed> {
                let mut flags = $name::empty();
                for flag in [$($name::$flag),*] {
                    if bool::take(from)? {
                        flags |= flag;
                    }
                }
                Ok(flags)
            }
        }
    };
}
pub(crate) use flags;

#[cfg(test)]
mod tests;
