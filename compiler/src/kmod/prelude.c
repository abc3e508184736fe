// SPDX-License-Identifier: GPL-2.0
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#ifndef __bpf_kfunc
#define __bpf_kfunc __used noinline
#endif
#ifndef __bpf_kfunc_start_defs
#define __bpf_kfunc_start_defs() \
	__diag_push(); \
	__diag_ignore_all("-Wmissing-prototypes", "BPF programs call these functions")
#define __bpf_kfunc_end_defs() __diag_pop()
#endif
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START(name) BTF_SET8_START(name)
#define BTF_KFUNCS_END(name) BTF_SET8_END(name)
#endif

/* Division by zero gives 0, the remainder what was divided; the smallest number by -1 wraps. */
#define KS_UNSIGNED(T) \
	static inline T ks_div_##T(T a, T b) { return b ? a / b : 0; } \
	static inline T ks_rem_##T(T a, T b) { return b ? a % b : a; }
#define KS_SIGNED(T) \
	static inline T ks_div_##T(T a, T b) { return b == -1 ? (T)(0 - (u64)a) : b ? a / b : 0; } \
	static inline T ks_rem_##T(T a, T b) { return b == -1 ? 0 : b ? a % b : a; }

KS_UNSIGNED(u8)
KS_UNSIGNED(u16)
KS_UNSIGNED(u32)
KS_UNSIGNED(u64)
KS_SIGNED(s8)
KS_SIGNED(s16)
KS_SIGNED(s32)
KS_SIGNED(s64)

/* The kernel's own limit of a loop in a BPF program: no loop keeps a CPU for ever. */
#define KS_MAX_TURNS (1U << 23)
