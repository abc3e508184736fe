// A program whose code and data a test watches: it prints a number that an instruction of it holds, and a counter
// like those that static probes have.
#include <stdio.h>
#include <unistd.h>

volatile unsigned short counter = 7;

// The label lies inside `mov $0x909090, %eax`.
__attribute__((noinline)) int limit(void) {
    int value;
    __asm__ volatile(".byte 0xb8\n.globl immediate\nimmediate: .byte 0x90, 0x90, 0x90, 0x00" : "=a"(value));
    return value;
}

// A symbol says that a function starts inside an instruction.
__asm__(".text\n.globl outer, inner\n.type outer, @function\n.type inner, @function\n"
        "outer: .byte 0xb8\ninner: .byte 0x90, 0x90, 0x90, 0x00\n ret\n"
        ".size inner, .-inner\n.size outer, .-outer\n");

int outer(void);

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (;;) {
        printf("%#x %#x %d\n", limit(), outer(), counter);
        usleep(1000);
    }
}
