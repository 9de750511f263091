/* Uses uDAPL the way a large MPI does, 2.0 or with -DUDAPL_1_2 1.2: a handful of functions by symbol, everything
 * else through the function table at the head of each handle; one EVD for requests and connections; eager
 * data by suppressed RDMA writes into a ring that the receiver polls in memory; large data by RDMA read into
 * freshly registered memory; exact counts so that the IA closes gracefully.
 *
 * usage: mpi_like IA-NAME            runs two ranks (fork) and prints "mpi_like: PASS" when every byte is right
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#ifdef UDAPL_1_2
#include <dat/udat.h>
#include <dat/dat_registry.h>
#define MAJOR 1
#define MINOR 2
#define ONLY_2_0(argument)
#define REMOTE_ADDRESS target_address
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
#define MAJOR 2
#define MINOR 0
#define ONLY_2_0(argument) argument,
#define REMOTE_ADDRESS virtual_address
#endif
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROVIDER(h) (*(DAT_PROVIDER **)(h))
#define RING 65536u
#define BIG (1u << 20)
#define ROUNDS 400

#ifndef UDAPL_1_2
extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE *provider_handle);
#endif

static int rank;

#define CHECK(call)                                                                       \
    do {                                                                                  \
        DAT_RETURN r_ = (call);                                                           \
        if (r_ != DAT_SUCCESS) {                                                          \
            const char *maj = "?", *min = "?";                                            \
            dat_strerror(r_, &maj, &min);                                                 \
            fprintf(stderr, "rank %d line %d: %s: %#x %s %s\n", rank, __LINE__, #call, r_, \
                    maj, min);                                                            \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define NEED(cond)                                                                  \
    do {                                                                            \
        if (!(cond)) {                                                              \
            fprintf(stderr, "rank %d line %d: not true: %s\n", rank, __LINE__, #cond); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

struct card { /* what ranks tell each other out of band, and later in private data */
    struct sockaddr_in address;
    DAT_CONN_QUAL qual;
};
struct window {
    DAT_VADDR ring, big;
    DAT_RMR_CONTEXT ring_key, big_key;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Like the MPI: spin on dequeue, never trust a wait. */
static void next_event(DAT_EVD_HANDLE evd, DAT_EVENT *event) {
    double end = now() + 60;
    for (;;) {
        DAT_RETURN r = PROVIDER(evd)->evd_dequeue_func(evd, event);
        if (r == DAT_SUCCESS)
            return;
        NEED(DAT_GET_TYPE(r) == DAT_QUEUE_EMPTY);
        NEED(now() < end);
    }
}

static unsigned char pattern(unsigned round, unsigned i, int from) {
    return (unsigned char)(round * 31 + i * 7 + from * 101 + 1);
}

static void list_providers(const char *name) {
    DAT_COUNT n = 0;
    DAT_RETURN r = dat_registry_list_providers(0, &n, NULL);
    NEED(n > 0);
    NEED(r == (DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1));
    DAT_PROVIDER_INFO *infos = calloc(n, sizeof *infos), **list = calloc(n, sizeof *list);
    for (int i = 0; i < n; i++)
        list[i] = &infos[i];
    CHECK(dat_registry_list_providers(n, &n, list));
    int found = 0;
    for (int i = 0; i < n; i++)
        found |= !strcmp(infos[i].ia_name, name);
    NEED(found);
    free(list);
    free(infos);
}

#ifndef UDAPL_1_2
static void query_without_open(const char *name) {
    DAT_IA_HANDLE ia = NULL;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR prov;
    memset(&prov, 0xa5, sizeof prov);
    CHECK(dat_ib_open_query((char *)name, &ia, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &prov));
    NEED(ia != NULL);
    NEED(prov.max_private_data_size >= 24);
    NEED(prov.srq_supported == 0 || prov.srq_supported == 1);
    CHECK(dat_ib_close_query(ia));
}
#endif

/* In 2.0 the consumer's IA handle is a small integer, and one function tells the provider's; in 1.2 it is that. */
static DAT_IA_HANDLE providers(DAT_IA_HANDLE consumers) {
#ifdef UDAPL_1_2
    return consumers;
#else
    DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
    NEED((unsigned long)consumers < 4096);
    CHECK(dats_get_ia_handle(consumers, &ia));
    return ia;
#endif
}

int main(int argc, char **argv) {
    NEED(argc == 2);
    char *name = argv[1];
    int sv[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    rank = child == 0;
    int side = sv[rank];
    alarm(120);

    list_providers(name);
#ifndef UDAPL_1_2
    query_without_open(name);
#endif

    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE small = DAT_HANDLE_NULL;
    CHECK(dat_ia_openv(name, 8, &async, &small, MAJOR, MINOR, DAT_FALSE));
    DAT_IA_HANDLE ia = providers(small);
    DAT_PROVIDER *table = PROVIDER(ia);
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR prov;
    CHECK(table->ia_query_func(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &prov));
    NEED(prov.dapl_version_major == MAJOR && prov.dapl_version_minor == MINOR);

    DAT_EVD_HANDLE conn, dto;
    CHECK(table->evd_create_func(ia, 36, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &conn));
    CHECK(table->evd_create_func(ia, 2000, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    struct card mine = {.qual = 20000 + getpid() % 10000}, theirs;
    memcpy(&mine.address, attr.ia_address_ptr, sizeof mine.address);
    DAT_PSP_HANDLE psp;
    CHECK(table->psp_create_func(ia, mine.qual, conn, DAT_PSP_CONSUMER_FLAG, &psp));
    NEED(write(side, &mine, sizeof mine) == sizeof mine);
    NEED(read(side, &theirs, sizeof theirs) == sizeof theirs);

    DAT_PZ_HANDLE pz;
    CHECK(table->pz_create_func(ia, &pz));
    unsigned char *ring, *staging, *big;
    NEED(!posix_memalign((void **)&ring, 4096, RING));
    NEED(!posix_memalign((void **)&staging, 4096, RING));
    NEED(!posix_memalign((void **)&big, 4096, BIG));
    memset(ring, 0, RING);
    DAT_LMR_HANDLE ring_lmr, staging_lmr, big_lmr;
    DAT_LMR_CONTEXT ring_l, staging_l, big_l;
    DAT_RMR_CONTEXT ring_r, staging_r, big_r;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_REGION_DESCRIPTION region;
    const int priv = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_WRITE_FLAG; /* 0x31 */
    region.for_va = ring;
    CHECK(table->lmr_create_func(ia, DAT_MEM_TYPE_VIRTUAL, region, RING, pz, priv, ONLY_2_0(DAT_VA_TYPE_VA) &ring_lmr, &ring_l, &ring_r, &size, &at));
    NEED(size == RING && at == (DAT_VADDR)(unsigned long)ring && ring_r != 0);
    region.for_va = staging;
    CHECK(table->lmr_create_func(ia, DAT_MEM_TYPE_VIRTUAL, region, RING, pz, priv, ONLY_2_0(DAT_VA_TYPE_VA) &staging_lmr, &staging_l, &staging_r, &size, &at));

    /* Rank 0 connects, rank 1 accepts; endpoints as the MPI makes them. */
    DAT_EP_ATTR ea;
    memset(&ea, 0, sizeof ea);
    ea.service_type = DAT_SERVICE_TYPE_RC;
    ea.max_message_size = 3;
    ea.max_rdma_size = 0x800000;
    ea.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
    ea.max_recv_dtos = 8;
    ea.max_request_dtos = 96;
    ea.max_recv_iov = ea.max_request_iov = 1;
    ea.max_rdma_read_in = ea.max_rdma_read_out = 4;
    ea.srq_soft_hw = -1;
    ea.max_rdma_read_iov = ea.max_rdma_write_iov = 1;
    DAT_EP_HANDLE ep;
    CHECK(table->ep_create_func(ia, pz, dto, dto, conn, &ea, &ep));
    char hello[24] = "rank zero calling";
    DAT_EVENT event;
    if (rank == 0) {
        CHECK(PROVIDER(ep)->ep_connect_func(ep, (DAT_IA_ADDRESS_PTR)&theirs.address, theirs.qual, DAT_TIMEOUT_INFINITE, 24, hello, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    } else {
        next_event(conn, &event);
        NEED(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
        DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
        DAT_CR_PARAM param;
        CHECK(PROVIDER(cr)->cr_query_func(cr, DAT_CR_FIELD_ALL, &param));
        NEED(param.private_data_size >= 24 && !memcmp(param.private_data, hello, 24));
        CHECK(PROVIDER(cr)->cr_accept_func(cr, ep, 24, param.private_data));
    }
    next_event(conn, &event);
    NEED(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
    NEED(event.event_data.connect_event_data.ep_handle == ep);
    if (rank == 0)
        NEED(!memcmp(event.event_data.connect_event_data.private_data, hello, 24));

    /* Eager ping-pong: message in the ring, its last byte is the flag. One write in 32 is signaled. */
    struct window w = {(DAT_VADDR)(unsigned long)ring, 0, ring_r, 0}, peer;
    NEED(write(side, &w, sizeof w) == sizeof w);
    NEED(read(side, &peer, sizeof peer) == sizeof peer);
    static const unsigned sizes[] = {64, 320, 4160, 12000};
    unsigned signaled = 0, completed = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned len = sizes[round % 4];
        volatile unsigned char *flag = ring + len - 1;
        for (int turn = 0; turn < 2; turn++) {
            if (turn == rank) {
                for (unsigned i = 0; i < len; i++)
                    staging[i] = pattern(round, i, rank);
                staging[len - 1] = (unsigned char)(round % 255 + 1);
                DAT_LMR_TRIPLET l = {.virtual_address = (DAT_VADDR)(unsigned long)staging, .segment_length = len, .lmr_context = staging_l};
                DAT_RMR_TRIPLET r = {.REMOTE_ADDRESS = peer.ring, .segment_length = len, .rmr_context = peer.ring_key};
                int ask = round % 32 == 31;
                DAT_DTO_COOKIE cookie = {.as_64 = 0x10000 + round};
                CHECK(PROVIDER(ep)->ep_post_rdma_write_func(ep, 1, &l, cookie, &r, ask ? DAT_COMPLETION_DEFAULT_FLAG : DAT_COMPLETION_SUPPRESS_FLAG));
                if (ask) {
                    signaled++;
                    next_event(dto, &event);
                    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
                    NEED(event.event_number == DAT_DTO_COMPLETION_EVENT && d->status == DAT_DTO_SUCCESS);
                    NEED(d->ep_handle == ep && d->user_cookie.as_64 == 0x10000 + round && d->transfered_length == len);
                    completed++;
                }
            } else {
                double end = now() + 60;
                while (*flag != (unsigned char)(round % 255 + 1)) {
                    DAT_RETURN e = PROVIDER(conn)->evd_dequeue_func(conn, &event); /* each progress turn */
                    NEED(DAT_GET_TYPE(e) == DAT_QUEUE_EMPTY);
                    e = PROVIDER(dto)->evd_dequeue_func(dto, &event);
                    NEED(DAT_GET_TYPE(e) == DAT_QUEUE_EMPTY);
                    NEED(now() < end);
                }
                for (unsigned i = 0; i + 1 < len; i++)
                    NEED(ring[i] == pattern(round, i, !rank));
                memset(ring, 0, len); /* where the next flag will be, too */
            }
        }
    }
    NEED(signaled == completed);

    /* Rendezvous: register, tell, the receiver reads, deregister. */
    for (int turn = 0; turn < 20; turn++) {
        int sender = turn % 2, len = BIG >> (turn % 5);
        region.for_va = big;
        CHECK(table->lmr_create_func(ia, DAT_MEM_TYPE_VIRTUAL, region, len, pz, DAT_MEM_PRIV_ALL_FLAG, ONLY_2_0(DAT_VA_TYPE_VA) &big_lmr, &big_l, &big_r, &size, &at));
        if (rank == sender) {
            for (int i = 0; i < len; i++)
                big[i] = pattern(turn, i, rank);
            struct window b = {0, (DAT_VADDR)(unsigned long)big, 0, big_r};
            char done;
            NEED(write(side, &b, sizeof b) == sizeof b);
            NEED(read(side, &done, 1) == 1);
        } else {
            struct window b;
            memset(big, 0, len);
            NEED(read(side, &b, sizeof b) == sizeof b);
            DAT_LMR_TRIPLET l = {.virtual_address = (DAT_VADDR)(unsigned long)big, .segment_length = len, .lmr_context = big_l};
            DAT_RMR_TRIPLET r = {.REMOTE_ADDRESS = b.big, .segment_length = len, .rmr_context = b.big_key};
            DAT_DTO_COOKIE cookie = {.as_64 = 77 + turn};
            CHECK(PROVIDER(ep)->ep_post_rdma_read_func(ep, 1, &l, cookie, &r, DAT_COMPLETION_DEFAULT_FLAG));
            next_event(dto, &event);
            DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
            NEED(d->status == DAT_DTO_SUCCESS && d->user_cookie.as_64 == 77u + turn && d->transfered_length == (unsigned)len);
            for (int i = 0; i < len; i++)
                NEED(big[i] == pattern(turn, i, !rank));
            NEED(write(side, "d", 1) == 1);
        }
        CHECK(PROVIDER(big_lmr)->lmr_free_func(big_lmr));
    }

    /* Only rank 0 disconnects; both hear of it. Then everything goes, and the IA closes gracefully. */
    if (rank == 0)
        CHECK(PROVIDER(ep)->ep_disconnect_func(ep, DAT_CLOSE_ABRUPT_FLAG));
    DAT_COUNT more;
    CHECK(PROVIDER(conn)->evd_wait_func(conn, 10000000, 1, &event, &more));
    NEED(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(PROVIDER(ring_lmr)->lmr_free_func(ring_lmr));
    CHECK(PROVIDER(ep)->ep_free_func(ep));
    CHECK(PROVIDER(staging_lmr)->lmr_free_func(staging_lmr));
    CHECK(PROVIDER(dto)->evd_free_func(dto));
    CHECK(PROVIDER(psp)->psp_free_func(psp));
    CHECK(PROVIDER(conn)->evd_free_func(conn));
    CHECK(PROVIDER(pz)->pz_free_func(pz));
    ia = providers(small);
    CHECK(table->ia_query_func(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &prov));
    CHECK(dat_ia_close(small, DAT_CLOSE_GRACEFUL_FLAG));
    NEED(DAT_GET_TYPE(dat_ia_close(small, DAT_CLOSE_GRACEFUL_FLAG)) == DAT_INVALID_HANDLE);

    if (rank == 1)
        return 0;
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    printf("mpi_like: PASS uDAPL %d.%d: %d eager rounds, 20 rendezvous\n", MAJOR, MINOR, ROUNDS);
    return 0;
}
