/* fork(2) while another thread opens the first IA of a provider: fork waits, and the provider's fork handlers come too late for it. The
 * child still has no socket of the engine, its parent's handle is invalid there, and it opens an IA of its own.
 *
 * usage: fork_in_open IA-NAME      prints "fork_in_open: PASS"
 */
#include <dat2/udat.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED_EXIT _exit
#include "need.h"

#define ROCE_PORT 4791
#define NAMES "dat-rs/roce/"

static char *name;
static DAT_IA_HANDLE ia;
static int opening;

static void *open_it(void *none)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    __atomic_store_n(&opening, 1, __ATOMIC_SEQ_CST);
    CHECK(dat_ia_open(name, 8, &async_evd, &ia));
    return none;
}

/* Whether a descriptor is a socket of an engine. */
static int is_of_engine(int fd)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    memset(&at, 0, sizeof at);
    if (getsockname(fd, (struct sockaddr *)&at, &length))
        return 0;
    if (at.ss_family == AF_INET)
        return ((struct sockaddr_in *)&at)->sin_port == htons(ROCE_PORT);
    return at.ss_family == AF_UNIX && !memcmp(((struct sockaddr_un *)&at)->sun_path + 1, NAMES, strlen(NAMES));
}

static int sockets_of_engine(void)
{
    int fd, count = 0;
    for (fd = 0; fd < 1024; fd++)
        count += is_of_engine(fd);
    return count;
}

static void child(void)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE own;
    DAT_PZ_HANDLE pz;
    alarm(60);
    NEED(sockets_of_engine() == 0);
    NEED(DAT_GET_TYPE(dat_pz_create(ia, &pz)) == DAT_INVALID_HANDLE);
    CHECK(dat_ia_open(name, 8, &async_evd, &own));
    CHECK(dat_ia_close(own, DAT_CLOSE_GRACEFUL_FLAG));
    _exit(0);
}

int main(int argc, char **argv)
{
    pthread_t opener;
    int status;
    pid_t pid;
    NEED(argc == 2);
    name = argv[1];
    NEED(!pthread_create(&opener, NULL, open_it, NULL));
    while (!__atomic_load_n(&opening, __ATOMIC_SEQ_CST))
        usleep(1000);
    /* The open loads the slow library now. */
    usleep(300000);
    pid = fork();
    NEED(pid >= 0);
    if (pid == 0)
        child();
    NEED(!pthread_join(opener, NULL));
    NEED(sockets_of_engine() > 0);
    NEED(waitpid(pid, &status, 0) == pid);
    NEED(status == 0);
    CHECK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    printf("fork_in_open: PASS\n");
    return 0;
}
