/* The launcher of a job: memory shared by all ranks, set up before they are forked. */
#include "job.h"
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct board *board;

void board_make(void)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(board != MAP_FAILED);
}

void barrier(void)
{
    static int passed;
    double end = now() + PATIENCE;
    passed++;
    __atomic_add_fetch(&board->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&board->arrived, __ATOMIC_SEQ_CST) < passed * RANKS) {
        NEED(!__atomic_load_n(&board->failed, __ATOMIC_SEQ_CST) && now() < end);
        /* Other ranks may still need this one to accept, or to take a message. */
        if (adapter.ia && mode != SHM)
            progress();
        usleep(1000);
    }
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

void fail(const char *file, int line, const char *what, DAT_RETURN code)
{
    const char *major = "", *minor = "";
    if (code != DAT_SUCCESS && dat.strerror)
        dat.strerror(code, &major, &minor);
    fprintf(stderr, "rank %d, %s:%d: %s: %#x %s %s\n", rank, file, line, what, code, major, minor);
    if (board)
        __atomic_store_n(&board->failed, 1, __ATOMIC_SEQ_CST);
    _exit(1);
}
