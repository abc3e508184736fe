use super::*;
use crate::world::bindings::kernelscript::host::console::Value as Printed;
use crate::world::bindings::kernelscript::host::perf::{Access, CounterState, Reading};
use crate::world::bindings::kernelscript::host::types::{Error, ErrorKind};

fn text<T: Recorded>(value: &T) -> String {
    value.write(&mut Handles::counted()).to_string()
}

/// Converts a value to its text and back.
fn same<T: Recorded>(value: T, expected: &str) {
    assert_eq!(text(&value), expected);
    let parsed: Value = serde_json::from_str(expected).expect("it is JSON");
    let read = T::read(&parsed).unwrap_or_else(|misfit| panic!("{expected}: {misfit}"));
    assert_eq!(text(&read), expected);
}

#[test]
fn every_kind_of_type_comes_back() {
    same(u64::MAX, "18446744073709551615");
    same(i64::MIN, "-9223372036854775808");
    same(b"a\"\n".to_vec(), r#""a\"\n""#);
    same(vec![0xff_u8, 0], r#"{"hex":"ff00"}"#);
    same(vec![0_u8, b'a'], r#"{"hex":"0061"}"#);
    same(Vec::<u8>::new(), r#""""#);
    same(vec![Some(1_u32), None], "[1,null]");
    same(Printed::Text(b"x".to_vec()), r#"{"text":"x"}"#);
    same(Access::READ | Access::WRITE, r#"["read","write"]"#);
    let reading = Reading {
        raw: 7,
        scaled: None,
        time_enabled: 2,
        time_running: 1,
        state: CounterState::NeverRan,
        partial: false,
    };
    let members =
        r#""partial":false,"raw":7,"scaled":null,"state":"never-ran","time-enabled":2,"time-running":1"#;
    same(Ok::<_, Error>(reading), &format!(r#"{{"ok":{{{members}}}}}"#));
    let error = Error {
        kind: ErrorKind::Other(9),
        errno: Some(1),
        message: "no".into(),
        errno_name: Some("EPERM".into()),
        tried: "no".into(),
        because: None,
        advice: None,
    };
    let members = r#""advice":null,"because":null,"errno":1,"errno-name":"EPERM","kind":{"other":9}"#;
    same(Err::<(), _>(error), &format!(r#"{{"err":{{{members},"message":"no","tried":"no"}}}}"#));
}

#[test]
fn handles_count_from_one_and_are_never_used_again() {
    let mut handles = Handles::counted();
    let mut given = |own| Resource::<()>::new_own(own).write(&mut handles);
    assert_eq!([given(0), given(1)], [1, 2]);
    assert_eq!(given(0), 1, "the plugin gives it back");
    assert_eq!(given(0), 3, "the host's number is used again");
    let lent = Resource::<()>::new_borrow(1).write(&mut handles);
    assert_eq!(lent, 2);
}

#[test]
fn a_value_of_another_type_is_reported_with_its_path() {
    let misfit = |text: &str| {
        let value = serde_json::from_str(text).expect("it is JSON");
        Result::<Reading, Error>::read(&value).map(|_| ()).expect_err("it does not fit").to_string()
    };
    assert_eq!(misfit("3"), "there should be a case: its name, or an object with one member");
    assert_eq!(misfit(r#"{"ok":{"partial":1}}"#), "at `ok.raw`: there should be a value");
    let kinds = misfit(r#"{"err":{"kind":"worse","errno":null,"message":""}}"#);
    assert!(kinds.starts_with("at `err.kind`: there should be one of not-permitted, "), "{kinds}");
    let missing = misfit(r#"{"err":{"kind":"stale","errno":null,"message":""}}"#);
    assert_eq!(missing, "at `err.errno-name`: there should be a value");
    let parts = r#""errno-name":null,"tried":"","because":null,"advice":null"#;
    let surplus =
        misfit(&format!(r#"{{"err":{{"kind":"stale","errno":null,"message":"",{parts},"more":1}}}}"#));
    assert_eq!(surplus, "at `err`: there should be an object with 7 members, and no others");
    let long = misfit(r#"{"err":{"kind":{"other":4294967296},"errno":null,"message":""}}"#);
    assert_eq!(long, "at `err.kind.other`: there should be a whole number from 0 to 4294967295");
}
