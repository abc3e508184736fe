//! The plugin of `tests/tests/toolchains/attaching.rs`: loads each program of an object that it knows nothing of,
//! attaches it where the object says, and prints what became of it. Arguments are `MAP=ENTRIES` and
//! `MAP:BYTES`, the size of its values.

use ks_guest::{Program, Result, args, println, set_max_entries, set_value_size};

#[ks_guest::main]
fn main() -> Result<()> {
    for word in args::words() {
        let number = |sign| word.split_once(sign).and_then(|(map, text)| Some((map, text.parse().ok()?)));
        if let Some((map, entries)) = number('=') {
            set_max_entries(map, entries)?;
        } else if let Some((map, bytes)) = number(':') {
            set_value_size(map, bytes)?;
        }
    }
    let mut attached = Vec::new();
    for described in Program::list() {
        let name = &described.name;
        let program = match Program::load(name) {
            Ok(program) => program,
            Err(error) => {
                println!("load {name} {:?} {}", error.kind(), error.errno_name().unwrap_or("-"));
                continue;
            }
        };
        match program.attach(0) {
            Ok(link) => {
                println!("attached {name}");
                attached.push((program, link));
            }
            Err(error) => println!("attach {name} {:?} {}", error.kind(), error.tried()),
        }
    }
    Ok(())
}
