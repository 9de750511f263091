/* fork(2) while other threads load libraries, open and close IAs and unload again: at whatever moment it comes, the child can leave, run
 * another program, and open IAs of its own, and the parent's threads go on.
 *
 * usage: fork_midway IA-NAME      prints "fork_midway: PASS"
 */
#include <dat2/udat.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED_EXIT _exit
#include "need.h"

#define THREADS 4
#define FORKS 60

typedef DAT_RETURN open_func(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32,
                             DAT_BOOLEAN);
typedef DAT_RETURN close_func(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

static char *name;
static int stop;
static unsigned long rounds[THREADS];
static const char *const sonames[] = {"libdat.so.1", "libdat2.so.2"};

struct calls {
    open_func *open;
    close_func *close;
};

static struct calls calls_of(void *library)
{
    struct calls calls = {(open_func *)dlsym(library, "dat_ia_openv"), (close_func *)dlsym(library, "dat_ia_close")};
    NEED(calls.open && calls.close);
    return calls;
}

static void open_and_close(struct calls calls, int major)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    NEED(calls.open(name, 8, &async_evd, &ia, major, major == 1 ? 2 : 0, DAT_FALSE) == DAT_SUCCESS);
    NEED(calls.close(ia, DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
}

static void *run(void *number)
{
    unsigned long *mine = &rounds[(long)number];
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        int version = (*mine + (long)number) % 2;
        void *library = dlopen(sonames[version], RTLD_NOW | RTLD_LOCAL);
        NEED(library);
        open_and_close(calls_of(library), version + 1);
        NEED(!dlclose(library));
        __atomic_add_fetch(mine, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* Runs the child of one fork, with functions looked up before it: another thread may have been in dlopen, whose
 * lock belongs to glibc. */
static void child(int way, const struct calls calls[2])
{
    alarm(30);
    switch (way % 4) {
    case 0: _exit(0);
    case 1: execlp("true", "true", (char *)NULL); _exit(1);
    case 2: exit(0);
    default:
        open_and_close(calls[0], 1);
        open_and_close(calls[1], 2);
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct calls calls[2];
    long i;
    int k;
    NEED(argc == 2);
    name = argv[1];
    alarm(100);
    for (i = 0; i < 2; i++) {
        void *library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        NEED(library);
        calls[i] = calls_of(library);
    }
    for (i = 0; i < THREADS; i++)
        NEED(!pthread_create(&threads[i], NULL, run, (void *)i));
    /* The first forks happen before any provider is loaded, or during the load. */
    for (k = 0; k < FORKS; k++) {
        int status;
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0)
            child(k, calls);
        NEED(waitpid(pid, &status, 0) == pid);
        if (status != 0)
            fprintf(stderr, "child %d ended with status %#x\n", k, status);
        NEED(status == 0);
        usleep(k % 7 * 300);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < THREADS; i++) {
        NEED(!pthread_join(threads[i], NULL));
        NEED(rounds[i] > 0);
    }
    printf("fork_midway: PASS\n");
    return 0;
}
