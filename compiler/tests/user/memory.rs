//! Pointers, objects of `new` and function values.

use crate::compile;
use crate::machine::run;
use crate::programs::output;

/// How a script ends that the plugin's own checks stop.
fn trap(text: &str) -> String {
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.code, None, "{outcome:?}");
    outcome.aborted.unwrap_or_else(|| panic!("no message: {:?}", outcome.printed))
}

const NODE: &str = "struct Node {\n    value: u32,\n    next: *Node,\n}\n";

#[test]
fn null_is_neither_read_nor_written() {
    let functions = "fn give() -> *Node {\n    var p: *Node = null\n    return p\n}\n";
    for (statement, column) in [
        ("print(\"%u\", give()->value)", 17),
        ("give()->value = 3", 5),
        ("give()->value += 3", 5),
        ("var n = *give()", 14),
        ("var v = give()[1 - 1].value", 13),
    ] {
        let text = format!("{NODE}{functions}fn main() -> i32 {{\n    {statement}\n    return 0\n}}\n");
        assert_eq!(
            trap(&text),
            format!("test.ks:10:{column}: KS-TRAP null: this pointer is null"),
            "{statement}"
        );
    }
}

#[test]
fn a_pointer_beyond_the_memory_is_caught() {
    let text = "fn far(p: *u64, n: u64) -> u64 {\n    return p[n]\n}\nfn main() -> i32 {\n    var x: u64 = 1\n    \
                print(\"%u\", far(&x, 536870912))\n    return 0\n}\n";
    let message = trap(text);
    assert!(message.starts_with("test.ks:2:"), "{message}");
    assert!(message.ends_with(", is outside the memory of the plugin"), "{message}");
}

#[test]
fn objects_live_until_they_are_deleted() {
    let text = r#"
fn push(list: *Node, value: u32) -> *Node {
    var n = new Node()
    n->value = value
    n->next = list
    return n
}
var head: *Node = null
fn main() -> i32 {
    for (i in 0..5) {
        head = push(head, i)
    }
    var sum: u32 = 0
    var digits: u32 = 0
    var p = head
    while (p != null) {
        sum += p->value
        digits = digits * 10 + p->value
        p = p->next
    }
    print("%u %u", sum, digits)
    while (head != null) {
        var next = head->next
        delete head
        head = next
    }
    var again = new Node()
    print("%u %u", again->value, again->next == null)
    var number = new u64()
    *number = 77
    *number += 1
    print("%u", *number)
    delete number
    delete again
    delete head
    return 0
}
"#;
    assert_eq!(output(&format!("{NODE}{text}")), ["10 43210", "0 1", "78"]);
}

#[test]
fn memory_that_was_given_back_is_used_again() {
    let text = r#"
struct Large {
    bytes: u64[300],
}
fn main() -> i32 {
    var kept: *Large = null
    for (i in 0..2000) {
        var a = new Large()
        var b = new Large()
        a->bytes[299] = i
        b->bytes[299] = i + 1
        if (a->bytes[299] + 1 != b->bytes[299] || a->bytes[0] != 0) {
            print("wrong")
        }
        delete a
        if (i == 1000) {
            kept = b
        } else {
            delete b
        }
    }
    print("%u", kept->bytes[299])
    var addresses: u64 = 0
    for (i in 0..1000) {
        var p = new Large()
        p->bytes[i % 300] = i
        addresses += p->bytes[i % 300]
    }
    print("%u %u", addresses, kept->bytes[299])
    return 0
}
"#;
    assert_eq!(output(text), ["1001", "499500 1001"]);
}

#[test]
fn only_objects_of_new_are_deleted_and_only_once() {
    let double = "fn drop(p: *u64) {\n    delete p\n}\nfn main() -> i32 {\n    var p = new u64()\n    drop(p)\n    \
                  drop(p)\n    return 0\n}\n";
    let message = "KS-TRAP delete: this is no object of `new`, or it was deleted before";
    assert_eq!(trap(double), format!("test.ks:2:12: {message}"));
    let local = "fn drop(p: *u64) {\n    delete p\n}\nfn main() -> i32 {\n    var x: u64 = 3\n    drop(&x)\n    \
                 return 0\n}\n";
    assert_eq!(trap(local), format!("test.ks:2:12: {message}"));
}

#[test]
fn a_full_memory_ends_the_plugin_at_its_place() {
    let text = "struct Large {\n    bytes: u64[4000],\n}\nfn main() -> i32 {\n    for (i in 0..1000) {\n        \
                var p = new Large()\n        p->bytes[1] = i\n    }\n    return 0\n}\n";
    assert_eq!(trap(text), "test.ks:6:17: KS-TRAP memory: the memory of the plugin is full");
}

#[test]
fn addresses_of_variables_stay_their_own() {
    let text = r#"
var shared: u32 = 4
struct Point {
    x: u32,
    y: u32,
}
fn set(p: *u32, v: u32) -> u32 {
    var old = *p
    *p = v
    return old
}
fn deep(n: u32, up: *u32) -> u32 {
    var mine = n
    if (n < 5) {
        deep(n + 1, &mine)
    }
    *up = *up + mine
    return mine
}
fn main() -> i32 {
    print("%u %u", set(&shared, 9), shared)
    var total: u32 = 0
    deep(1, &total)
    print("%u", total)
    var points: Point[3]
    for (i in 0..3) {
        var p = &points[i]
        p->x = i
        set(&p->y, i * 10)
    }
    print("%u %u", points[2].x, points[2].y)
    var pp = &points[0]
    var qq = &pp
    *qq = &points[1]
    print("%u", pp->y)
    var at: *Point = null
    for (i in 0..2) {
        var p = Point { x: i, y: 0 }
        if (at != null) {
            at->y = 7
        }
        at = &p
        print("%u", p.y)
    }
    for (i in 0..3) {
        var where_i_is = &i
        print("%u", *where_i_is)
    }
    return 0
}
"#;
    assert_eq!(output(text), ["4 9", "15", "2 20", "10", "0", "7", "0", "1", "2"]);
}

#[test]
fn text_behind_a_pointer_is_printed() {
    let text = r#"
fn main() -> i32 {
    var raw: u8[8] = "walnut"
    var p = &raw[0]
    print("<%s> %s 100%% %u", p, p + 3, raw[0])
    return 0
}
"#;
    assert_eq!(output(text), ["walnut nut 119"]);
}

#[test]
fn functions_are_kept_and_called() {
    let text = r#"
type Step = fn(u32) -> u32
struct Machine {
    step: Step,
    state: u32,
}
var current: fn(u32) -> u32
fn double(n: u32) -> u32 {
    return n * 2
}
fn next(n: u32) -> u32 {
    return n + 1
}
fn twice(f: Step, n: u32) -> u32 {
    return f(f(n))
}
fn choose(up: bool) -> Step {
    if (up) {
        return next
    }
    return double
}
fn main() -> i32 {
    current = double
    print("%u %u", current(4), twice(current, 4))
    var m = Machine { step: next, state: 5 }
    m.state = m.step(m.state)
    print("%u", m.state)
    var p = &m
    p->step = double
    print("%u", p->step(p->state))
    var f = choose(true)
    print("%u", f(1))
    var table: Step[2]
    table[0] = next
    table[1] = double
    var at = 1
    f = table[at]
    print("%u", f(21))
    return 0
}
"#;
    assert_eq!(output(text), ["8 16", "6", "12", "2", "42"]);
}

#[test]
fn a_function_value_that_is_null_is_not_called() {
    let text = "var f: fn(u32) -> u32\nfn main() -> i32 {\n    print(\"%u\", f(1))\n    return 0\n}\n";
    assert_eq!(trap(text), "test.ks:3:17: KS-TRAP null: this function value is null");
}

#[test]
fn a_match_is_a_value_of_any_type() {
    let text = r#"
struct Point {
    x: u32,
    y: u32,
}
fn name(n: u32) -> str(8) {
    return match (n) {
        1: "one",
        2: {
            var t: str(8) = "tw"
            t + "o"
        },
        default: "many"
    }
}
fn at(n: u32) -> Point {
    return match (n) {
        0: Point { x: 1, y: 2 },
        1: {
            return Point { x: 7, y: 8 }
        },
        default: Point { x: 3, y: 4 }
    }
}
fn main() -> i32 {
    print("%s %s %s", name(1), name(2), name(3))
    print("%u %u %u", at(0).y, at(1).y, at(2).y)
    var n: u32 = 4
    print("%u %u", n, match (n) { 4: { n = 5  n + 1 }, default: 0 } + n)
    var p: Point = match (n) { 9: Point { x: 1, y: 1 } }
    print("%u", p.x)
    return 0
}
"#;
    assert_eq!(output(text), ["one two many", "2 8 4", "4 11", "0"]);
}
