/* Both libraries by dlopen with RTLD_LOCAL from several threads at once, each opening, asking and closing IAs of its version
 * and unloading the library, while the process forks: a child does the same from its one thread.
 *
 * usage: dlopen_threads IA-NAME      prints "dlopen_threads: PASS"
 */
#include <dat2/udat.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

#define THREADS 4
#define ROUNDS 15

typedef DAT_RETURN open_func(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32,
                             DAT_BOOLEAN);
typedef DAT_RETURN query_func(DAT_IA_HANDLE, DAT_EVD_HANDLE *, DAT_IA_ATTR_MASK, void *, DAT_PROVIDER_ATTR_MASK, void *);
typedef DAT_RETURN close_func(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

static char *name;
static pthread_barrier_t start;

/* Runs one round with each version; the number selects the first. */
static void once(int number)
{
    int k;
    for (k = 0; k < 2; k++) {
        int major = 1 + (number + k) % 2;
        void *library = dlopen(major == 1 ? "libdat.so.1" : "libdat2.so.2", RTLD_NOW | RTLD_LOCAL);
        DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        DAT_PROVIDER_ATTR attr;
        open_func *open_;
        query_func *query;
        close_func *close_;
        NEED(library);
        open_ = (open_func *)dlsym(library, "dat_ia_openv");
        query = (query_func *)dlsym(library, "dat_ia_query");
        close_ = (close_func *)dlsym(library, "dat_ia_close");
        NEED(open_ && query && close_);
        NEED(open_(name, 8, &async_evd, &ia, major, major == 1 ? 2 : 0, DAT_FALSE) == DAT_SUCCESS);
        memset(&attr, 0, sizeof attr);
        NEED(query(ia, NULL, 0, NULL, 1, &attr) == DAT_SUCCESS);
        NEED(attr.dapl_version_major == (DAT_UINT32)major && !strcmp(attr.provider_name, name));
        NEED(close_(ia, DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
        NEED(!dlclose(library));
    }
}

static void *run(void *number)
{
    int i;
    pthread_barrier_wait(&start);
    for (i = 0; i < ROUNDS; i++)
        once(i + (int)(long)number);
    return NULL;
}

static void all(void)
{
    pthread_t threads[THREADS];
    long i;
    pthread_barrier_init(&start, NULL, THREADS);
    for (i = 0; i < THREADS; i++)
        NEED(!pthread_create(&threads[i], NULL, run, (void *)i));
    for (i = 0; i < THREADS; i++)
        NEED(!pthread_join(threads[i], NULL));
}

int main(int argc, char **argv)
{
    int status;
    pid_t pid;
    NEED(argc == 2);
    name = argv[1];
    alarm(60);
    all();
    pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        alarm(60);
        all();
        exit(0);
    }
    all();
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
    printf("dlopen_threads: PASS\n");
    return 0;
}
