// Maps a file of a long path many times, and has children all the time: forks FOLDER MAPPINGS.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    char name[201];
    prctl(PR_SET_PDEATHSIG, 9);
    memset(name, 'd', 200);
    name[200] = 0;
    if (chdir(words[1])) return 1;
    for (int i = 0; i < 18; i++) {
        mkdir(name, 0777);
        if (chdir(name)) return 1;
    }
    int file = open("f", O_RDWR | O_CREAT, 0777);
    ftruncate(file, 4096);
    for (int i = 0; i < atoi(words[2]); i++) mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    puts("ready");
    fflush(stdout);
    for (;;) {
        pid_t child = fork();
        if (!child) _exit(0);
        waitpid(child, 0, 0);
    }
}
