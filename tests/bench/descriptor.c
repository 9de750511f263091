/* Half the round trip of a 64-byte message between two processes that wait for each event: in dat_evd_wait, in
 * dat_cno_wait, or in poll(2) on a CNO's descriptor. Prints the median in microseconds, the processor time of both processes
 * and the sleeps a round trip.
 *
 * usage: descriptor CLIENT-IA SERVER-IA wait|cno|poll|spin-poll [ROUNDS]
 *        spin-poll: 50 empty dequeues before each poll(2)
 */
#define NEED_EXIT _exit
#include <dat2/udat.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../c/need.h"

#define SIZE 64
#define RECEIVES 16

enum mode { WAIT, CNO, POLL, SPIN_POLL };

struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE dto, conn;
    DAT_CNO_HANDLE cno;
    DAT_EP_HANDLE ep;
    DAT_LMR_CONTEXT key;
    unsigned char memory[2 * SIZE];
    int fd;
    enum mode mode;
};

static DAT_LMR_TRIPLET piece(struct side *s, int half)
{
    DAT_LMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = (DAT_VADDR)(uintptr_t)(s->memory + half * SIZE);
    t.segment_length = SIZE;
    t.lmr_context = s->key;
    return t;
}

static void expect(struct side *s)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_LMR_TRIPLET t = piece(s, 0);
    CHECK(dat_ep_post_recv(s->ep, 1, &t, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void make(const char *name, enum mode mode, struct side *s)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_REGION_DESCRIPTION region;
    DAT_EP_ATTR attr;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT remote;
    DAT_PZ_HANDLE pz;
    DAT_VLEN size;
    DAT_VADDR at;
    int i;

    memset(s, 0, sizeof *s);
    s->mode = mode;
    s->cno = DAT_HANDLE_NULL;
    CHECK(dat_ia_open((char *)name, 8, &async_evd, &s->ia));
    CHECK(dat_pz_create(s->ia, &pz));
    if (mode == CNO)
        CHECK(dat_cno_create(s->ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &s->cno));
    if (mode == POLL || mode == SPIN_POLL)
        CHECK(dat_cno_fd_create(s->ia, &s->fd, &s->cno));
    CHECK(dat_evd_create(s->ia, 64, s->cno, DAT_EVD_DTO_FLAG, &s->dto));
    CHECK(dat_evd_create(s->ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &s->conn));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = attr.max_rdma_size = SIZE;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = attr.max_request_dtos = RECEIVES;
    attr.max_recv_iov = attr.max_request_iov = 1;
    CHECK(dat_ep_create(s->ia, pz, s->dto, s->dto, s->conn, &attr, &s->ep));
    region.for_va = s->memory;
    CHECK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof s->memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                         &lmr, &s->key, &remote, &size, &at));
    for (i = 0; i < RECEIVES - 1; i++)
        expect(s);
}

static DAT_EVENT connection(struct side *s, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(s->conn, 10000000, 1, &event, &more));
    NEED(event.event_number == number);
    return event;
}

/* Returns 0 when the connection has ended. */
static int completion(struct side *s, DAT_EVENT *event)
{
    struct pollfd readable = {.fd = s->fd, .events = POLLIN};
    DAT_EVD_HANDLE evd;
    DAT_COUNT more;
    int i;

    if (s->mode == WAIT) {
        CHECK(dat_evd_wait(s->dto, 10000000, 1, event, &more));
    } else {
        for (;;) {
            for (i = 0; i < (s->mode == SPIN_POLL ? 50 : 1); i++)
                if (dat_evd_dequeue(s->dto, event) == DAT_SUCCESS)
                    goto found;
            if (s->mode == CNO) {
                CHECK(dat_cno_wait(s->cno, 10000000, &evd));
            } else {
                NEED(poll(&readable, 1, 10000) == 1);
                CHECK(dat_cno_trigger(s->cno, &evd));
            }
        }
    }
found:
    return event->event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
}

static void post(struct side *s)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    DAT_LMR_TRIPLET t = piece(s, 1);
    CHECK(dat_ep_post_send(s->ep, 1, &t, cookie, DAT_COMPLETION_SUPPRESS_FLAG));
}

static int message(struct side *s)
{
    DAT_EVENT event;
    do {
        if (!completion(s, &event))
            return 0;
    } while (event.event_data.dto_completion_event_data.user_cookie.as_64 != 1);
    expect(s);
    return 1;
}

static void serve(const char *name, enum mode mode, int tell)
{
    struct side *s = malloc(sizeof *s);
    DAT_CONN_QUAL qual = 0;
    DAT_PSP_HANDLE psp;
    DAT_IA_ATTR attr;
    DAT_EVENT event;
    struct { DAT_CONN_QUAL qual; struct sockaddr_storage at; } there;

    make(name, mode, s);
    CHECK(dat_psp_create_any(s->ia, &qual, s->conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ia_query(s->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    memset(&there, 0, sizeof there);
    there.qual = qual;
    memcpy(&there.at, attr.ia_address_ptr, sizeof(struct sockaddr_in));
    NEED(write(tell, &there, sizeof there) == sizeof there);
    event = connection(s, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, s->ep, 0, NULL));
    connection(s, DAT_CONNECTION_EVENT_ESTABLISHED);
    while (message(s))
        post(s);
    _exit(0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double cpu(const struct rusage *u)
{
    return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6 + u->ru_utime.tv_usec + u->ru_stime.tv_usec;
}

int main(int argc, char **argv)
{
    static const char *names[] = {"wait", "cno", "poll", "spin-poll"};
    struct { DAT_CONN_QUAL qual; struct sockaddr_storage at; } there;
    struct side *s = malloc(sizeof *s);
    struct rusage here, peer;
    enum mode mode = WAIT;
    int rounds, ends[2], i;
    double *times;
    pid_t child;

    NEED(argc >= 4);
    while (strcmp(argv[3], names[mode]) != 0)
        NEED(mode++ < SPIN_POLL);
    rounds = argc > 4 ? atoi(argv[4]) : 2000;
    NEED(times = calloc(rounds, sizeof *times));
    NEED(pipe(ends) == 0);
    child = fork();
    NEED(child >= 0);
    if (child == 0)
        serve(argv[2], mode, ends[1]);
    NEED(read(ends[0], &there, sizeof there) == sizeof there);
    make(argv[1], mode, s);
    CHECK(dat_ep_connect(s->ep, (DAT_IA_ADDRESS_PTR)&there.at, there.qual, 10000000, 0, NULL, DAT_QOS_BEST_EFFORT,
                         DAT_CONNECT_DEFAULT_FLAG));
    connection(s, DAT_CONNECTION_EVENT_ESTABLISHED);
    for (i = -200; i < rounds; i++) {
        double begin = now();
        post(s);
        NEED(message(s));
        if (i >= 0)
            times[i] = now() - begin;
    }
    CHECK(dat_ep_disconnect(s->ep, DAT_CLOSE_ABRUPT_FLAG));
    NEED(waitpid(child, NULL, 0) == child);
    NEED(getrusage(RUSAGE_SELF, &here) == 0 && getrusage(RUSAGE_CHILDREN, &peer) == 0);
    qsort(times, rounds, sizeof *times, by_value);
    printf("%s: half round trip %.2f us (tenth %.2f, ninth tenth %.2f); %.1f us of processor and %.1f sleeps a round trip\n", argv[3],
           times[rounds / 2] / 2, times[rounds / 10] / 2, times[rounds * 9 / 10] / 2, (cpu(&here) + cpu(&peer)) / (rounds + 200),
           (double)(here.ru_nvcsw + peer.ru_nvcsw) / (rounds + 200));
    return 0;
}
