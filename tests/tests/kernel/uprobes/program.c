// Places in a program that are instructions, and places that look like some.
#include <stdio.h>
#include <unistd.h>

// The label lies inside `mov $0x909090, %eax`.
__attribute__((noinline)) int limit(void) {
    int value;
    __asm__ volatile(".byte 0xb8\n.globl immediate\nimmediate: .byte 0x90, 0x90, 0x90, 0x00" : "=a"(value));
    return value;
}

static int (*choose(void))(void) { return limit; }
int chosen(void) __attribute__((ifunc("choose")));

__asm__(".text\n"
        // A symbol says that a function starts inside an instruction.
        ".globl outer, inner\n.type outer, @function\n.type inner, @function\n"
        "outer: .byte 0xb8\ninner: .byte 0x90, 0x90, 0x90, 0x00\n ret\n"
        ".size inner, .-inner\n.size outer, .-outer\n"
        // A byte of data is jumped over, and would take what follows it for a number.
        ".globl jumper, hidden, landing\n.type jumper, @function\n"
        "jumper: jmp landing\nhidden: .byte 0xb8\nlanding: push %rbp\n pop %rbp\n nop\n nop\n ret\n"
        ".size jumper, .-jumper\n"
        // Only a computed jump leads to what follows; one place has a static probe.
        ".globl computed, case_one, case_two\n.type computed, @function\n"
        "computed: jmp *%rax\ncase_one: nop\ncase_two: nop\n ret\n"
        ".size computed, .-computed\n"
        ".pushsection .note.stapsdt, \"\", \"note\"\n"
        ".4byte 2f-1f, 4f-3f, 3\n1: .asciz \"stapsdt\"\n2: .balign 4\n"
        "3: .8byte case_two, 0, 0\n .asciz \"provider\"\n .asciz \"name\"\n .asciz \"\"\n4: .balign 4\n"
        ".popsection\n"
        // Data among the code.
        ".globl table\n.type table, @object\ntable: .8byte 0x9090909090909090\n.size table, .-table\n");

int outer(void);
int jumper(void);

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (;;) {
        printf("%#x %#x\n", limit(), outer());
        jumper();
        usleep(5000);
    }
}
