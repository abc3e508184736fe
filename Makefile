# Two targets do everything on a fresh machine: `make run` and `make test`. Both install what is missing (see
# scripts/packages), build with cargo's release profile, and leave nothing behind but `target/` and the cache of fetched tools.
#
# Every cargo call names the whole workspace and, where that is not all of it, the targets it builds. With a part of the
# workspace cargo picks other features for shared dependencies, and wasmtime is built a second time.

CARGO ?= cargo
# For the commands of this file: what is given to make here would reach the scripts otherwise, which have a cargo of their own.
unexport CARGO
RELEASE := target/release

# Tests run so many at a time: most of them wait for a child, a timer or the kernel.
THREADS ?= 6
# Inputs of `make halves` and `make oracles`.
INPUTS ?= 100000
# Scripts of `make random-scripts`, and of `make random-kernels` and `make known-results` for each kernel.
SCRIPTS ?= 500
# Members of `make random-members`.
MEMBERS ?= 10000
# Where those three, `oracles` and `generated` begin; without it `random-scripts` begins at the time, `generated` at the
# number of the process, the others at 0.
SEED ?=
# Guests of `make generated`.
GUESTS ?= 10000
# Seconds for each target of `make fuzzed` and `make fuzz`, and the targets of the latter.
SECONDS ?= 300
TARGETS ?= object model btf policy record signature sections manifest message check fmt
# Objects of `make mutants`, and those of them that `ks-host inspect` is given.
MUTANTS ?= 1000000
INSPECTED ?= 100000
# What `make mutation` changes: object, policy, look, readings, literals or folding.
PART ?= object
# Moments at which `make killed` kills a host, for each kind of program.
MOMENTS ?= 100
# Starts and kills of `make cycles`.
CYCLES ?= 1000
# The revision that `make bench-compare` compares with, the pairs of runs, and what it runs.
BASE ?= HEAD
PAIRS ?= 9
COMPARED ?= startup perf_read map_read check
# Benches that run anywhere; in a test each does so once. `make bench` builds the reads, the start and the compiler as they
# are given to others.
SHIPPED := $(addprefix --bench ,perf_read startup tools)
OTHERS := $(addprefix --bench ,map_read check growth rings sampling overhead scale)
BENCHES := $(SHIPPED) $(OTHERS)

TEST := RUST_TEST_THREADS=$(THREADS) $(CARGO) test --release --workspace
# The compilers of plugins in other languages, fetched and built once, and what plugins in Rust are built with: their macros
# contain the compiler of scripts, which takes one processor a minute.
GUEST_TOOLS := scripts/guest-tools python && scripts/guest-tools javascript && cd tests/guests/kernel && \
	CARGO_TARGET_DIR=../../../$(RELEASE)/guests ../../../scripts/guest-cargo build --release --locked \
	--target wasm32-unknown-unknown
# One test by its name, with its output.
ONE = $(CARGO) test --release --workspace --test $(1) -- --nocapture $(2)

.PHONY: all dist run test quick check tables halves oracles random-scripts random-members random-kernels tool-table known-results refused-calls generated fuzzed \
	fuzz mutants mutation killed cycles policy-cost sdk-cost bench bench-docs bench-compare packages test-packages test-programs \
	guest-tools clean

all: packages
	$(CARGO) build --release --workspace --bin ks
	$(CARGO) build --release --workspace --bin ks --bin ks-host

# The two commands as they are given to others, in target/dist.
dist: packages
	$(CARGO) build --profile dist --workspace --bin ks --bin ks-host

# Compiles an example and runs it.
run: all
	@$(RELEASE)/ks build examples/perf/page_faults.ks -o target/page_faults.wasm
	@$(RELEASE)/ks-host target/page_faults.wasm

# Every test, whatever fails before it. The kernel tests need root and say so. The tools of other languages are fetched and
# built meanwhile.
test: test-programs
	@mkdir -p target; { $(GUEST_TOOLS); } >target/guest-tools.log 2>&1 & tools=$$!; \
		$(CARGO) build --release --workspace --all-targets && { wait $$tools || { cat target/guest-tools.log >&2; exit 1; }; }
	$(TEST) --no-fail-fast
	$(TEST) $(BENCHES)

# Every test that needs neither the kernel's privileges nor other tools.
quick: packages
	$(TEST) --no-fail-fast --lib --bins --test compiler-units --test host-units --test compiler --test cases --test plain \
		-- --skip root_

# Formatting, lints, the documentation of the libraries, the compiler's objects without the language, the host without
# scripts, and what the documents, the manifests, the tables and generated files promise; a warning is an error.
check: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --lib
	$(CARGO) check --release --lib --no-default-features -p ks-compiler
	$(CARGO) clippy --release --no-default-features --features plugins -p ks-host -- -D warnings
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	$(CARGO) test --release --workspace --test plain -- documents:: builds:: contract:: names:: tables:: --skip root_

# The large run of tests/tests/plain/tables.rs: a copy of the tree with a made-up builtin, helper and program kind, built and
# used. Compiles everything once more the first time.
tables: packages
	KS_TABLES=1 $(call ONE,plain,tables::)

# The large run of tests/tests/kernel/halves: generated functions in both halves, on so many random inputs. Needs root.
halves: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_HALVES_INPUTS=$(INPUTS) $(call ONE,kernel,halves::)

# The large run of compiler/tests/compiler/random: random scripts, compiled and loaded into the running kernel. Needs root.
random-scripts: test-packages
	$(if $(SEED),KS_RANDOM_SEED=$(SEED)) KS_RANDOM_SCRIPTS=$(SCRIPTS) $(call ONE,compiler,random::)

# The large run of tests/tests/toolchains/random_members.rs: random members of the running kernel's structs, compared with
# what a C program reads. Needs root.
random-members: test-packages
	$(if $(SEED),KS_RANDOM_SEED=$(SEED)) KS_RANDOM_MEMBERS=$(MEMBERS) $(call ONE,toolchains,random_members::)

# The large run of tests/tests/emulated/random_kernels.rs: the same, built without flags and loaded on the emulated kernels.
random-kernels: test-packages
	$(if $(SEED),KS_RANDOM_SEED=$(SEED)) KS_RANDOM_SCRIPTS=$(SCRIPTS) $(call ONE,emulated,random_kernels::kernel)

# The large run of tests/tests/emulated/tools.rs: every tool, on the running kernel and on the emulated ones, for the table of
# docs/tools.md. Needs root.
tool-table: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_ALL_TOOLS=1 INSTA_UPDATE=always $(call ONE,emulated,tools::root_the_table)

# The large run of tests/tests/emulated/known_results.rs: random scripts whose results userspace knows, run on the running
# kernel and on the emulated ones. Needs root.
known-results: test-packages
	$(if $(SEED),KS_KNOWN_SEED=$(SEED)) KS_KNOWN_SCRIPTS=$(SCRIPTS) $(call ONE,emulated,known_results::)

# The large run of tests/tests/kernel/oracles: generated functions and random scripts in the interpreters of the MIR and of
# BPF and in the kernel, each on so many random inputs. Needs root.
oracles: test-packages
	$(if $(SEED),KS_ORACLES_SEED=$(SEED)) KS_ORACLES_INPUTS=$(INPUTS) $(call ONE,kernel,oracles:: --test-threads=1)

# The large run of tests/tests/kernel/refused_calls: every system call of a run of the host, refused with every error. Needs
# root.
refused-calls: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_REFUSED=all $(call ONE,kernel,refused_calls::)

# The large run of tests/tests/kernel/hostile/generated.rs: so many guests by chance.
generated: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	$(if $(SEED),KS_SEED=$(SEED)) KS_GENERATED=$(GUESTS) $(call ONE,kernel,hostile::generated)

# The large run of tests/tests/plain/fuzzed.rs: any bytes against what reads them, so many seconds for each target.
fuzzed: test-packages
	KS_FUZZ_SECONDS=$(SECONDS) $(call ONE,plain,fuzzed:: --test-threads=1)

# The same bodies, and those of the compiler's front end, under libFuzzer, which looks for inputs that reach more code; see
# fuzz/Cargo.toml. Sanitizers need a compiler of today with features of tomorrow's, which the variable allows.
fuzz: test-packages
	@[ -x target/tools/bin/cargo-fuzz ] || $(CARGO) install --quiet --locked --root target/tools cargo-fuzz
	KS_FUZZ_SECONDS=0 KS_FUZZ_CORPUS="$(CURDIR)/fuzz/corpus" $(call ONE,plain,fuzzed:: --skip root_)
	fuzz/seed.sh
	cd fuzz && for target in $(TARGETS); do \
		RUSTC_BOOTSTRAP=1 ../target/tools/bin/cargo-fuzz run $$target -- -max_total_time=$(SECONDS) -timeout=10 \
			-rss_limit_mb=4096 || exit 1; \
	done

# The large run of tests/tests/toolchains/mutants: changed objects through reader, writer and a libbpf with sanitizers, and
# through `ks-host inspect`. Needs root.
mutants: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	$(if $(SEED),KS_MUTANTS_SEED=$(SEED)) KS_MUTANTS=$(MUTANTS) KS_INSPECTED=$(INSPECTED) $(call ONE,toolchains,mutants::)

# The code that decides what reaches libbpf and the kernel, or what a counter says, changed one place at a time:
# scripts/mutation. It takes an hour or more, and reports what no test notices. Readings need root.
mutation: test-packages
	@[ -x target/tools/bin/cargo-mutants ] || $(CARGO) install --quiet --locked --root target/tools cargo-mutants
	PATH="$(CURDIR)/target/tools/bin:$$PATH" scripts/mutation $(PART)

# The large run of tests that kill the host at so many moments for each kind of program. Needs root.
killed: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_MOMENTS=$(MOMENTS) $(call ONE,emulated,killed)
	KS_MOMENTS=$(MOMENTS) $(call ONE,network,killed)

# The large run of tests/tests/kernel/cycles.rs: plugins started, stopped and killed again and again. Needs root.
cycles: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_CYCLES=$(CYCLES) KS_KILLS=$(MOMENTS) $(call ONE,kernel,cycles::)

# What a policy and the confinement cost a read, in instructions that an emulated arm64 machine counts:
# tests/tests/emulated/policy_cost.rs. Also what tools count of hardware events there, beside perf: tools_beside_perf.rs.
# Builds the host for arm64 first, which takes minutes.
policy-cost: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_POLICY_COST=1 $(call ONE,emulated,policy_cost:: tools_beside_perf::)

# What the crate ks-guest costs a read, counted in the same way: tests/tests/emulated/sdk_cost.rs.
sdk-cost: test-packages
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	KS_SDK_COST=1 $(call ONE,emulated,sdk_cost::)

# The read path beside the system call alone, how ks check grows with a script, the time from start to the first attach
# beside perf stat and bpftrace, ring buffers beside libbpf-rs, what watched programs feel, many plugins in one host,
# and the kernel half beside C (which needs clang and root). The end is one table: each promised ratio beside the
# measured one. It fails if one does not hold; `cargo bench --workspace --bench summary -- --json` says the same to
# programs. The first build of the shipped form takes half an hour.
bench: packages
	@scripts/packages clang libbpf bpftool
	@scripts/packages perf bpftrace || echo "without perf or bpftrace their rows are left out"
	@scripts/guest-cargo --version >/dev/null
	$(CARGO) build --release --workspace --bin ks --bin ks-host
	$(CARGO) build --profile dist --workspace --bin ks --bin ks-host --bin bench-libbpf
	$(CARGO) bench --profile dist --workspace $(SHIPPED) --bench kernel_half
	$(CARGO) bench --workspace $(OTHERS)
	@$(CARGO) bench -q --workspace --bench summary

# The figures of the last `make bench`, and their picture, for docs/performance.md.
bench-docs:
	@$(CARGO) bench -q --workspace --bench summary -- --into "$(CURDIR)/docs"

# This tree beside another revision of it, in one run: both trees' benches alternate, and a difference inside the spread of
# BASE against itself is none. "Not worse" means this.
bench-compare: packages
	@scripts/packages perf bpftrace || echo "without perf or bpftrace their rows are left out"
	@scripts/guest-cargo --version >/dev/null
	rm -rf target/compare/base && mkdir -p target/compare/base/source
	git archive $(BASE) | tar -x -m -C target/compare/base/source
	scripts/bench-build target/compare/base $(COMPARED)
	rm -rf target/compare/new && mkdir -p target/compare/new/source
	git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read | \
		tar -x -m -C target/compare/new/source
	scripts/bench-build target/compare/new $(COMPARED)
	$(CARGO) build --quiet --release --workspace --bin bench-compare
	$(RELEASE)/bench-compare target/compare/base target/compare/new --pairs $(PAIRS) $(COMPARED)

packages:
	@scripts/packages cc pkg-config libelf zlib

test-packages: test-programs guest-tools

test-programs:
	@scripts/packages cc pkg-config libelf zlib bpftool ip protoc emulator emulator-arm64 cc-arm64 module clang-wasm python node
	@scripts/packages perf || echo "without perf what is compared with it is left out"

guest-tools:
	@{ $(GUEST_TOOLS); } >/dev/null

clean:
	$(CARGO) clean
