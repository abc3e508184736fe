// Passes texts in pages that nobody has touched, one in a page and one in two, and an address without memory.
static const char pages[3 * 4096] __attribute__((aligned(4096))) = {
    [4096] = 'h', 'e', 'l', 'l', 'o',
    [2 * 4096 - 3] = 'a', 'b', 'c', 'd', 'e', 'f',
};

__attribute__((noipa)) void take(const char *text) { __asm__ volatile("" ::"r"(text)); }

__attribute__((force_align_arg_pointer)) void _start(void) {
    take(pages + 4096);
    take(pages + 2 * 4096 - 3);
    take((const char *)8);
    // exit(0)
    __asm__ volatile("syscall" ::"a"(60), "D"(0));
}
