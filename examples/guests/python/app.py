"""What a CPU switches between, once a second until it is stopped; ../ks/switches.ks says more."""

import struct

import wit_world
from componentize_py_types import Err
from wit_world.imports import bpf, clock, console, perf, ring
from wit_world.imports.types import ErrorKind_Interrupted

SECOND = 1_000_000_000
# Bytes of records that one call gives at most.
BATCH = 256 << 10
# Before each record: the position of its ring, its length.
HEADER = struct.Struct("<II")
# A record as the kernel half makes it: the task, the CPU.
SEEN = struct.Struct("<II")
# PERF_TYPE_SOFTWARE, and its events.
SOFTWARE, PAGE_FAULTS, CONTEXT_SWITCHES, CPU_MIGRATIONS = 1, 2, 3, 4


def count(config, leader=None, program=None, period=None):
    """Opens a software event of every task on CPU 0."""
    with perf.Event.numbered(SOFTWARE, config) as event, perf.Options() as options:
        options.observe_every_task()
        options.on_cpu(0)
        if period:
            options.set_period(period)
        return perf.open(event, options, leader, program)


def line(text):
    console.line(text.encode())


class Sampled:
    """What was taken out of the ring buffer up to now."""

    def __init__(self):
        self.number = 0
        self.last = 0

    def take(self, seen):
        """Takes records out for a second, or until the plugin is asked to stop."""
        deadline = clock.now() + SECOND
        while True:
            try:
                batch, records = ring.poll([seen], max(deadline - clock.now(), 0), BATCH)
            except Err as error:
                if isinstance(error.value.kind, ErrorKind_Interrupted):
                    return
                raise
            at = 0
            with batch:
                while at < len(records):
                    _, length = HEADER.unpack_from(records, at)
                    self.last, _ = SEEN.unpack_from(records, at + HEADER.size)
                    self.number += 1
                    at += HEADER.size + (length + 7) // 8 * 8
            if clock.now() >= deadline:
                return


def watch():
    program = bpf.Program.load("on_switches")
    switches = count(CONTEXT_SWITCHES, program=program, period=64)
    faults = count(PAGE_FAULTS, leader=switches)
    moves = count(CPU_MIGRATIONS, leader=switches)
    # Reading by number spares the host the lending of a handle.
    counters = [one.id() for one in (switches, faults, moves)]
    line("second   switches     faults migrations    sampled       last")
    seen = ring.Ring.open("seen")
    sampled = Sampled()
    sampled.take(seen)
    second = 0
    while not clock.stopping():
        second += 1
        counts = [perf.read_by_id(one).raw for one in counters]
        line("%6u %10u %10u %10u %10u %10u" % (second, *counts, sampled.number, sampled.last))
        sampled.take(seen)


class WitWorld(wit_world.WitWorld):
    def run(self):
        try:
            watch()
        except Err as error:
            console.fail(error.value.message)
            raise Err(1)
