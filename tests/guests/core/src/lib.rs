//! A plugin without `std`: it defines its allocator and its panic handler, and counts like any other.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use ks_guest::{Attachment, Event, PerfOptions, Result, println};

/// A bump allocator that never frees memory.
struct Bump {
    used: AtomicUsize,
}

const BYTES: usize = 64 << 10;

#[repr(align(16))]
struct Heap(core::cell::UnsafeCell<[u8; BYTES]>);

// SAFETY: a plugin has one thread, and every byte is allocated once.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap(core::cell::UnsafeCell::new([0; BYTES]));

#[global_allocator]
static ALLOCATOR: Bump = Bump { used: AtomicUsize::new(0) };

// SAFETY: blocks lie within the heap, begin at a multiple of their alignment, and do not overlap.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.used.load(Ordering::Relaxed).next_multiple_of(layout.align());
        if layout.align() > 16 || start + layout.size() > BYTES {
            return null_mut();
        }
        self.used.store(start + layout.size(), Ordering::Relaxed);
        // SAFETY: the block was checked to lie within the heap.
        unsafe { HEAP.0.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

#[ks_guest::main]
fn main() -> Result<()> {
    let mine = PerfOptions::new().own_thread().exclude_kernel(true);
    let faults = Attachment::open(&Event::named("page_faults")?, &mine)?;
    // The first access to each page is a fault of this thread.
    let first = core::arch::wasm32::memory_grow(0, 1) * 65536;
    for page in 0..16 {
        // SAFETY: the memory was grown by 16 pages of 4096 bytes.
        unsafe { core::ptr::write_volatile((first + page * 4096) as *mut u8, 1) };
    }
    println!("faults {}", faults.read()?.raw);
    // Errors work as they do with `std`.
    Event::named("page_fault").map(drop)
}
