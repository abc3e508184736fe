// What a CPU switches between, once a second until it is stopped; ../ks/switches.ks says more.

import { Program } from "kernelscript:host/bpf@0.2.0";
import { now, stopping } from "kernelscript:host/clock@0.2.0";
import { fail, line as print } from "kernelscript:host/console@0.2.0";
import { Event, Options, open, readById } from "kernelscript:host/perf@0.2.0";
import { Ring, poll } from "kernelscript:host/ring@0.2.0";

const SECOND = 1_000_000_000n;
// Bytes of records that one call gives at most.
const BATCH = 256 << 10;
// Before each record: the position of its ring (4 bytes), its length (4 bytes).
const HEADER = 8;
// PERF_TYPE_SOFTWARE, and its events.
const SOFTWARE = 1;
const [PAGE_FAULTS, CONTEXT_SWITCHES, CPU_MIGRATIONS] = [2n, 3n, 4n];

// Opens a software event of every task on CPU 0.
function count(config, leader, program, period) {
  const options = new Options();
  options.observeEveryTask();
  options.onCpu(0);
  if (period !== undefined) {
    options.setPeriod(period);
  }
  return open(Event.numbered(SOFTWARE, config), options, leader, program);
}

function line(words) {
  const widths = [6, 10, 10, 10, 10, 10];
  const text = words.map((word, column) => String(word).padStart(widths[column])).join(" ");
  print(new TextEncoder().encode(text));
}

// What was taken out of the ring buffer up to now.
const sampled = { number: 0, last: 0 };

// Takes records out for a second, or until the plugin is asked to stop.
function take(seen) {
  const deadline = now() + SECOND;
  do {
    const left = deadline - now();
    let batch, records;
    try {
      [batch, records] = poll([seen], left > 0n ? left : 0n, BATCH);
    } catch (error) {
      if (error.payload?.kind.tag === "interrupted") {
        return;
      }
      throw error;
    }
    const view = new DataView(records.buffer, records.byteOffset, records.byteLength);
    for (let at = 0; at < records.byteLength; ) {
      const length = view.getUint32(at + 4, true);
      sampled.last = view.getUint32(at + HEADER, true);
      sampled.number += 1;
      at += HEADER + Math.ceil(length / 8) * 8;
    }
    batch[Symbol.dispose]();
  } while (now() < deadline);
}

function watch() {
  const program = Program.load("on_switches");
  const switches = count(CONTEXT_SWITCHES, undefined, program, 64n);
  const faults = count(PAGE_FAULTS, switches);
  const moves = count(CPU_MIGRATIONS, switches);
  // Reading by number spares the host the lending of a handle.
  const counters = [switches, faults, moves].map((one) => one.id());
  line(["second", "switches", "faults", "migrations", "sampled", "last"]);
  const seen = Ring.open("seen");
  take(seen);
  for (let second = 1; !stopping(); second += 1) {
    const counts = counters.map((one) => readById(one).raw);
    line([second, ...counts, sampled.number, sampled.last]);
    take(seen);
  }
}

export function run() {
  try {
    watch();
  } catch (error) {
    fail(error.payload?.message ?? String(error));
    throw 1;
  }
}
