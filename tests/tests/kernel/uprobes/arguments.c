// Prints what the probes of this function must see: its arguments, the stack pointer before its call, its
// address, and its result.
#include <stdio.h>

__attribute__((noinline)) unsigned long many(long a, int b, unsigned c, short d, long e, long f, signed char g,
                                             long h, unsigned i, long j, long k, long l)
{
    unsigned long sum = a + b + c + d + e + f + g + h + i + j + k + l;
    printf("called %ld %d %u %d %ld %ld %d %ld %u %ld %ld %ld\n", a, b, c, d, e, f, g, h, i, j, k, l);
    printf("stack %lu\ncode %lu\nresult %lu\n", (unsigned long)__builtin_dwarf_cfa(), (unsigned long)many, sum);
    return sum;
}

int main(void)
{
    volatile long base = 1;
    many(base - 2, -3, 4000000000u, -5, 6L << 40, -7, -8, 9L << 50, 3900000000u, -11, 12, -13L << 33);
    return 0;
}
