/* Places where objects of the library can be but none is: one whose creation failed half-way, one never made, one freed. Every function
 * answers DAT_INVALID_HANDLE for each of them. One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers.
 *
 * usage: no_objects IA-NAME [OTHER-IA-NAME]      the other one is opened too: a second engine, or a classic provider
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);
#endif
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "need.h"

static char memory[4096];
static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE dto, conn, cr;
static DAT_EP_HANDLE listener;

/* Returns the provider's handle of an IA: in 2.0 the program has a number. */
static void *made_ia(const char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE made, handle;
    CHECK(dat_ia_open((char *)name, 8, &async, &made));
#ifdef UDAPL_1_2
    handle = made;
#else
    CHECK(dats_get_ia_handle(made, &handle));
#endif
    return handle;
}

static void *made(int kind)
{
    DAT_HANDLE handle = DAT_HANDLE_NULL;
    DAT_OS_WAIT_PROXY_AGENT no_agent = {0, 0};
    DAT_REGION_DESCRIPTION region;
    DAT_SRQ_ATTR srq = {4, 1, 0};
    DAT_CONN_QUAL qual;
    static DAT_CONN_QUAL reserved = 7000;
    memset(&region, 0, sizeof region);
    region.for_va = memory;
    switch (kind) {
    case 0: CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &handle)); break;
    case 1: CHECK(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &handle)); break;
    case 2: CHECK(dat_pz_create(ia, &handle)); break;
    case 3: CHECK(dat_rmr_create(pz, &handle)); break;
    case 4: CHECK(dat_cno_create(ia, no_agent, &handle)); break;
    case 5: CHECK(dat_psp_create_any(ia, &qual, cr, DAT_PSP_CONSUMER_FLAG, &handle)); break;
    case 6: CHECK(dat_rsp_create(ia, reserved++, made(0), cr, &handle)); break;
    case 7: CHECK(dat_srq_create(ia, pz, &srq, &handle)); break;
    case 8:
#ifdef UDAPL_1_2
        CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, &handle, NULL, NULL,
                             NULL, NULL));
#else
        CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &handle,
                             NULL, NULL, NULL, NULL));
#endif
        break;
    }
    return handle;
}
#define KINDS 9

#define REFUSED(call)                                                                                             \
    do {                                                                                                          \
        DAT_RETURN code_ = (call);                                                                                \
        if (DAT_GET_TYPE(code_) != DAT_INVALID_HANDLE) {                                                          \
            fprintf(stderr, "%s:%d: kind %d, %s: %s: %#x\n", __FILE__, __LINE__, kind, what, #call, (unsigned)code_); \
            exit(1);                                                                                              \
        }                                                                                                         \
        calls++;                                                                                                  \
    } while (0)

static unsigned calls;

static void refused(int kind, const char *what, void *h)
{
    static union {
        DAT_EP_PARAM ep;
        DAT_IA_ATTR ia;
        DAT_EVENT event;
        char room[4096];
    } out;
    DAT_OS_WAIT_PROXY_AGENT no_agent = {0, 0};
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    DAT_HANDLE made_handle;
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET remote;
    DAT_SRQ_ATTR srq = {4, 1, 0};
    DAT_EP_STATE state;
    DAT_BOOLEAN idle;
    DAT_COUNT count;
    DAT_CONN_QUAL qual;
    memset(&context, 0, sizeof context);
    memset(&cookie, 0, sizeof cookie);
    memset(&local, 0, sizeof local);
    memset(&remote, 0, sizeof remote);
    memset(&out, 0, sizeof out);

    REFUSED(dat_get_handle_type(h, &type));
    REFUSED(dat_get_consumer_context(h, &context));
    REFUSED(dat_set_consumer_context(h, context));

    REFUSED(dat_ia_query(h, NULL, DAT_IA_FIELD_ALL, &out.ia, 0, NULL));
    REFUSED(dat_pz_create(h, &made_handle));
    REFUSED(dat_evd_create(h, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made_handle));
    REFUSED(dat_cno_create(h, no_agent, &made_handle));
    REFUSED(dat_ep_create(h, pz, dto, dto, conn, NULL, &made_handle));
    REFUSED(dat_psp_create_any(h, &qual, cr, DAT_PSP_CONSUMER_FLAG, &made_handle));
    REFUSED(dat_psp_create(h, 1, cr, DAT_PSP_CONSUMER_FLAG, &made_handle));
    REFUSED(dat_rsp_create(h, 1, listener, cr, &made_handle));
    REFUSED(dat_srq_create(h, pz, &srq, &made_handle));
    REFUSED(dat_lmr_sync_rdma_read(h, &local, 1));
    REFUSED(dat_lmr_sync_rdma_write(h, &local, 1));
    REFUSED(dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG));

    REFUSED(dat_cno_modify_agent(h, no_agent));
    REFUSED(dat_cno_query(h, DAT_CNO_FIELD_ALL, (DAT_CNO_PARAM *)&out));
    REFUSED(dat_cno_wait(h, 0, &made_handle));
    REFUSED(dat_cno_free(h));

    REFUSED(dat_cr_query(h, DAT_CR_FIELD_ALL, (DAT_CR_PARAM *)&out));
    REFUSED(dat_cr_accept(h, DAT_HANDLE_NULL, 0, NULL));
    REFUSED(dat_cr_handoff(h, 1));
#ifdef UDAPL_1_2
    REFUSED(dat_cr_reject(h));
#else
    REFUSED(dat_cr_reject(h, 0, NULL));
#endif

    REFUSED(dat_evd_query(h, DAT_EVD_FIELD_ALL, (DAT_EVD_PARAM *)&out));
    REFUSED(dat_evd_modify_cno(h, DAT_HANDLE_NULL));
    REFUSED(dat_evd_enable(h));
    REFUSED(dat_evd_disable(h));
    REFUSED(dat_evd_wait(h, 0, 1, &out.event, &count));
    REFUSED(dat_evd_resize(h, 10));
    REFUSED(dat_evd_post_se(h, &out.event));
    REFUSED(dat_evd_dequeue(h, &out.event));
    REFUSED(dat_evd_set_unwaitable(h));
    REFUSED(dat_evd_clear_unwaitable(h));
    REFUSED(dat_evd_free(h));

    REFUSED(dat_ep_query(h, DAT_EP_FIELD_ALL, &out.ep));
    REFUSED(dat_ep_modify(h, DAT_EP_FIELD_PZ_HANDLE, &out.ep));
    REFUSED(dat_ep_connect(h, (void *)out.room, 1, 0, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    REFUSED(dat_ep_dup_connect(h, listener, 0, 0, NULL, DAT_QOS_BEST_EFFORT));
    REFUSED(dat_ep_dup_connect(listener, h, 0, 0, NULL, DAT_QOS_BEST_EFFORT));
    REFUSED(dat_ep_disconnect(h, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED(dat_ep_post_send(h, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_post_send(h, 2, &local, cookie, DAT_COMPLETION_SUPPRESS_FLAG));
    REFUSED(dat_ep_post_recv(h, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_post_rdma_read(h, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_post_rdma_write(h, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_get_status(h, &state, &idle, &idle));
    REFUSED(dat_ep_recv_query(h, &count, &count));
    REFUSED(dat_ep_set_watermark(h, 1, 1));
    REFUSED(dat_ep_reset(h));
    REFUSED(dat_ep_free(h));

    REFUSED(dat_lmr_query(h, DAT_LMR_FIELD_ALL, (DAT_LMR_PARAM *)&out));
    REFUSED(dat_lmr_free(h));
    REFUSED(dat_rmr_create(h, &made_handle));
    REFUSED(dat_rmr_query(h, DAT_RMR_FIELD_ALL, (DAT_RMR_PARAM *)&out));
    REFUSED(dat_rmr_free(h));
    REFUSED(dat_psp_query(h, DAT_PSP_FIELD_ALL, (DAT_PSP_PARAM *)&out));
    REFUSED(dat_psp_free(h));
    REFUSED(dat_rsp_query(h, DAT_RSP_FIELD_ALL, (DAT_RSP_PARAM *)&out));
    REFUSED(dat_rsp_free(h));
    REFUSED(dat_pz_query(h, DAT_PZ_FIELD_ALL, (DAT_PZ_PARAM *)&out));
    REFUSED(dat_pz_free(h));
    REFUSED(dat_srq_post_recv(h, 1, &local, cookie));
    REFUSED(dat_srq_query(h, DAT_SRQ_FIELD_ALL, (DAT_SRQ_PARAM *)&out));
    REFUSED(dat_srq_resize(h, 10));
    REFUSED(dat_srq_set_lw(h, 1));
    REFUSED(dat_srq_free(h));
#ifdef UDAPL_1_2
    REFUSED(dat_rmr_bind(h, &local, DAT_MEM_PRIV_LOCAL_READ_FLAG, listener, cookie, DAT_COMPLETION_DEFAULT_FLAG, (void *)out.room));
#else
    REFUSED(dat_rmr_bind(h, h, &local, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA, listener, cookie, DAT_COMPLETION_DEFAULT_FLAG,
                         (void *)out.room));
    REFUSED(dat_cno_fd_create(h, (void *)out.room, &made_handle));
    REFUSED(dat_cno_trigger(h, &made_handle));
    REFUSED(dat_rmr_create_for_ep(h, &made_handle));
    REFUSED(dat_ep_common_connect(h, (void *)out.room, 0, 0, NULL));
    REFUSED(dat_ep_post_rdma_read_to_rmr(h, &remote, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_post_send_with_invalidate(h, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG, DAT_TRUE, 1));
    REFUSED(dat_csp_query(h, DAT_CSP_FIELD_ALL, (DAT_CSP_PARAM *)&out));
    REFUSED(dat_csp_free(h));
    REFUSED(dat_ib_post_rdma_write_immed(h, 1, &local, cookie, &remote, 1, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ib_start_counter(h, DCNT_IA_CM));
#endif
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE other;
    DAT_HANDLE none = DAT_HANDLE_NULL;
    char *first, *second, *third;
    int kind, i;
    NEED(argc >= 2);
    alarm(60);
    CHECK(dat_ia_open(argv[1], 8, &async, &ia));
    if (argc > 2) {
        async = DAT_HANDLE_NULL;
        CHECK(dat_ia_open(argv[2], 8, &async, &other));
    }
    CHECK(dat_pz_create(ia, &pz));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &conn));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &cr));
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &listener));

    /* New objects of a kind are adjacent, so the address of the next one follows from two. */
    first = made(0);
    second = made(0);
    /* An EVD of connections for completions: detected only when the endpoint has its memory. */
    NEED(DAT_GET_TYPE(dat_ep_create(ia, pz, conn, dto, conn, NULL, &none)) == DAT_INVALID_HANDLE && none == DAT_HANDLE_NULL);
    third = made(0);
    NEED(third - second == 2 * (second - first));
    refused(0, "half made", second + (second - first));

    for (kind = 0; kind < KINDS; kind++) {
        first = made(kind);
        second = made(kind);
        NEED(second > first && (second - first) % 64 == 0);
        for (i = 1; i < 4; i++)
            refused(kind, "never made", second + i * (second - first));
        if (kind == 2) {
            CHECK(dat_pz_free(second));
            refused(kind, "freed", second);
        }
    }
    first = made_ia(argv[1]);
    second = made_ia(argv[1]);
    refused(KINDS, "never made", second + (second - first));
    /* Requests come from a peer, and address handles from a datagram endpoint: the other kinds stand for them. */
    printf("no_objects: PASS uDAPL %d.%d, %u calls\n", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, calls);
    return 0;
}
