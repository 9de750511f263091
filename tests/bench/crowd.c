/* Processes of one host that poll one EVD each in a loop, all connected with each other: more of them than processors.
 *
 * usage: crowd flood|ring|all PROCESSES ROUNDS         microseconds a round; dat.conf has the IA "crowd"
 *        crowd shm-flood|shm-ring|shm-all PROCESSES ROUNDS    the same over plain shared memory, with sched_yield after each look in vain
 *
 * "ring": a message goes round all of them. "all": each sends to each, and receives from each, in turn. "flood": all but the first send to
 * the first, which answers after each 16 messages.
 */
#define _GNU_SOURCE
#include <dat2/udat.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../c/need.h"

#define MOST 64
#define WINDOW 16
#define RECEIVES (4 * WINDOW)
#define MESSAGE 64
/* Time limit of an event, in microseconds. */
#define PATIENCE 60000000

/* What all processes share. */
struct shared {
    volatile int ready, done;
    DAT_CONN_QUAL qual[MOST];
    DAT_SOCK_ADDR6 at;
    /* Messages to the first process from the second, each with a line of its own. */
    struct {
        volatile long sent;
        char rest[56];
    } to[MOST][MOST];
};

/* Numbers of messages, of each peer. */
struct peer {
    DAT_EP_HANDLE ep;
    long sent, completed, arrived, taken;
};

static struct shared *shared;
static struct peer peers[MOST];
static int processes, own, plain;
static DAT_EVD_HANDLE dto, conn;
static unsigned char message[MESSAGE] __attribute__((aligned(64)));
static DAT_LMR_CONTEXT key;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static DAT_LMR_TRIPLET segment(void)
{
    DAT_LMR_TRIPLET s;
    memset(&s, 0, sizeof s);
    s.virtual_address = (DAT_VADDR)(uintptr_t)message;
    s.segment_length = MESSAGE;
    s.lmr_context = key;
    return s;
}

/* The cookie of a send to a peer; that of a receive is one more. */
static DAT_DTO_COOKIE cookie(int peer)
{
    return (DAT_DTO_COOKIE){.as_64 = 2 * peer};
}

static void expect(int peer)
{
    DAT_LMR_TRIPLET s = segment();
    DAT_DTO_COOKIE c = cookie(peer);
    c.as_64++;
    CHECK(dat_ep_post_recv(peers[peer].ep, 1, &s, c, DAT_COMPLETION_DEFAULT_FLAG));
}

static void look_at_memory(void)
{
    int i, any = 0;

    for (i = 0; i < processes; i++) {
        long sent = shared->to[own][i].sent;
        any |= sent != peers[i].arrived;
        peers[i].arrived = sent;
    }
    if (!any)
        sched_yield();
}

/* Takes what has arrived or completed. */
static void look(void)
{
    DAT_EVENT event;
    uint64_t c;

    if (plain) {
        look_at_memory();
        return;
    }
    if (dat_evd_dequeue(dto, &event) != DAT_SUCCESS)
        return;
    NEED(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    c = event.event_data.dto_completion_event_data.user_cookie.as_64;
    if (c % 2) {
        peers[c / 2].arrived++;
        expect(c / 2);
    } else
        peers[c / 2].completed++;
}

static void send_to(int i)
{
    struct peer *peer = &peers[i];
    DAT_LMR_TRIPLET s = segment();

    peer->sent++;
    if (plain) {
        shared->to[i][own].sent = peer->sent;
        return;
    }
    while (peer->sent - peer->completed > WINDOW)
        look();
    CHECK(dat_ep_post_send(peer->ep, 1, &s, cookie(i), DAT_COMPLETION_DEFAULT_FLAG));
}

static void receive_from(int i)
{
    while (peers[i].arrived <= peers[i].taken)
        look();
    peers[i].taken++;
}

static void meet(int wanted)
{
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    while (shared->ready < wanted)
        usleep(1000);
}

static void accept_request(DAT_CR_HANDLE cr)
{
    DAT_CR_PARAM param;
    CHECK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
    CHECK(dat_cr_accept(cr, peers[*(int *)param.private_data].ep, 0, NULL));
}

/* Connects this process with each other one. */
static void join(void)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_REGION_DESCRIPTION region;
    DAT_RMR_CONTEXT rmr;
    DAT_LMR_HANDLE lmr;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_IA_ATTR ia_attr;
    DAT_EP_ATTR attr;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_VLEN size;
    DAT_VADDR start;
    int i, j, up = 1;

    CHECK(dat_ia_open("crowd", 8, &async_evd, &ia));
    CHECK(dat_pz_create(ia, &pz));
    CHECK(dat_evd_create(ia, MOST * (RECEIVES + WINDOW), DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 4 * MOST, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &conn));
    memset(&region, 0, sizeof region);
    region.for_va = message;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, MESSAGE, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &key, &rmr,
                         &size, &start));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = attr.max_rdma_size = 1 << 20;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = RECEIVES;
    attr.max_request_dtos = 2 * WINDOW;
    attr.max_recv_iov = attr.max_request_iov = 1;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 4;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 1;
    for (i = 0; i < processes; i++) {
        if (i == own)
            continue;
        CHECK(dat_ep_create(ia, pz, dto, dto, conn, &attr, &peers[i].ep));
        for (j = 0; j < RECEIVES - 1; j++)
            expect(i);
    }
    CHECK(dat_psp_create_any(ia, &shared->qual[own], conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &ia_attr, 0, NULL));
    if (!own)
        memcpy(&shared->at, ia_attr.ia_address_ptr, sizeof(struct sockaddr_in));
    meet(processes);
    for (i = own + 1; i < processes; i++)
        CHECK(dat_ep_connect(peers[i].ep, (DAT_IA_ADDRESS_PTR)&shared->at, shared->qual[i], PATIENCE, sizeof own, &own,
                             DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    while (up < processes) {
        CHECK(dat_evd_wait(conn, PATIENCE, 1, &event, &more));
        if (event.event_number == DAT_CONNECTION_REQUEST_EVENT)
            accept_request(event.event_data.cr_arrival_event_data.cr_handle);
        else {
            NEED(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
            up++;
        }
    }
}

static void flood(long round)
{
    int i;

    if (own) {
        send_to(0);
        if (round % WINDOW == WINDOW - 1)
            receive_from(0);
        return;
    }
    for (i = 1; i < processes; i++) {
        receive_from(i);
        if (round % WINDOW == WINDOW - 1)
            send_to(i);
    }
}

static void ring(void)
{
    int next = (own + 1) % processes, last = (own + processes - 1) % processes;

    if (!own)
        send_to(next);
    receive_from(last);
    if (own)
        send_to(next);
}

static void all(void)
{
    int distance;

    for (distance = 1; distance < processes; distance++) {
        send_to((own + distance) % processes);
        receive_from((own + processes - distance) % processes);
    }
}

int main(int argc, char **argv)
{
    const char *kind = argv[1];
    double begin, took;
    long round, rounds;
    int i;

    NEED(argc == 4);
    plain = !strncmp(kind, "shm-", 4);
    kind += 4 * plain;
    processes = atoi(argv[2]);
    rounds = atol(argv[3]);
    NEED(processes >= 2 && processes <= MOST && rounds > 0);
    NEED(!strcmp(kind, "flood") || !strcmp(kind, "ring") || !strcmp(kind, "all"));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    for (i = 1; i < processes && !own; i++)
        if (fork() == 0) {
            own = i;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        }
    if (!plain)
        join();
    meet(plain ? processes : 2 * processes);
    begin = now();
    for (round = 0; round < rounds; round++)
        if (*kind == 'f')
            flood(round);
        else if (*kind == 'r')
            ring();
        else
            all();
    took = now() - begin;
    /* The others may still wait for acknowledgements. */
    __atomic_add_fetch(&shared->done, 1, __ATOMIC_SEQ_CST);
    while (shared->done < processes) {
        look();
        usleep(100);
    }
    if (own)
        _exit(0);
    printf("%.2f\n", took * 1e6 / rounds);
    for (i = 1; i < processes; i++) {
        int status;
        NEED(wait(&status) > 0 && status == 0);
    }
    return 0;
}
