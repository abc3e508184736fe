# Two targets do everything on a fresh machine: `make run` and `make test`. Both install what is missing (see
# scripts/packages), build with cargo's release profile, and leave nothing behind but `target/`.
#
# Every cargo call names the whole workspace: with a part of it cargo picks other features for shared dependencies, and
# wasmtime is built a second time.

CARGO ?= cargo
RELEASE := target/release

# Inputs of `make halves` and `make oracles`.
INPUTS ?= 100000
# Scripts of `make random-kernels`, for each kernel.
SCRIPTS ?= 500
# Benches that run anywhere; in a test each does so once.
BENCHES := $(addprefix --bench ,perf_read map_read check startup rings sampling overhead scale)

.PHONY: all run test halves oracles random-kernels refused-calls policy-cost sdk-cost check bench bench-docs packages test-packages clean

all: packages
	$(CARGO) build --release --workspace

# Compiles an example and runs it.
run: all
	@$(RELEASE)/ks build examples/perf/page_faults.ks -o target/page_faults.wasm
	@$(RELEASE)/ks-host target/page_faults.wasm

# Every test, whatever fails before it. The kernel tests need root and say so.
test: test-packages
	$(CARGO) build --release --workspace --all-targets
	$(CARGO) test --release --workspace --no-fail-fast
	$(CARGO) test --release --workspace $(BENCHES)

# The large run of tests/tests/halves.rs: generated functions in both halves, on so many random inputs. Needs root.
halves: test-packages
	$(CARGO) build --release --workspace
	KS_HALVES_INPUTS=$(INPUTS) $(CARGO) test --release --workspace --test halves -- --nocapture

# The large run of tests/tests/random_kernels.rs: random scripts, compiled for the emulated kernels and loaded there.
random-kernels: test-packages
	$(CARGO) build --release --workspace
	KS_RANDOM_SCRIPTS=$(SCRIPTS) $(CARGO) test --release --workspace --test random_kernels -- --nocapture

# The large run of tests/tests/oracles: generated functions and random scripts in the interpreters of the MIR and of BPF and
# in the kernel, each on so many random inputs. Needs root.
oracles: test-packages
	$(CARGO) build --release --workspace
	KS_ORACLES_INPUTS=$(INPUTS) $(CARGO) test --release --workspace --test oracles -- --nocapture --test-threads=1

# The large run of tests/tests/refused_calls: every system call of a run of the host, refused with every error. Needs
# root.
refused-calls: test-packages
	$(CARGO) build --release --workspace
	KS_REFUSED=all $(CARGO) test --release --workspace --test refused_calls -- --nocapture

# What a policy and the confinement cost a read, in instructions that an emulated arm64 machine counts:
# tests/tests/policy_cost.rs. Builds the host for arm64 first, which takes minutes.
policy-cost: test-packages
	$(CARGO) build --release --workspace
	KS_POLICY_COST=1 $(CARGO) test --release --workspace --test policy_cost -- --nocapture

# What the crate ks-guest costs a read, counted in the same way: tests/tests/sdk_cost.rs.
sdk-cost: test-packages
	$(CARGO) build --release --workspace
	KS_SDK_COST=1 $(CARGO) test --release --workspace --test sdk_cost -- --nocapture

# Formatting, lints, and the documentation of what plugin authors use; a warning is an error.
check: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps -p ks-guest -p ks-guest-macros

# The read path beside the system call alone, how ks check grows with a script, the time from start to the first attach
# beside perf stat and bpftrace, ring buffers beside libbpf-rs, what watched programs feel, many plugins in one host,
# and the kernel half beside C (which needs clang and root). The end is one table: each promised ratio beside the
# measured one. It fails if one does not hold; `cargo bench --workspace --bench summary -- --json` says the same to
# programs.
bench: packages
	@scripts/packages clang libbpf bpftool
	@scripts/packages perf bpftrace || echo "without perf or bpftrace their rows are left out"
	@scripts/guest-cargo --version >/dev/null
	$(CARGO) build --release --workspace
	$(CARGO) bench --workspace $(BENCHES) --bench kernel_half
	@$(CARGO) bench -q --workspace --bench summary

# The figures of the last `make bench`, and their picture, for docs/performance.md.
bench-docs:
	@$(CARGO) bench -q --workspace --bench summary -- --into "$(CURDIR)/docs"

packages:
	@scripts/packages cc pkg-config libelf zlib

test-packages:
	@scripts/packages cc pkg-config libelf zlib bpftool ip protoc emulator emulator-arm64 cc-arm64 module clang-wasm python node
	@scripts/packages perf || echo "without perf what is compared with it is left out"
	@scripts/guest-cargo --version >/dev/null
	@scripts/guest-tools python >/dev/null
	@scripts/guest-tools javascript >/dev/null

clean:
	$(CARGO) clean
