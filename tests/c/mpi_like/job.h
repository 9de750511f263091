/* A small MPI over uDAPL, which goes about it as the large ones do (Intel MPI, Platform MPI), 2.0 or with -DUDAPL_1_2 1.2:
 * a handful of functions by dlopen and dlsym, everything else through the function table at the head of each handle.
 *
 * library.c     libdat by dlopen, and which providers there are
 * board.c       what the job's launcher tells the ranks, and the end when one fails
 * adapter.c     an IA with its EVDs, CNO, service point and protection zone, closed gracefully: every count must be exact
 * peers.c       connections, made when the first message wants one, and what arrives for whom
 * ring.c        eager messages by suppressed RDMA writes into a ring, found in memory by their last byte
 * packets.c     eager messages by send and receive, for wait mode
 * datagrams.c   eager messages by unreliable datagrams (2.0)
 * rendezvous.c  large messages by RDMA read, and the cache of registrations
 * main.c        the program that runs on it
 */
#ifndef JOB_H
#define JOB_H
#define _GNU_SOURCE
#include <netinet/in.h>
#ifdef UDAPL_1_2
#include <dat/udat.h>
#include <dat/dat_registry.h>
#define MAJOR 1
#define MINOR 2
#define ONLY_2_0(argument)
#define CR_REJECT(cr) CALL(cr, cr_reject)
#define REMOTE_ADDRESS target_address
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
#define MAJOR 2
#define MINOR 0
#define ONLY_2_0(argument) argument,
#define CR_REJECT(cr) CALL(cr, cr_reject, 0, NULL)
#define REMOTE_ADDRESS virtual_address
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, SLOTS = 8, SLOT = 16384, PATIENCE = 100 /* seconds */ };

/* How eager messages travel, and how a rank waits. The settings of Intel MPI that lead there are in main.c. */
enum mode { RDMA, CNO, EVD, UD, SHM };
extern enum mode mode;
extern int rank;

/* ---- library.c ---- */

struct library {
    DAT_RETURN (*registry_list_providers)(DAT_COUNT, DAT_COUNT *, DAT_PROVIDER_INFO **);
    DAT_RETURN (*ia_openv)(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32, DAT_BOOLEAN);
    DAT_RETURN (*ia_close)(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);
    DAT_RETURN (*strerror)(DAT_RETURN, const char **, const char **);
#ifndef UDAPL_1_2
    DAT_RETURN (*get_ia_handle)(DAT_IA_HANDLE, DAT_IA_HANDLE *);
    DAT_RETURN (*extension_op)(DAT_HANDLE, DAT_EXTENDED_OP, ...);
#endif
};
extern struct library dat;

void library_load(void);
void library_unload(void);
/* Queries every provider, like an MPI without a configured one; `name` must be one of them. */
void library_look_for(const char *name);

/* ---- board.c ---- */

/* Data that each rank publishes before any connection exists. */
struct card {
    struct sockaddr_in address;
    DAT_CONN_QUAL qual;
};
extern struct board {
    struct card cards[RANKS];
    int arrived, failed;
} *board;

void board_make(void);
void barrier(void);
double now(void);
/* Prints the failure, and ends this rank and with it the job. */
void fail(const char *file, int line, const char *what, DAT_RETURN code) __attribute__((noreturn));

#define NEED(condition)                                      \
    do {                                                     \
        if (!(condition))                                    \
            fail(__FILE__, __LINE__, #condition, DAT_SUCCESS); \
    } while (0)
#define CHECK(call)                                  \
    do {                                             \
        DAT_RETURN code_ = (call);                   \
        if (code_ != DAT_SUCCESS)                    \
            fail(__FILE__, __LINE__, #call, code_);  \
    } while (0)

/* ---- adapter.c ---- */

#define TABLE(handle) (*(DAT_PROVIDER **)(handle))
#define CALL(handle, slot, ...) (TABLE(handle)->slot##_func((handle), ##__VA_ARGS__))

extern struct adapter {
    DAT_IA_HANDLE consumers, ia; /* as dat_ia_openv gives it, and the provider's */
    DAT_CNO_HANDLE cno;          /* in mode CNO */
    DAT_EVD_HANDLE conn, dto;    /* connections and requests for them on one, all completions on the other */
    DAT_PSP_HANDLE psp;
    DAT_PZ_HANDLE pz;
    unsigned mtu;
} adapter;

struct region {
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
};

void adapter_open(const char *name);
void adapter_close(void);
void region_make(struct region *region, void *memory, size_t size, DAT_MEM_PRIV_FLAGS privileges);
DAT_EP_HANDLE endpoint_make(void);
DAT_LMR_TRIPLET segment(const struct region *region, const void *at, size_t length);
/* Sleeps until there is an event; in the polling modes, yields to other ranks. */
void adapter_wait(void);

/* ---- peers.c ---- */

enum kind { EAGER = 1, READY_TO_SEND, FINISHED, CREDIT, ACKNOWLEDGE };

/* Header of every message. */
struct header {
    uint32_t length, kind;
    uint64_t sequence;
    uint64_t consumed; /* how many of the receiver's messages were taken out: slots that it may use again */
};

/* Private data of connections, 24 bytes as Intel MPI's. */
struct hello {
    uint32_t magic, rank;
    uint64_t ring;
    uint32_t key, reserved;
};

struct message {
    struct message *next;
    size_t length;
    enum kind kind;
    unsigned char data[];
};

extern struct peer {
    enum { APART, CONNECTING, CONNECTED, GONE } state;
    int turned_away, finished;
    DAT_EP_HANDLE ep;
    DAT_CR_HANDLE asking; /* a request that waits until our own was rejected */
    struct hello theirs;
    uint64_t sent, consumed; /* messages to the peer, and how many of them it took out */
    uint64_t taken, told;    /* messages from the peer, and how many of them were reported to it */
    unsigned posts;
    struct message *first, **last; /* arrived, and not received yet */
} peers[RANKS];

extern unsigned collisions; /* both ends connected at once */
extern int ending;          /* from now on the other end may disconnect, and flush what was suppressed */

void peers_begin(void);
void peers_end(void);
/* Processes connections, completions and messages. Returns the number of events. */
unsigned progress(void);
/* Makes progress until the condition holds. */
#define UNTIL(condition)              \
    do {                              \
        double end_ = now() + PATIENCE; \
        while (!(condition)) {        \
            NEED(now() < end_);       \
            if (progress() == 0 && !(condition)) \
                adapter_wait();       \
        }                             \
    } while (0)
void connect_to(struct peer *peer);
void deliver(struct peer *peer, const struct header *header, const void *data);
/* Sends one eager message; waits for a connection and for room. */
void post(struct peer *peer, enum kind kind, const void *data, size_t length);
/* Returns the flags that suppress all but one of 32 completions. */
DAT_COMPLETION_FLAGS completion_flags(struct peer *peer);

/* ---- ring.c, packets.c, datagrams.c: one of them carries eager messages ---- */

struct carrier {
    void (*begin)(void);
    void (*connected)(struct peer *peer); /* its endpoint is made */
    void (*put)(struct peer *peer, const struct header *header, const void *data);
    void (*completed)(const DAT_EVENT *event);
    unsigned (*look)(struct peer *peer);
    void (*credit)(struct peer *peer); /* reports to the peer how many of its messages were taken; may be NULL */
    void (*end)(void);
};
extern const struct carrier ring, packets, *carrier;
struct hello ring_hello(void);
#ifndef UDAPL_1_2
extern const struct carrier datagrams;
void datagrams_event(const DAT_EVENT *event);
#endif

/* ---- rendezvous.c ---- */

extern unsigned registered, reused;

void send_large(struct peer *peer, const void *data, size_t length);
/* Answers the message of send_large. */
void receive_large(struct peer *peer, const struct message *ready, void *data, size_t length);
void rendezvous_completed(const DAT_EVENT *event);
void rendezvous_end(void);

#endif
