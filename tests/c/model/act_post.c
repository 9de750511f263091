/* Receives and requests of endpoints. */
#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"
#include "rxe.h"
#include "segments.h"
#include "stale_keys.h"

#define REMOTE_ATOMIC 0x40

void post_receive(int node)
{
    struct object *ep;
    uint64_t handle = handle_for(EP, node, &ep);
    struct post *post = new_post(RECEIVE, ep);
    bool short_one = chance(3);
    if (ep) {
        int most = ep->of.ep.receive_iov < MAX_SEGMENTS ? ep->of.ep.receive_iov : MAX_SEGMENTS;
        if (ep->of.ep.srq)
            must_fail(DAT_INVALID_PARAMETER);
        if (!ep->pz)
            must_fail(DAT_INVALID_STATE);
        if (ep->of.ep.outstanding[RECEIVES] >= ep->of.ep.most_receives)
            may_fail(DAT_INSUFFICIENT_RESOURCES);
        choose_segments(post, node, ep->pz, true, 1 + (int)below((uint32_t)most), short_one ? 64 : 8000);
    }
    if (post->length < MESSAGE)
        post->outcome = ANY;
    if (post->outcome == ANY && !chance(25))
        return; /* most receives are good */
    if (succeeded(CALL(node, ep_post_recv, handle, word(post->segments), at(shared->local), cookie_of(post), 0)))
        add_post(post);
}

/* A key, with the range that it opens. */
struct access {
    struct range range;
    uint32_t key;
    struct object *of; /* a LMR or RMR */
};

static int privileges_of(const struct object *one)
{
    return one->kind == LMR ? one->of.lmr.privileges : one->of.rmr.privileges;
}

/* Returns the access that a LMR, or a RMR whose bind is complete, gives to peers. */
static struct access access_of(struct object *one)
{
    if (one->kind == LMR)
        return (struct access){one->of.lmr.range, one->of.lmr.remote_key, one};
    if (!one->of.rmr.lmr || one->of.rmr.unknown || one->of.rmr.bind->progress != DONE)
        return (struct access){{0, 0}, 0, one};
    return (struct access){one->of.rmr.range, one->of.rmr.key, one};
}

/* Returns a random access of the peer that allows what `right` says; its key is 0 without one. */
static struct access choose_access(const struct object *peer, enum kind kind, int right, bool target, uint64_t length)
{
    struct access chosen = {{0, 0}, 0, NULL};
    uint32_t seen = 0;
    int i;
    for (i = 0; i < object_count; i++) {
        struct object *one = &objects[i];
        struct access access;
        if (!one->alive || one->kind != kind || one->node != peer->node || one->pz != peer->pz || !(privileges_of(one) & right))
            continue;
        access = access_of(one);
        if (access.key && access.range.length >= length && in_area(peer->node, access.range, target) && below(++seen) == 0)
            chosen = access;
    }
    return chosen;
}

/* Returns an access that must be refused, or one with the key 0. */
static struct access choose_wrong(const struct object *peer, int right, struct access good, uint64_t length)
{
    const struct stale_key *stale;
    struct object *other;
    int tries;
    switch (below(5)) {
    case 0:
        good.key ^= 0x777000;
        return good;
    case 1: /* a byte beyond the end */
        good.range = (struct range){good.range.start + good.range.length - length + 1, length};
        return good;
    case 2: /* a byte before the beginning */
        good.range = (struct range){good.range.start - 1, length};
        return good;
    case 3: /* another PZ, or without the right */
        for (tries = 0; tries < 8 && (other = any_object(LMR, peer->node)); tries++)
            if (other->of.lmr.remote_key && (other->pz != peer->pz || !(other->of.lmr.privileges & right)) &&
                other->of.lmr.range.length >= length)
                return (struct access){{other->of.lmr.range.start, length}, other->of.lmr.remote_key, NULL};
        break;
    default:
        stale = any_stale_key(peer->node);
        if (stale && stale->pz == peer->pz && stale->range.length >= length)
            return (struct access){{stale->range.start, length}, stale->key, NULL};
    }
    return (struct access){{0, 0}, 0, NULL};
}

static void set_remote(struct post *post, struct range range, uint32_t key)
{
#ifdef UDAPL_1_2
    shared->remote.target_address = range.start;
#else
    shared->remote.virtual_address = range.start;
#endif
    shared->remote.segment_length = range.length;
    shared->remote.rmr_context = key;
    post->remote = range;
}

/* The request must fail for this reason, if it fails for no other one. */
static void refuse(struct post *post, int status)
{
    if (post->outcome == SUCCEEDS) {
        post->outcome = REFUSED;
        post->status = status;
    } else {
        post->outcome = ANY;
    }
}

/* Chooses the peer's memory for an RDMA request of `length` bytes. Returns false if there is none, and the request would only fail. */
static bool choose_remote(struct post *post, int right, bool target, uint64_t length)
{
    struct object *peer = peer_of(post->ep);
    struct access access = {{0x1000, length}, 0x77, NULL};
    bool wrong = true;
    if (peer && peer->pz) {
        struct access good = choose_access(peer, chance(30) ? RMR : LMR, right, target, length);
        struct access bad = {{0, 0}, 0, NULL};
        post->remote_node = peer->node;
        if (good.key && chance(8))
            bad = choose_wrong(peer, right, good, length);
        if (!good.key && !chance(4))
            return false;
        if (bad.key)
            access = bad;
        else if (good.key) {
            access = good;
            access.range.start += (random_word() % (good.range.length - length + 1)) & ~(right == REMOTE_ATOMIC ? 7ull : 0ull);
            wrong = false;
            post->used[post->used_count++] = good.of;
            if (good.of->kind == RMR)
                post->used[post->used_count++] = good.of->of.rmr.lmr;
        }
    }
    note("    remote %#llx + %llu, key %#x: %s", (unsigned long long)access.range.start, (unsigned long long)length, access.key,
         wrong ? "wrong" : "right");
    if (right == REMOTE_ATOMIC && access.range.start % 8 != 0)
        post->outcome = ANY;
    if (wrong && rxe_ignores_range_of(access.of))
        post->outcome = ANY;
    else if (wrong && length > 0)
        refuse(post, DAT_DTO_ERR_REMOTE_ACCESS);
    else if (wrong)
        post->outcome = ANY;
    set_remote(post, (struct range){access.range.start, length}, access.key);
    return true;
}

static uint32_t call_request(const struct post *post, int flags)
{
    int node = post->ep->node;
    uint64_t ep = post->ep->handle, count = word(post->segments), local = at(shared->local), cookie = cookie_of(post);
    uint64_t remote = at(&shared->remote);
    switch (post->kind) {
    case SEND:
        return CALL(node, ep_post_send, ep, count, local, cookie, word(flags));
    case WRITE:
        return CALL(node, ep_post_rdma_write, ep, count, local, cookie, remote, word(flags));
    case READ:
        return CALL(node, ep_post_rdma_read, ep, count, local, cookie, remote, word(flags));
#ifndef UDAPL_1_2
    case WRITE_IMMEDIATE:
        return CALL(node, extension_op, ep, word(DAT_IB_RDMA_WRITE_IMMED_OP), count, local, cookie, remote, post->immediate,
                    word(flags));
    case FETCH_ADD:
        return CALL(node, extension_op, ep, word(DAT_IB_FETCH_AND_ADD_OP), 3, local, cookie, remote, word(flags));
#endif
    default:
        return DAT_NOT_IMPLEMENTED;
    }
}

/* Chooses the segments and the peer's memory of a request; false if there is none. */
static bool choose_request(struct post *post)
{
    const struct object *ep = post->ep;
    int most = ep->of.ep.request_iov < MAX_SEGMENTS ? ep->of.ep.request_iov : MAX_SEGMENTS;
    int count = post->kind == FETCH_ADD ? 1 : (int)below((uint32_t)most + 1);
    bool to_write = post->kind == READ || post->kind == FETCH_ADD;
    uint32_t longest = is_message(post) ? MESSAGE / MAX_SEGMENTS : chance(10) ? 60000 : 8000;
    choose_segments(post, ep->node, ep->pz, to_write, count, longest > 8000 && count ? 8192 * 7 / (uint32_t)count : longest);
    if (post->kind == FETCH_ADD && post->segments) {
        /* The eight bytes of the result. */
        struct range *result = &post->local[0];
        const struct range *lmr = &post->used[0]->of.lmr.range;
        result->start = (result->start + 7) & ~7ull;
        result->length = 8;
        shared->local[0].virtual_address = result->start;
        shared->local[0].segment_length = 8;
        post->length = 8;
        if (post->outcome == REFUSED || result->start + 8 > lmr->start + lmr->length)
            post->outcome = ANY;
    }
    if (post->kind == WRITE || post->kind == WRITE_IMMEDIATE)
        return choose_remote(post, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, true, post->length);
    if (post->kind == READ)
        return choose_remote(post, DAT_MEM_PRIV_REMOTE_READ_FLAG, false, post->length);
    if (post->kind == FETCH_ADD)
        return post->segments && choose_remote(post, REMOTE_ATOMIC, true, 8);
    return true;
}

static enum post_kind random_kind(void)
{
    static const enum post_kind kinds[] = {
        SEND, SEND, SEND, SEND, WRITE, WRITE, READ, READ,
#ifndef UDAPL_1_2
        WRITE_IMMEDIATE, FETCH_ADD,
#endif
    };
    return kinds[below(sizeof kinds / sizeof kinds[0])];
}

void post_request(int node)
{
    struct object *ep = any_object(EP, node);
    struct post *post;
    DAT_EP_STATE before, after;
    uint32_t code;
    int tries, flags = 0;
    for (tries = 0; tries < 12 && ep && state_of(ep) != DAT_EP_STATE_CONNECTED && !chance(6); tries++)
        ep = any_object(EP, node);
    if (!ep || !ep->pz || (ep->of.ep.state != DAT_EP_STATE_CONNECTED && !chance(20)))
        return;
    post = new_post(random_kind(), ep);
    if (!choose_request(post))
        return;
    if (post->outcome == REFUSED && rxe_has_no_segments(post))
        post->outcome = ANY;
    post->suppressed = chance(20);
    post->immediate = (uint32_t)random_word();
    if (post->suppressed)
        flags |= DAT_COMPLETION_SUPPRESS_FLAG;
    post->fenced = chance(10);
    if (post->fenced)
        flags |= DAT_COMPLETION_BARRIER_FENCE_FLAG;
    if (chance(10))
        flags |= DAT_COMPLETION_SOLICITED_WAIT_FLAG;
    before = state_of(ep);
    if (before != DAT_EP_STATE_CONNECTED && before != DAT_EP_STATE_DISCONNECTED)
        must_fail(DAT_INVALID_STATE);
    if (ep->of.ep.outstanding[REQUESTS] >= ep->of.ep.most_requests)
        may_fail(DAT_INSUFFICIENT_RESOURCES);
    if (post->kind == READ || post->kind == FETCH_ADD)
        may_fail(DAT_NOT_IMPLEMENTED);
    if (post->kind == FETCH_ADD && post->remote.start % 8 != 0)
        may_fail(DAT_INVALID_PARAMETER);
    code = call_request(post, flags);
    /* A request that must fail may have ended the connection by now. */
    if (code == DAT_SUCCESS && post->outcome != SUCCEEDS)
        doom(ep);
    after = state_of(ep);
    if (code != DAT_SUCCESS && after != before)
        may_fail(DAT_INVALID_STATE);
    if (code == DAT_SUCCESS && after != before)
        may_succeed();
    if (!succeeded(code))
        return;
    post->connection = ep->of.ep.connection;
    if (before != DAT_EP_STATE_CONNECTED || after != before)
        post->outcome = ANY;
    add_post(post);
}
