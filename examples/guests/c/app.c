// What a CPU switches between, once a second until it is stopped; ../ks/switches.ks says more.
//
// plugin.h and its two companions are made of the contract by wit-bindgen; the README says how.

#include "plugin.h"

#include <string.h>

#define SECOND 1000000000ull
// Bytes of records that one call gives at most.
#define BATCH (256u << 10)

// PERF_TYPE_SOFTWARE, and its events.
enum { SOFTWARE = 1, PAGE_FAULTS = 2, CONTEXT_SWITCHES = 3, CPU_MIGRATIONS = 4 };

// What stands before each record of a batch.
struct header {
  uint32_t ring, length;
};

// A record as the kernel half makes it.
struct seen {
  uint32_t pid, cpu;
};

// What was taken out of the ring buffer up to now.
struct sampled {
  uint32_t number, last;
};

typedef kernelscript_host_types_error_t error_t;
typedef kernelscript_host_console_value_t value_t;

// Tells an error, and ends the plugin with exit code 1.
static bool failed(error_t *error, uint8_t *exit_code) {
  kernelscript_host_console_fail(&error->message);
  kernelscript_host_types_error_free(error);
  *exit_code = 1;
  return false;
}

// Opens a software event of every task on CPU 0.
static bool count(uint64_t config, uint64_t period, kernelscript_host_perf_borrow_attachment_t *leader,
                  kernelscript_host_perf_borrow_program_t *program,
                  kernelscript_host_perf_own_attachment_t *opened, error_t *error) {
  kernelscript_host_perf_own_event_t event;
  if (!kernelscript_host_perf_static_event_numbered(SOFTWARE, config, &event, error))
    return false;
  kernelscript_host_perf_own_options_t options = kernelscript_host_perf_constructor_options();
  kernelscript_host_perf_borrow_options_t set = kernelscript_host_perf_borrow_options(options);
  kernelscript_host_perf_method_options_observe_every_task(set);
  kernelscript_host_perf_method_options_on_cpu(set, 0);
  if (period != 0)
    kernelscript_host_perf_method_options_set_period(set, period);
  bool ok = kernelscript_host_perf_open(kernelscript_host_perf_borrow_event(event), set, leader, program, opened,
                                        error);
  kernelscript_host_perf_options_drop_own(options);
  kernelscript_host_perf_event_drop_own(event);
  return ok;
}

static void print(const char *format, value_t *values, size_t number) {
  plugin_list_u8_t text = {.ptr = (uint8_t *)format, .len = strlen(format)};
  kernelscript_host_console_list_value_t list = {.ptr = values, .len = number};
  kernelscript_host_console_print(&text, &list);
}

static value_t number(uint64_t value) {
  return (value_t){.tag = KERNELSCRIPT_HOST_CONSOLE_VALUE_UNSIGNED64, .val.unsigned64 = value};
}

// Takes records out for a second, or until the plugin is asked to stop.
static bool take(kernelscript_host_ring_borrow_ring_t *seen, struct sampled *sampled, error_t *error) {
  uint64_t deadline = kernelscript_host_clock_now() + SECOND;
  do {
    uint64_t now = kernelscript_host_clock_now();
    uint64_t left = now < deadline ? deadline - now : 0;
    kernelscript_host_ring_list_borrow_ring_t rings = {.ptr = seen, .len = 1};
    kernelscript_host_ring_tuple2_own_batch_list_u8_t polled;
    if (!kernelscript_host_ring_poll(&rings, &left, BATCH, &polled, error)) {
      if (error->kind.tag != KERNELSCRIPT_HOST_TYPES_ERROR_KIND_INTERRUPTED)
        return false;
      kernelscript_host_types_error_free(error);
      return true;
    }
    plugin_list_u8_t records = polled.f1;
    for (size_t at = 0; at < records.len;) {
      struct header header;
      struct seen record;
      memcpy(&header, records.ptr + at, sizeof header);
      memcpy(&record, records.ptr + at + sizeof header, sizeof record);
      sampled->number += 1;
      sampled->last = record.pid;
      at += sizeof header + (header.length + 7) / 8 * 8;
    }
    plugin_list_u8_free(&records);
    kernelscript_host_ring_batch_drop_own(polled.f0);
  } while (kernelscript_host_clock_now() < deadline);
  return true;
}

// Prints a line of the table each second.
static bool watch(const uint64_t counters[3], error_t *error) {
  plugin_string_t name;
  plugin_string_set(&name, "seen");
  kernelscript_host_ring_own_ring_t ring;
  if (!kernelscript_host_ring_static_ring_open(&name, &ring, error))
    return false;
  kernelscript_host_ring_borrow_ring_t seen = kernelscript_host_ring_borrow_ring(ring);
  struct sampled sampled = {0};
  if (!take(&seen, &sampled, error))
    return false;
  for (uint32_t second = 1; !kernelscript_host_clock_stopping(); second++) {
    value_t values[6] = {number(second), [4] = number(sampled.number), [5] = number(sampled.last)};
    for (int i = 0; i < 3; i++) {
      kernelscript_host_perf_reading_t reading;
      if (!kernelscript_host_perf_read_by_id(counters[i], &reading, error))
        return false;
      values[1 + i] = number(reading.raw);
    }
    print("%6u %10u %10u %10u %10u %10u", values, 6);
    if (!take(&seen, &sampled, error))
      return false;
  }
  return true;
}

bool exports_plugin_run(uint8_t *exit_code) {
  error_t error;
  plugin_string_t name;
  plugin_string_set(&name, "on_switches");
  kernelscript_host_bpf_own_program_t loaded;
  if (!kernelscript_host_bpf_static_program_load(&name, &loaded, &error))
    return failed(&error, exit_code);
  kernelscript_host_perf_borrow_program_t program = kernelscript_host_bpf_borrow_program(loaded);
  kernelscript_host_perf_own_attachment_t switches, faults, moves;
  if (!count(CONTEXT_SWITCHES, 64, NULL, &program, &switches, &error))
    return failed(&error, exit_code);
  kernelscript_host_perf_borrow_attachment_t leader = kernelscript_host_perf_borrow_attachment(switches);
  if (!count(PAGE_FAULTS, 0, &leader, NULL, &faults, &error) || !count(CPU_MIGRATIONS, 0, &leader, NULL, &moves, &error))
    return failed(&error, exit_code);
  print("second   switches     faults migrations    sampled       last", NULL, 0);
  // Reading by number spares the host the lending of a handle.
  const uint64_t counters[3] = {
      kernelscript_host_perf_method_attachment_id(leader),
      kernelscript_host_perf_method_attachment_id(kernelscript_host_perf_borrow_attachment(faults)),
      kernelscript_host_perf_method_attachment_id(kernelscript_host_perf_borrow_attachment(moves)),
  };
  return watch(counters, &error) || failed(&error, exit_code);
}
