/* The whole way of a client and a server on two IAs with an address space that ends somewhere on it: each call succeeds or says what is
 * missing. Then the limit is lifted and all of it has to succeed. Allocates nothing itself.
 *
 * usage: scarce IA-NAME IA-NAME BYTES     BYTES above what the process has now may be mapped; prints "scarce: MAPPED BYTES" without limit
 *                                         (BYTES 0), else "scarce: PASS" or "scarce: refused LINE CODE"
 */
#include <dat2/udat.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DTOS 300

static unsigned char memory[2][64];

struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, dto, conn;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_TRIPLET piece;
    int open;
};

/* Returns the number of mapped bytes. */
static unsigned long mapped(void)
{
    char text[64] = "";
    int file = open("/proc/self/statm", O_RDONLY);
    unsigned long pages = 0;
    if (file < 0 || read(file, text, sizeof text - 1) <= 0 || sscanf(text, "%lu", &pages) != 1)
        _exit(2);
    close(file);
    return pages * (unsigned long)sysconf(_SC_PAGESIZE);
}

static void say(const char *what, unsigned long a, unsigned long b)
{
    char line[128];
    int length = snprintf(line, sizeof line, "scarce: %s %lu %#lx\n", what, a, b);
    if (write(1, line, (size_t)length) != length)
        _exit(2);
}

#define TRY(call)                                                     \
    do {                                                              \
        DAT_RETURN code_ = (call);                                    \
        if (code_ != DAT_SUCCESS) {                                   \
            say("refused", __LINE__, (unsigned long)code_);           \
            return 0;                                                 \
        }                                                             \
    } while (0)

/* A missing or wrong event counts like a failed call. */
#define EXPECT(evd, number)                                           \
    do {                                                              \
        DAT_COUNT more_;                                              \
        TRY(dat_evd_wait(evd, 20000000, 1, &event, &more_));          \
        if (event.event_number != (number)) {                         \
            say("event", __LINE__, (unsigned long)event.event_number); \
            return 0;                                                 \
        }                                                             \
    } while (0)

static int make(struct side *s, char *name, unsigned char *bytes)
{
    DAT_REGION_DESCRIPTION region;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_EP_ATTR attributes;
    s->async = DAT_HANDLE_NULL;
    TRY(dat_ia_open(name, 8, &s->async, &s->ia));
    s->open = 1;
    TRY(dat_pz_create(s->ia, &s->pz));
    TRY(dat_evd_create(s->ia, 2 * DTOS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    TRY(dat_evd_create(s->ia, 20, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)(DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG), &s->conn));
    memset(&attributes, 0, sizeof attributes);
    attributes.service_type = DAT_SERVICE_TYPE_RC;
    attributes.max_message_size = 64;
    attributes.max_rdma_size = 64;
    attributes.max_recv_dtos = attributes.max_request_dtos = DTOS;
    attributes.max_recv_iov = attributes.max_request_iov = 4;
    TRY(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, &attributes, &s->ep));
    memset(&region, 0, sizeof region);
    region.for_va = bytes;
    TRY(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &s->lmr,
                       &s->piece.lmr_context, &remote, &size, &at));
    s->piece.virtual_address = (DAT_VADDR)(uintptr_t)bytes;
    s->piece.segment_length = 64;
    return 1;
}

static int talk(struct side *a, struct side *b)
{
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    DAT_IA_ATTR attributes;
    DAT_DTO_COOKIE cookie;
    TRY(dat_psp_create(b->ia, 5000, b->conn, DAT_PSP_CONSUMER_FLAG, &psp));
    TRY(dat_ia_query(b->ia, NULL, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_NONE, NULL));
    TRY(dat_ep_connect(a->ep, attributes.ia_address_ptr, 5000, 20000000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    EXPECT(b->conn, DAT_CONNECTION_REQUEST_EVENT);
    TRY(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b->ep, 0, NULL));
    EXPECT(b->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    EXPECT(a->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    for (cookie.as_64 = 0; cookie.as_64 < DTOS; cookie.as_64++)
        TRY(dat_ep_post_recv(b->ep, 1, &b->piece, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    for (cookie.as_64 = 0; cookie.as_64 < DTOS; cookie.as_64++)
        TRY(dat_ep_post_send(a->ep, 1, &a->piece, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    for (int n = 0; n < DTOS; n++) {
        EXPECT(b->dto, DAT_DTO_COMPLETION_EVENT);
        EXPECT(a->dto, DAT_DTO_COMPLETION_EVENT);
    }
    TRY(dat_ep_disconnect(a->ep, DAT_CLOSE_GRACEFUL_FLAG));
    EXPECT(a->conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    EXPECT(b->conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    return 1;
}

static int all(char **names)
{
    static struct side sides[2];
    memset(sides, 0, sizeof sides);
    int good = make(&sides[0], names[0], memory[0]) && make(&sides[1], names[1], memory[1]) && talk(&sides[0], &sides[1]);
    for (int n = 0; n < 2; n++)
        if (sides[n].open && dat_ia_close(sides[n].ia, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
            _exit(4);
    return good;
}

int main(int argc, char **argv)
{
    unsigned long extra = 0, begin = mapped();
    struct rlimit limit;
    if (argc != 4 || sscanf(argv[3], "%lu", &extra) != 1 || getrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (extra == 0) {
        if (!all(argv + 1))
            return 1;
        say("mapped", mapped() - begin, 0);
        return 0;
    }
    limit.rlim_cur = begin + extra;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    int good = all(argv + 1);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (!all(argv + 1))
        return 5;
    if (good)
        say("PASS", 0, 0);
    return 0;
}
