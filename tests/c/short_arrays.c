/* Counts that are larger than the array, which ends where memory ends: refused before anything is read. Negative counts, and NULL with
 * a positive one. One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers.
 *
 * usage: short_arrays IA-NAME
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#endif
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "need.h"

#define PAGE 4096

/* Returns a copy of the array whose last byte is the last byte of mapped memory. */
static void *short_of(const void *from, size_t size)
{
    char *two = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(two != MAP_FAILED && mprotect(two + PAGE, PAGE, PROT_NONE) == 0);
    return memcpy(two + PAGE - size, from, size);
}

#define IS(call, type)                                                                                        \
    do {                                                                                                      \
        DAT_RETURN code_ = (call);                                                                            \
        if (DAT_GET_TYPE(code_) != (type)) {                                                                  \
            fprintf(stderr, "%s:%d: %s, count %d: %#x\n", __FILE__, __LINE__, #call, n, (unsigned)code_);     \
            exit(1);                                                                                          \
        }                                                                                                     \
        calls++;                                                                                              \
    } while (0)

static unsigned calls;

static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, 20000000, 1, &event, &more));
    NEED(event.event_number == number);
    return event;
}

/* Makes every post of `ep` and `srq` with count `n` and the shorter array `iov`. */
static void posts(DAT_EP_HANDLE ep, DAT_SRQ_HANDLE srq, DAT_IA_HANDLE ia, DAT_LMR_TRIPLET *iov, int n, DAT_RETURN expected)
{
    static const int flags[] = {DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_SUPPRESS_FLAG, DAT_COMPLETION_BARRIER_FENCE_FLAG};
    DAT_DTO_COOKIE cookie;
    DAT_RMR_TRIPLET there;
    int i;
    cookie.as_64 = 99;
    memset(&there, 0, sizeof there);
    for (i = 0; i < 3; i++) {
        DAT_COMPLETION_FLAGS flag = (DAT_COMPLETION_FLAGS)flags[i];
        IS(dat_ep_post_send(ep, n, iov, cookie, flag), expected);
        IS(dat_ep_post_rdma_read(ep, n, iov, cookie, &there, flag), expected);
        IS(dat_ep_post_rdma_write(ep, n, iov, cookie, &there, flag), expected);
#ifndef UDAPL_1_2
        IS(dat_ep_post_send_with_invalidate(ep, n, iov, cookie, flag, DAT_TRUE, 1), expected);
        IS(dat_ib_post_rdma_write_immed(ep, n, iov, cookie, &there, 1, flag), expected);
#endif
    }
    IS(dat_ep_post_recv(ep, n, iov, cookie, DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
    IS(dat_srq_post_recv(srq, n, iov, cookie), DAT_INVALID_PARAMETER);
    IS(dat_lmr_sync_rdma_read(ia, iov, (DAT_VLEN)(int64_t)n), DAT_INVALID_PARAMETER);
    IS(dat_lmr_sync_rdma_write(ia, iov, (DAT_VLEN)(int64_t)n), DAT_INVALID_PARAMETER);
}

static void all(DAT_EP_HANDLE ep, DAT_SRQ_HANDLE srq, DAT_IA_HANDLE ia, DAT_LMR_TRIPLET *one, DAT_RETURN unconnected)
{
    /* The limit is 4; a conversion may accept some more. dat_lmr_sync_* has no limit, hence 17 and above. */
    static const int many[] = {17, 100, 1 << 20, INT_MAX}, negative[] = {-1, INT_MIN};
    DAT_LMR_TRIPLET *aligned = (DAT_LMR_TRIPLET *)short_of(one, sizeof *one);
    DAT_LMR_TRIPLET *odd = (DAT_LMR_TRIPLET *)((char *)short_of("0123", 4) - sizeof *one);
    unsigned i;
    memcpy((void *)odd, one, sizeof *one);
    for (i = 0; i < sizeof many / sizeof *many; i++) {
        posts(ep, srq, ia, aligned, many[i], unconnected);
        posts(ep, srq, ia, odd, many[i], unconnected);
        posts(ep, srq, ia, NULL, many[i], DAT_INVALID_PARAMETER);
    }
    posts(ep, srq, ia, NULL, 1, DAT_INVALID_PARAMETER);
    posts(ep, srq, ia, NULL, 4, DAT_INVALID_PARAMETER);
    for (i = 0; i < sizeof negative / sizeof *negative; i++)
        posts(ep, srq, ia, aligned, negative[i], DAT_INVALID_PARAMETER);
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, dto, conn;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE from, to, alone;
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_ATTR srq_attr = {4, 4, DAT_SRQ_LW_DEFAULT};
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_IA_ATTR attr;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_TRIPLET one, *few;
    DAT_REGION_DESCRIPTION region;
    DAT_DTO_COOKIE cookie;
    DAT_EVENT event;
    static char memory[PAGE];
    int n = 0;

    NEED(argc == 2);
    alarm(100);
    memset(&one, 0, sizeof one);
    memset(&region, 0, sizeof region);
    region.for_va = memory;
    CHECK(dat_ia_open(argv[1], 8, &async, &ia));
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_pz_create(ia, &pz));
#ifdef UDAPL_1_2
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, PAGE, pz, DAT_MEM_PRIV_ALL_FLAG, &lmr, &one.lmr_context, NULL, NULL, NULL));
#else
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, PAGE, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &one.lmr_context,
                         NULL, NULL, NULL));
#endif
    one.virtual_address = (DAT_VADDR)(uintptr_t)memory;
    one.segment_length = 1;
    CHECK(dat_evd_create(ia, 40, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)(DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG), &conn));
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &from));
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &to));
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &alone));
    CHECK(dat_srq_create(ia, pz, &srq_attr, &srq));

    all(alone, srq, ia, &one, DAT_INVALID_STATE);
    CHECK(dat_psp_create_any(ia, &qual, conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ep_connect(from, attr.ia_address_ptr, qual, 20000000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(conn, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, to, 0, NULL));
    next(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    next(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    all(from, srq, ia, &one, DAT_INVALID_PARAMETER);

    /* All segments that exist may be posted, up to the last byte of the memory; no refused post was made. */
    cookie.as_64 = 5;
    for (n = 0; n < 4; n++) {
        DAT_LMR_TRIPLET copies[4];
        int i;
        for (i = 0; i < 4; i++)
            copies[i] = one;
        few = (DAT_LMR_TRIPLET *)short_of(copies, (n + 1) * sizeof one);
        CHECK(dat_ep_post_recv(to, n + 1, few, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        CHECK(dat_ep_post_send(from, n + 1, few, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        CHECK(dat_lmr_sync_rdma_read(ia, few, n + 1));
        CHECK(dat_srq_post_recv(srq, n + 1, few, cookie));
        next(dto, DAT_DTO_COMPLETION_EVENT);
        next(dto, DAT_DTO_COMPLETION_EVENT);
    }
    NEED(DAT_GET_TYPE(dat_evd_dequeue(dto, &event)) == DAT_QUEUE_EMPTY);
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("short_arrays: PASS uDAPL %d.%d, %u calls\n", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, calls);
    return 0;
}
