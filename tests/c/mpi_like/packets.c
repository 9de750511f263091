/* Eager messages by send and receive, as in wait mode: an arriving message causes an event, and a rank can sleep
 * until it. */
#include "job.h"

enum { RECEIVES = 32, CREDITS = 4 };

static struct memory {
    unsigned char receives[RANKS][RECEIVES][SLOT];
    unsigned char staging[RANKS][SLOTS][SLOT];
    struct header credits[RANKS][CREDITS];
} *memory;
static struct region region;

static void begin(void)
{
    memory = calloc(1, sizeof *memory);
    NEED(memory);
    region_make(&region, memory, sizeof *memory, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_WRITE_FLAG);
}

static void receive(struct peer *peer, unsigned number)
{
    DAT_LMR_TRIPLET local = segment(&region, memory->receives[peer - peers][number], SLOT);
    DAT_DTO_COOKIE cookie = {.as_64 = 0x20000 | (peer - peers) << 8 | number};
    CHECK(CALL(peer->ep, ep_post_recv, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void connected(struct peer *peer)
{
    for (unsigned i = 0; i < RECEIVES; i++)
        receive(peer, i);
}

static void send_from(struct peer *peer, const void *at, size_t length)
{
    DAT_LMR_TRIPLET local = segment(&region, at, length);
    DAT_DTO_COOKIE cookie = {.as_64 = 0x10000};
    CHECK(CALL(peer->ep, ep_post_send, 1, &local, cookie, completion_flags(peer)));
}

static void put(struct peer *peer, const struct header *header, const void *data)
{
    unsigned char *staging = memory->staging[peer - peers][header->sequence % SLOTS];
    NEED(sizeof *header + header->length <= SLOT);
    memcpy(staging, header, sizeof *header);
    memcpy(staging + sizeof *header, data, header->length);
    send_from(peer, staging, sizeof *header + header->length);
}

static void completed(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;
    uint64_t cookie = data->user_cookie.as_64;
    struct peer *peer = &peers[cookie >> 8 & 0xff];
    NEED(event->event_number == DAT_DTO_COMPLETION_EVENT);
    if (cookie < 0x10000) {
        rendezvous_completed(event);
    } else if (cookie == 0x10000) {
        NEED(data->status == DAT_DTO_SUCCESS || (ending && data->status == DAT_DTO_ERR_FLUSHED));
    } else if (data->status == DAT_DTO_ERR_FLUSHED) {
        /* A receive of a rejected attempt, or of the end. */
        NEED(ending || peer->turned_away || peer->state == CONNECTING);
    } else {
        const unsigned char *packet = memory->receives[peer - peers][cookie & 0xff];
        struct header header;
        NEED(data->status == DAT_DTO_SUCCESS && data->ep_handle == peer->ep);
        memcpy(&header, packet, sizeof header);
        NEED(data->transfered_length == sizeof header + header.length);
        deliver(peer, &header, packet + sizeof header);
        receive(peer, cookie & 0xff);
    }
}

static unsigned look(struct peer *peer)
{
    (void)peer;
    return 0;
}

static void credit(struct peer *peer)
{
    struct header *header = &memory->credits[peer - peers][peer->told / (SLOTS / 2) % CREDITS];
    *header = (struct header){.kind = CREDIT, .consumed = peer->told};
    send_from(peer, header, sizeof *header);
}

static void end(void)
{
    for (int i = 0; i < RANKS; i++)
        if (peers[i].ep != DAT_HANDLE_NULL)
            CHECK(CALL(peers[i].ep, ep_free));
    CHECK(CALL(region.lmr, lmr_free));
    free(memory);
}

const struct carrier packets = {begin, connected, put, completed, look, credit, end};
