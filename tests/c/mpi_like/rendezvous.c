/* Large messages: the sender announces their address, the receiver reads them. Both need registered memory, and
 * registering costs more than small transfers: registrations are cached, and the oldest is freed when there are
 * too many. */
#include "job.h"

enum { KEPT = 3 };

struct kept {
    struct region region;
    void *at;
    size_t length;
    unsigned users;
    unsigned long used; /* when last */
};

/* Contents of READY_TO_SEND. */
struct ready {
    uint64_t at, length;
    uint32_t key, reserved;
};

static struct kept cache[KEPT + 2];
static unsigned long clock_;
static unsigned reads, reads_done;
unsigned registered, reused;

static struct kept *hold(const void *at, size_t length)
{
    struct kept *oldest = NULL;
    for (struct kept *k = cache; k < cache + KEPT + 2; k++) {
        if (k->at == at && k->length >= length) {
            reused++;
            k->users++;
            k->used = ++clock_;
            return k;
        }
        if (!k->users && (!oldest || k->used < oldest->used))
            oldest = k;
    }
    NEED(oldest);
    if (oldest->at)
        CHECK(CALL(oldest->region.lmr, lmr_free));
    registered++;
    region_make(&oldest->region, (void *)at, length, DAT_MEM_PRIV_ALL_FLAG);
    *oldest = (struct kept){.region = oldest->region, .at = (void *)at, .length = length, .users = 1, .used = ++clock_};
    return oldest;
}

static void let_go(struct kept *kept)
{
    unsigned idle = 0;
    kept->users--;
    for (struct kept *k = cache; k < cache + KEPT + 2; k++)
        idle += k->at && !k->users;
    if (idle > KEPT) {
        CHECK(CALL(kept->region.lmr, lmr_free));
        *kept = (struct kept){.at = NULL};
    }
}

void send_large(struct peer *peer, const void *data, size_t length)
{
    struct kept *kept = hold(data, length);
    struct ready ready = {(uintptr_t)data, length, kept->region.remote, 0};
    int finished = peer->finished;
    post(peer, READY_TO_SEND, &ready, sizeof ready);
    UNTIL(peer->finished != finished);
    let_go(kept);
}

void receive_large(struct peer *peer, const struct message *message, void *data, size_t length)
{
    struct kept *kept = hold(data, length);
    struct ready ready;
    unsigned before = reads_done;
    NEED(message->kind == READY_TO_SEND && message->length == sizeof ready);
    memcpy(&ready, message->data, sizeof ready);
    NEED(ready.length == length);
    DAT_LMR_TRIPLET local = segment(&kept->region, data, length);
    DAT_RMR_TRIPLET remote = {.REMOTE_ADDRESS = ready.at, .segment_length = length, .rmr_context = ready.key};
    DAT_DTO_COOKIE cookie = {.as_64 = ++reads};
    CHECK(CALL(peer->ep, ep_post_rdma_read, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    UNTIL(reads_done != before);
    let_go(kept);
    post(peer, FINISHED, "", 0);
}

void rendezvous_completed(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;
    NEED(data->status == DAT_DTO_SUCCESS && data->user_cookie.as_64 == reads);
    reads_done++;
}

void rendezvous_end(void)
{
    for (struct kept *k = cache; k < cache + KEPT + 2; k++) {
        NEED(!k->users);
        if (k->at)
            CHECK(CALL(k->region.lmr, lmr_free));
    }
}
