/* A job of three ranks.
 *
 * usage: mpi_like rdma|cno|evd|ud|shm IA-NAME         prints "mpi_like: PASS ..." when every byte was right
 *
 * rdma  eager messages by RDMA write, found by polling memory        Intel MPI's default
 * cno   by send and receive, asleep in dat_cno_wait meanwhile         I_MPI_WAIT_MODE=1
 * evd   the same, asleep in dat_evd_wait
 * ud    by unreliable datagrams                                       I_MPI_DAPL_UD=1
 * shm   all ranks on one host, which need no connection               I_MPI_FABRICS=shm:dapl, rdssm
 *
 * I_MPI_DAT_LIBRARY names another libdat.
 */
#include "job.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum mode mode;
int rank;

enum { ROUNDS = 48, LARGE = 1 << 18, BUFFERS = 5 };
static unsigned char outgoing[LARGE], incoming[BUFFERS][LARGE];

static void fill(unsigned char *data, size_t length, unsigned round, int from)
{
    for (size_t i = 0; i < length; i++)
        data[i] = round * 31 + i * 7 + (i >> 8) + from * 101 + 1;
}

static void compare(const unsigned char *data, size_t length, unsigned round, int from)
{
    for (size_t i = 0; i < length; i++)
        NEED(data[i] == (unsigned char)(round * 31 + i * 7 + (i >> 8) + from * 101 + 1));
}

static struct message *next_from(struct peer *peer)
{
    UNTIL(peer->first);
    struct message *message = peer->first;
    peer->first = message->next;
    if (!peer->first)
        peer->last = &peer->first;
    return message;
}

static void send_small(int to, unsigned round, size_t length)
{
    fill(outgoing, length, round, rank);
    post(&peers[to], EAGER, outgoing, length);
}

static void receive_small(int from, unsigned round, size_t length)
{
    struct message *message = next_from(&peers[from]);
    NEED(message->kind == EAGER && message->length == length);
    compare(message->data, length, round, from);
    free(message);
}

/* Sends from every rank to its right neighbour; every fourth time in both directions, so that connections collide. */
static void small_messages(void)
{
    static const size_t sizes[] = {0, 4, 64, 320, 700, 4160, 12000};
    const unsigned kinds = mode == UD ? 5 : 7;
    int right = (rank + 1) % RANKS, left = (rank + RANKS - 1) % RANKS;
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t length = sizes[round % kinds];
        /* The third rank takes part in the second half. */
        if (round < ROUNDS / 2) {
            if (rank < 2) {
                send_small(1 - rank, round, length);
                receive_small(1 - rank, round, length);
            }
            continue;
        }
        send_small(right, round, length);
        if (round % 4 == 3)
            send_small(left, round, length);
        receive_small(left, round, length);
        if (round % 4 == 3)
            receive_small(right, round, length);
    }
    /* Many messages without an answer: more than there are slots. */
    for (unsigned i = 0; i < 5 * SLOTS; i++)
        rank == 0 ? send_small(2, i, 100 + i) : rank == 2 ? receive_small(0, i, 100 + i) : (void)0;
}

static void large_messages(void)
{
    for (unsigned round = 0; round < 12; round++) {
        int from = round % RANKS, to = (from + 1 + round / RANKS % 2) % RANKS;
        size_t length = LARGE >> round % 4;
        /* Mostly memory that was used before. */
        unsigned char *memory = incoming[round % 4 == 3 ? round % BUFFERS : round / 6];
        if (rank == from) {
            fill(memory, length, round, rank);
            send_large(&peers[to], memory, length);
        } else if (rank == to) {
            memset(memory, 0, length);
            struct message *ready = next_from(&peers[from]);
            receive_large(&peers[from], ready, memory, length);
            compare(memory, length, round, from);
            free(ready);
        }
    }
}

static int run(const char *name)
{
    alarm(PATIENCE + 15);
    library_load();
    library_look_for(name);
    adapter_open(name);
    if (mode == SHM) {
        struct region region;
        region_make(&region, outgoing, sizeof outgoing, DAT_MEM_PRIV_ALL_FLAG);
        barrier();
        CHECK(CALL(region.lmr, lmr_free));
    } else {
        peers_begin();
        barrier();
        small_messages();
        if (mode != UD)
            large_messages();
        ending = 1;
        barrier();
        peers_end();
    }
    adapter_close();
    library_unload();
    if (rank == 0)
        printf("mpi_like: PASS uDAPL %d.%d: %u registrations used again, %u made; %u connections at once\n", MAJOR, MINOR, reused,
               registered, collisions);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"rdma", "cno", "evd", "ud", "shm"};
    pid_t ranks[RANKS];
    int failed = 0;
    NEED(argc == 3);
    while (mode <= SHM && strcmp(modes[mode], argv[1]))
        mode++;
    NEED(mode <= SHM);
    carrier = mode == RDMA ? &ring : &packets;
#ifndef UDAPL_1_2
    if (mode == UD)
        carrier = &datagrams;
#endif
    NEED(mode != UD || MAJOR == 2);
    board_make();
    for (rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        NEED(ranks[rank] >= 0);
        if (ranks[rank] == 0)
            exit(run(argv[2]));
    }
    for (int left = RANKS; left > 0; left--) {
        int status, i;
        pid_t ended = wait(&status);
        if (status != 0) {
            if (!failed++)
                fprintf(stderr, "process %d ended with status %#x\n", ended, status);
            for (i = 0; i < RANKS; i++)
                if (ranks[i] > 0 && ranks[i] != ended)
                    kill(ranks[i], SIGKILL);
        }
        for (i = 0; i < RANKS; i++)
            if (ranks[i] == ended)
                ranks[i] = -1;
    }
    return failed != 0;
}
