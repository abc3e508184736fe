# Functions in Go and in C as their debug information tells, called with words in the registers of Go's ABIInternal
# (cmd/compile/abi-internal.md) and of the System V ABI. No toolchain of Go is needed to build this.
    .text
    .globl _start, go_add, go_old, c_add
_start:
    mov $1, %rax
    mov $2, %rbx
    mov $3, %rcx
    mov $4, %rdi
    mov $5, %rsi
    mov $6, %r8
    mov $7, %r9
    mov $8, %r10
    mov $-9, %r11
    call go_add
    mov $11, %rdi
    mov $12, %rsi
    call c_add
    call go_old
    mov $60, %eax
    xor %edi, %edi
    syscall

    .type go_add, @function
go_add:
    ret
    .size go_add, . - go_add
go_add_end:
    .type go_old, @function
go_old:
    ret
    .size go_old, . - go_old
go_old_end:
    .type c_add, @function
c_add:
    ret
    .size c_add, . - c_add
c_add_end:

    .section .go.buildinfo, "a"
    .ascii "\xff Go buildinf:"

# DWARF 4: compile units with DW_AT_language, DW_AT_producer, DW_AT_low_pc and DW_AT_high_pc.
    .section .debug_abbrev
    .byte 1, 0x11, 0, 0x13, 0x0b, 0x25, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0, 0

    .macro unit language, producer, start, end
    .4byte 2f - 1f
1:  .2byte 4
    .4byte .debug_abbrev
    .byte 8, 1, \language
    .asciz "\producer"
    .8byte \start
    .8byte \end - \start
2:
    .endm

    .section .debug_info
    unit 0x16, "Go cmd/compile go1.22.0; regabi", go_add, go_add_end
    unit 0x16, "Go cmd/compile go1.15.2", go_old, go_old_end
    unit 0x0c, "GNU C17 12.2.0", c_add, c_add_end
