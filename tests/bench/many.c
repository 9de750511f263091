/* Memory, descriptors and time of many connections between processes of one host.
 *
 * usage: many all PROCESSES        each process connects to each other one, once; prints a Markdown row with the mean of a process
 *        many pair CONNECTIONS     two processes, so many connections between them
 * dat.conf has the IA "many".
 */
#include <arpa/inet.h>
#include <dat2/udat.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "../c/need.h"

#define MOST 256
#define QUAL 7600
/* Time limit of an event, in microseconds. */
#define PATIENCE 60000000
/* Repetitions of a connection that the peer did not answer in time, or refused. */
#define TRIES 20

/* Figures of a process. */
struct figures {
    double private_kib, ring_kib, begin, end;
    int descriptors;
};

/* What all processes share. */
struct shared {
    volatile int open, connected, measured;
    struct figures of[MOST][2];
};

static struct shared *shared;
static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE requests, dto, active, passive;
static int accepted_wanted;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void await(volatile int *count, int wanted)
{
    while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < wanted)
        usleep(1000);
}

static void count(volatile int *of)
{
    __atomic_add_fetch(of, 1, __ATOMIC_SEQ_CST);
}

/* The proportional share of the mappings whose lines contain `name`, or of all, in KiB. */
static double pss(const char *name)
{
    char line[512];
    double sum = 0, kib;
    int inside = 0;
    FILE *f = fopen("/proc/self/smaps", "r");

    NEED(f != NULL);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            inside = !name || strstr(line, name);
        else if (inside && sscanf(line, "Pss: %lf", &kib) == 1)
            sum += kib;
    }
    fclose(f);
    return sum;
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");

    NEED(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3;
}

static void measure(struct figures *f)
{
    f->ring_kib = pss("memfd:dat-rs-near");
    f->private_kib = pss(NULL) - f->ring_kib;
    f->descriptors = descriptors();
}

static DAT_EP_HANDLE endpoint(DAT_EVD_HANDLE connections)
{
    DAT_EP_HANDLE ep;
    DAT_EP_ATTR attr;

    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = attr.max_rdma_size = 4096;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = attr.max_request_dtos = 4;
    attr.max_recv_iov = attr.max_request_iov = 1;
    CHECK(dat_ep_create(ia, pz, dto, dto, connections, &attr, &ep));
    return ep;
}

static DAT_EVENT event_of(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, PATIENCE, 1, &event, &more));
    return event;
}

/* Accepts the connections of the other processes. */
static void *serve(void *unused)
{
    int done = 0;

    while (done < accepted_wanted) {
        DAT_EVENT event = event_of(requests);
        NEED(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
        CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, endpoint(passive), 0, NULL));
        /* A caller that gave up meanwhile tries again. */
        event = event_of(passive);
        done += event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED;
    }
    return unused;
}

static void connect_to(int rank)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    int tries;

    inet_pton(AF_INET, "127.0.93.1", &to.sin_addr);
    for (tries = 0; tries < TRIES; tries++) {
        DAT_EP_HANDLE ep = endpoint(active);
        DAT_EVENT event;
        CHECK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, QUAL + rank, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
                             DAT_CONNECT_DEFAULT_FLAG));
        event = event_of(active);
        if (event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED)
            return;
        CHECK(dat_ep_free(ep));
    }
    NEED(!"a connection within TRIES attempts");
}

/* Process `rank` of `processes` connects `each` times to each process above it. */
static void play(int rank, int processes, int each)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_PSP_HANDLE psp;
    pthread_t server;
    int to, i;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(dat_ia_open("many", 8, &async, &ia));
    CHECK(dat_pz_create(ia, &pz));
    CHECK(dat_evd_create(ia, 512, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    CHECK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 1024, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &active));
    CHECK(dat_evd_create(ia, 1024, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &passive));
    CHECK(dat_psp_create(ia, QUAL + rank, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    accepted_wanted = rank * each;
    NEED(pthread_create(&server, NULL, serve, NULL) == 0);
    count(&shared->open);
    await(&shared->open, processes);
    measure(&shared->of[rank][0]);
    count(&shared->measured);
    await(&shared->measured, processes);
    shared->of[rank][0].begin = now();
    for (i = 0; i < each; i++)
        for (to = rank + 1; to < processes; to++)
            connect_to(to);
    NEED(pthread_join(server, NULL) == 0);
    shared->of[rank][1].end = now();
    count(&shared->connected);
    await(&shared->connected, processes);
    measure(&shared->of[rank][1]);
    count(&shared->measured);
    await(&shared->measured, 2 * processes);
    _exit(0);
}

int main(int argc, char **argv)
{
    int processes, each, rank, status, connections;
    double begin = 1e300, end = 0;
    struct figures sum[2];

    if (argc != 3 || atoi(argv[2]) < 1 || (strcmp(argv[1], "all") && strcmp(argv[1], "pair"))) {
        fprintf(stderr, "usage: many all PROCESSES | many pair CONNECTIONS\n");
        return 2;
    }
    processes = argv[1][0] == 'a' ? atoi(argv[2]) : 2;
    each = argv[1][0] == 'a' ? 1 : atoi(argv[2]);
    NEED(processes <= MOST);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    for (rank = 0; rank < processes; rank++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0)
            play(rank, processes, each);
    }
    for (rank = 0; rank < processes; rank++) {
        NEED(wait(&status) > 0);
        NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    memset(sum, 0, sizeof sum);
    for (rank = 0; rank < processes; rank++) {
        struct figures *of = shared->of[rank];
        int i;
        for (i = 0; i < 2; i++) {
            sum[i].private_kib += of[i].private_kib / processes;
            sum[i].ring_kib += of[i].ring_kib / processes;
            sum[i].descriptors += of[i].descriptors;
        }
        begin = of[0].begin < begin ? of[0].begin : begin;
        end = of[1].end > end ? of[1].end : end;
    }
    connections = processes * (processes - 1) / 2 * each;
    printf("| %d | %d | %.2f | %.0f | %.1f | %.1f | %.1f | %.1f |\n", processes, connections, end - begin, connections / (end - begin),
           sum[0].private_kib / 1024, (sum[1].private_kib - sum[0].private_kib) * processes / connections / 2, sum[1].ring_kib / 1024,
           (sum[1].descriptors - sum[0].descriptors) / (double)processes);
    return 0;
}
