/* Calls of the library, in this process or in the second one. */
#ifndef API_H
#define API_H

#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#define DAT_EXTENSIONS 1
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#endif
#include <netinet/in.h>
#include <semaphore.h>
#include <stdint.h>

/* Each node is an IA. Node 1 is in the second process, if there is one. */
#define NODES 3

/* Functions that both versions have. */
#define COMMON_FUNCTIONS(X) \
    X(ia_openv) X(ia_query) X(ia_close) X(set_consumer_context) X(get_consumer_context) X(get_handle_type) \
    X(cno_create) X(cno_query) X(cno_free) X(cno_wait) X(cr_query) X(cr_accept) X(cr_reject) X(cr_handoff) \
    X(evd_create) X(evd_query) X(evd_modify_cno) X(evd_enable) X(evd_disable) X(evd_wait) X(evd_resize) X(evd_post_se) \
    X(evd_dequeue) X(evd_free) X(evd_set_unwaitable) X(evd_clear_unwaitable) X(ep_create) X(ep_create_with_srq) \
    X(ep_query) X(ep_modify) X(ep_connect) X(ep_dup_connect) X(ep_disconnect) X(ep_reset) X(ep_free) X(ep_get_status) \
    X(ep_recv_query) X(ep_post_send) X(ep_post_recv) X(ep_post_rdma_read) X(ep_post_rdma_write) \
    X(lmr_create) X(lmr_query) X(lmr_free) X(rmr_create) X(rmr_query) X(rmr_bind) X(rmr_free) \
    X(psp_create) X(psp_create_any) X(psp_query) X(psp_free) X(rsp_create) X(rsp_query) X(rsp_free) \
    X(pz_create) X(pz_query) X(pz_free) X(srq_create) X(srq_query) X(srq_free) X(srq_post_recv) X(srq_resize) X(srq_set_lw)
#ifdef UDAPL_1_2
#define FUNCTIONS(X) COMMON_FUNCTIONS(X)
#else
#define FUNCTIONS(X) COMMON_FUNCTIONS(X) X(extension_op) X(cno_trigger)
#endif

#define AS_ENUM(name) F_##name,
enum function { FUNCTIONS(AS_ENUM) FUNCTION_COUNT };
#undef AS_ENUM

#define MAX_WORDS 13

/* Memory that both processes see at one address: all that calls point to. */
struct shared {
    DAT_LMR_TRIPLET local[8];
    DAT_RMR_TRIPLET remote;
    DAT_EVENT event;
    DAT_EP_ATTR ep_attr;
    DAT_EP_PARAM ep;
    DAT_EVD_PARAM evd;
    DAT_LMR_PARAM lmr;
    DAT_RMR_PARAM rmr;
    DAT_PSP_PARAM psp;
    DAT_RSP_PARAM rsp;
    DAT_CR_PARAM cr;
    DAT_PZ_PARAM pz;
    DAT_CNO_PARAM cno;
    DAT_SRQ_ATTR srq_attr;
    DAT_SRQ_PARAM srq;
    DAT_IA_ATTR ia;
    DAT_PROVIDER_ATTR provider;
    uint64_t out[8];        /* results of one word */
    char data[64];          /* private data to send */
    char got[64];           /* private data of the last CR or connection event */
    int got_size;
    char name[64];
    struct sockaddr_in6 address[NODES];
    /* A call for the second process. */
    enum function function;
    uint64_t words[MAX_WORDS];
    uint32_t result;
    sem_t go, done;
};
extern struct shared *shared;

extern const char *const function_names[];

/* Maps the shared memory and starts the second process, if there is one. */
void start_api(void);

/* Ends the second process. */
void end_api(void);

/* Returns the process of a node: 0 or 1. */
int process_of(int node);

/* Calls a function for a node; returns its code. */
uint32_t call_words(int node, enum function function, const uint64_t *words, int count);

#define CALL(node, name, ...) \
    call_words(node, F_##name, (const uint64_t[MAX_WORDS]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8)

/* The function of the last call. */
extern enum function called;

static inline uint64_t at(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static inline uint64_t word(int number)
{
    return (uint32_t)number;
}

#endif
