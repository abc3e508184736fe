//! The BPF interpreter `rbpf` with the kernel's environment of programs: data sections, maps, helpers, kernel
//! functions.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nix::errno::Errno;

use crate::oracles::arena::Arena;
use crate::oracles::image::{Image, KFUNCS, SymbolRef};
use crate::oracles::maps::{Map, Shape};
use crate::oracles::state::{Facts, Input, State};
use crate::oracles::stub;

const ARENA_BYTES: usize = 8 << 20;
const STACK_BYTES: usize = 16 << 10;
const CONTEXT_BYTES: usize = 256;
/// Limit of an iterator's iterations. Source: BPF_MAX_LOOPS in include/linux/bpf.h, v6.12.
const MAX_ITERATIONS: i64 = 8 << 20;
/// Programs see maps as numbers: this one and those after it.
const FIRST_MAP: u64 = 0x4d41_5000_0000;

/// The environment of the program on this thread. It is thread-local because helpers are plain functions in
/// the interpreter.
struct World {
    arena: Arena,
    sections: BTreeMap<String, u64>,
    maps: Vec<Map>,
    facts: Facts,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn with<T>(work: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| work(world.as_mut().expect("helpers are called while a program runs")))
}

/// An object that runs in the interpreter on this thread.
pub struct Machine {
    code: Vec<u8>,
    /// Lowest address of the stack.
    stack: u64,
}

impl Machine {
    pub fn new(image: &Image<'_>, shapes: &[Shape], facts: &Facts) -> Machine {
        let mut arena = Arena::new(ARENA_BYTES);
        let sections =
            image.data().into_iter().map(|(name, bytes)| (name, arena.alloc_with(&bytes))).collect();
        let stack = arena.reserve(STACK_BYTES);
        let context = arena.alloc_with(&[0; CONTEXT_BYTES]);
        arena.keep();
        let maps = shapes.iter().cloned().map(Map::new).collect();
        let world = World { arena, sections, maps, facts: facts.clone() };
        let code = image.code(stack + STACK_BYTES as u64, context, &|named| world.address_of(&named));
        WORLD.set(Some(world));
        Machine { code, stack }
    }

    /// Runs the program once and returns its final state.
    pub fn run(&self, input: &Input) -> Result<State, String> {
        let memory = with(|world| {
            world.maps.iter_mut().for_each(Map::clear);
            world.arena.clear();
            world.arena.forget(self.stack, STACK_BYTES);
            for (name, content) in &input.sections {
                world.arena.write(world.sections[name], content);
            }
            for map in &mut world.maps {
                let entries = input.entries.get(&map.shape.name).into_iter().flatten();
                for (key, value) in entries {
                    map.update(&mut world.arena, key, value, 0);
                }
            }
            world.arena.addresses()
        });
        let result = execute(&self.code, memory).map_err(|error| error.to_string())?;
        Ok(with(|world| world.state(result as u32, input)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

fn execute(code: &[u8], memory: std::ops::Range<u64>) -> Result<u64, rbpf::lib::Error> {
    let mut machine = rbpf::EbpfVmNoData::new(None)?;
    machine.set_stack_usage_calculator(|_, _, _| stub::FRAME_BYTES + stub::STUB_BYTES, Box::new(()))?;
    machine.set_program(code)?;
    machine.register_allowed_memory(memory);
    for (number, helper) in HELPERS.iter().chain(&[(stub::HELPER, instruction as rbpf::ebpf::Helper)]) {
        machine.register_helper(*number, *helper)?;
    }
    for ((_, number), kfunc) in KFUNCS.iter().zip([iter_num_new, iter_num_next, iter_num_destroy]) {
        machine.register_helper(*number, kfunc)?;
    }
    machine.execute_program()
}

impl World {
    fn address_of(&self, named: &SymbolRef<'_>) -> u64 {
        match named {
            SymbolRef::Data { section, offset } => self.sections[*section] + offset,
            SymbolRef::Map(name) => {
                let position = self.maps.iter().position(|map| map.shape.name == *name);
                FIRST_MAP + position.unwrap_or_else(|| panic!("no map {name}")) as u64
            }
        }
    }

    fn state(&self, result: u32, input: &Input) -> State {
        let section = |(name, start): (&String, &u64)| {
            (name.clone(), self.arena.read(*start, input.sections[name].len()))
        };
        let maps = self.maps.iter().map(|map| (map.shape.name.clone(), map.entries(&self.arena)));
        State { result, sections: self.sections.iter().map(section).collect(), maps: maps.collect() }
    }

    /// Returns the map with a number, and the key at an address.
    fn map(&mut self, map: u64, key: u64) -> (&mut Map, Vec<u8>, &mut Arena) {
        let map = map.checked_sub(FIRST_MAP).and_then(|at| self.maps.get_mut(at as usize));
        let map = map.expect("a helper gets a map where it needs one");
        let key = self.arena.read(key, map.shape.key);
        (map, key, &mut self.arena)
    }
}

/// Helpers by number. Source: include/uapi/linux/bpf.h, v6.12.
const HELPERS: [(u32, rbpf::ebpf::Helper); 11] = [
    (1, map_lookup),
    (2, map_update),
    (3, map_delete),
    (8, |_, _, _, _, _| with(|world| world.facts.cpu)),
    (14, |_, _, _, _, _| with(|world| world.facts.process)),
    (15, |_, _, _, _, _| with(|world| world.facts.user)),
    (16, current_comm),
    (5, |_, _, _, _, _| panic!("no two clocks give the same time")),
    // One program runs: it always gets the lock.
    (93, |_, _, _, _, _| 0),
    (94, |_, _, _, _, _| 0),
    // Any number serves: the results of the programs that call it do not depend on the value.
    (7, |_, _, _, _, _| 0x9e37_79b9),
];

fn map_lookup(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    with(|world| {
        let (map, key, arena) = world.map(map, key);
        map.lookup(arena, &key)
    })
}

fn map_update(map: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    with(|world| {
        let (map, key, arena) = world.map(map, key);
        let value = arena.read(value, map.shape.value);
        map.update(arena, &key, &value, flags)
    })
}

fn map_delete(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    with(|world| {
        let (map, key, _) = world.map(map, key);
        map.delete(&key)
    })
}

fn current_comm(buffer: u64, bytes: u64, _: u64, _: u64, _: u64) -> u64 {
    with(|world| {
        let mut name = world.facts.comm.clone();
        name.resize(bytes as usize, 0);
        world.arena.write(buffer, &name);
        0
    })
}

fn instruction(dst: u64, src: u64, instruction: u64, _: u64, _: u64) -> u64 {
    with(|world| stub::instruction(&world.arena, dst, src, instruction.to_le_bytes()))
}

/// An iterator is two 32-bit numbers: the last one returned and the end. Source: kernel/bpf/bpf_iter.c,
/// v6.12.
fn iter_num_new(iterator: u64, start: u64, end: u64, _: u64, _: u64) -> u64 {
    let (start, end) = (i64::from(start as i32), i64::from(end as i32));
    let (state, result) = match end - start {
        ..0 => ([0, 0], -(Errno::EINVAL as i64)),
        iterations if iterations > MAX_ITERATIONS => ([0, 0], -(Errno::E2BIG as i64)),
        _ => ([start as i32 - 1, end as i32], 0),
    };
    with(|world| write_iterator(&world.arena, iterator, state));
    result as u32 as u64
}

fn iter_num_next(iterator: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    with(|world| {
        let last = world.arena.number(iterator, 4) as i32;
        let end = world.arena.number(iterator + 4, 4) as i32;
        if i64::from(last) + 1 >= i64::from(end) {
            write_iterator(&world.arena, iterator, [0, 0]);
            return 0;
        }
        write_iterator(&world.arena, iterator, [last + 1, end]);
        iterator
    })
}

fn iter_num_destroy(iterator: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    with(|world| write_iterator(&world.arena, iterator, [0, 0]));
    0
}

fn write_iterator(arena: &Arena, iterator: u64, state: [i32; 2]) {
    arena.write(iterator, state.map(i32::to_le_bytes).as_flattened());
}
