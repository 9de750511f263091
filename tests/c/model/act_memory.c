/* LMRs and RMRs. */
#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"
#include "rxe.h"
#include "stale_keys.h"

#define REMOTE_RIGHTS (DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG | 0x40)

static const int privileges_of_lmrs[] = {
    DAT_MEM_PRIV_ALL_FLAG,
    DAT_MEM_PRIV_ALL_FLAG,
#ifdef UDAPL_1_2
    DAT_MEM_PRIV_ALL_FLAG,
#else
    DAT_MEM_PRIV_ALL_FLAG | 0x40, /* with remote atomics */
#endif
    DAT_MEM_PRIV_LOCAL_READ_FLAG,
    DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
    DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
    DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
};

/* Returns a random range: half of the time the whole area. */
static struct range range_of_area(int node)
{
    bool target = chance(60);
    uint32_t size = target ? TARGET_SIZE : SOURCE_SIZE, offset = 0, length = size;
    if (chance(50)) {
        offset = below(size - 8192);
        length = 8192 + below(size - 8192 - offset);
    }
    return (struct range){at(target ? target_area[node] : source_area[node]) + offset, length};
}

/* Calls dat_lmr_create; the results are in `shared->out`: the LMR, its keys, its size and address. */
static uint32_t call_lmr_create(int node, uint64_t ia, DAT_MEM_TYPE type, struct range region, uint64_t pz, int privileges)
{
    uint64_t *out = shared->out;
    out[1] = out[2] = 0;
    return CALL(node, lmr_create, ia, word(type), region.start, 0, region.length, pz, word(privileges),
#ifndef UDAPL_1_2
                word(DAT_VA_TYPE_VA),
#endif
                at(&out[0]), at(&out[1]), at(&out[2]), at(&out[3]), at(&out[4]));
}

void create_ample_lmrs(int node)
{
    const struct range areas[] = {{at(source_area[node]), SOURCE_SIZE}, {at(target_area[node]), TARGET_SIZE}};
    uint64_t *out = shared->out;
    struct object *pz;
    for (pz = objects; pz < objects + object_count; pz++) {
        int i;
        for (i = 0; i < 2 && pz->alive && pz->kind == PZ && pz->node == node; i++) {
            struct object *lmr;
            int privileges = privileges_of_lmrs[2];
            if (!succeeded(call_lmr_create(node, ia_of[node]->handle, DAT_MEM_TYPE_VIRTUAL, areas[i], pz->handle, privileges)))
                return;
            lmr = add_object(LMR, node, out[0]);
            lmr->pz = pz;
            lmr->of.lmr = (struct lmr){areas[i], privileges, (uint32_t)out[1], (uint32_t)out[2], NULL};
        }
    }
}

void create_lmr(int node)
{
    struct object *ia, *pz, *base = NULL, *lmr;
    uint64_t handle = handle_for(IA, node, &ia), zone = handle_for(PZ, node, &pz), *out = shared->out;
    struct range wanted = range_of_area(node), region = wanted;
    DAT_MEM_TYPE type = DAT_MEM_TYPE_VIRTUAL;
    int privileges = privileges_of_lmrs[below(sizeof privileges_of_lmrs / sizeof privileges_of_lmrs[0])];
    if (count_objects(LMR, node) > 40)
        return;
    if (chance(20)) {
        type = DAT_MEM_TYPE_LMR;
        region = (struct range){handle_for(LMR, node, &base), 0};
        if (base)
            wanted = base->of.lmr.range;
    }
    if (!succeeded(call_lmr_create(node, handle, type, region, zone, privileges)))
        return;
    lmr = add_object(LMR, node, out[0]);
    lmr->pz = pz;
    lmr->of.lmr = (struct lmr){{out[4], out[3]}, privileges, (uint32_t)out[1], (uint32_t)out[2], base};
    if (out[4] != wanted.start || out[3] != wanted.length)
        fail("a LMR of %#llx + %#llx has %#llx + %#llx", (unsigned long long)wanted.start, (unsigned long long)wanted.length,
             (unsigned long long)out[4], (unsigned long long)out[3]);
    if (!(privileges & REMOTE_RIGHTS) != !lmr->of.lmr.remote_key)
        fail("a LMR with the privileges %#x has the rmr_context %#x", privileges, lmr->of.lmr.remote_key);
}

/* Whether a bind to the LMR may be in force: one that has not completed, or whose end is not known. */
static bool may_be_bound(const struct object *lmr)
{
    int i, j;
    for (i = 0; i < post_count; i++)
        for (j = 0; j < posts[i].used_count; j++)
            if (posts[i].kind == BIND && posts[i].used[j] == lmr && posts[i].rmr->alive &&
                (posts[i].progress != DONE || posts[i].rmr->of.rmr.unknown))
                return true;
    return false;
}

void free_lmr(int node)
{
    struct object *lmr;
    uint64_t handle = handle_for(LMR, node, &lmr);
    if (lmr && may_be_bound(lmr))
        may_fail(DAT_INVALID_STATE);
    else if (lmr && is_used(lmr))
        must_fail(DAT_INVALID_STATE);
    else if (lmr && chance(60))
        return;
    if (!succeeded(CALL(node, lmr_free, handle)))
        return;
    lmr->alive = false;
    loosen_users(lmr);
    add_stale_key((struct stale_key){node, lmr->of.lmr.remote_key, lmr->of.lmr.range, lmr->pz, NULL});
}

void create_rmr(int node)
{
    struct object *pz;
    uint64_t handle = handle_for(PZ, node, &pz);
    if (count_objects(RMR, node) > 12)
        return;
    may_fail(DAT_NOT_IMPLEMENTED);
    may_fail(DAT_MODEL_NOT_SUPPORTED);
    if (succeeded(CALL(node, rmr_create, handle, at(&shared->out[0]))))
        add_object(RMR, node, shared->out[0])->pz = pz;
}

/* The window of the RMR closes: what uses it may fail, and its key is stale. */
static void close_window(const struct object *rmr)
{
    loosen_users(rmr);
    if (!rmr->of.rmr.unknown)
        add_stale_key((struct stale_key){rmr->node, rmr->of.rmr.key, rmr->of.rmr.range, rmr->pz, rmr});
}

void free_rmr(int node)
{
    struct object *rmr;
    uint64_t handle = handle_for(RMR, node, &rmr);
    if (rmr && chance(50))
        return;
    if (!succeeded(CALL(node, rmr_free, handle)))
        return;
    rmr->alive = false;
    if (rmr->of.rmr.bind && rmr->of.rmr.bind->progress == OUTSTANDING)
        loosen(rmr->of.rmr.bind);
    close_window(rmr);
}

/* Calls dat_rmr_bind of the range; without a LMR it unbinds. The key is in `shared->out[0]`. */
static uint32_t call_rmr_bind(const struct object *rmr, const struct object *lmr, struct range range, int privileges,
                              const struct post *post)
{
    shared->out[0] = 0;
    shared->local[0].virtual_address = range.start;
    shared->local[0].segment_length = range.length;
    shared->local[0].lmr_context = lmr ? lmr->of.lmr.local_key : 0;
    return CALL(rmr->node, rmr_bind, rmr->handle,
#ifndef UDAPL_1_2
                handle_of(lmr),
#endif
                at(&shared->local[0]), word(privileges),
#ifndef UDAPL_1_2
                word(DAT_VA_TYPE_VA),
#endif
                post->ep->handle, cookie_of(post), word(post->suppressed ? DAT_COMPLETION_SUPPRESS_FLAG : 0),
                at(&shared->out[0]));
}

/* Notes what a bind that the library has taken changes. */
static void bound(struct post *post, struct object *lmr, struct range range, int privileges, DAT_EP_STATE before)
{
    struct object *rmr = post->rmr;
    struct rmr *model = &rmr->of.rmr;
    struct post *former = model->bind;
    uint32_t key = (uint32_t)shared->out[0];
    if (!lmr && key)
        fail("an unbind returned the rmr_context %#x", key);
    post->used[post->used_count++] = rmr;
    if (lmr)
        post->used[post->used_count++] = lmr;
    if (model->lmr)
        post->used[post->used_count++] = model->lmr;
    close_window(rmr);
    *model = (struct rmr){post, lmr, range, privileges, key, post->suppressed};
    if (before != DAT_EP_STATE_CONNECTED || state_of(post->ep) != DAT_EP_STATE_CONNECTED) {
        model->unknown = true;
        post->outcome = ANY;
    } else if (lmr && !key) {
        fail("a bind returned no rmr_context");
    }
    if (rxe_may_refuse_bind(post, former)) {
        post->outcome = ANY;
        if (former && former->progress == OUTSTANDING)
            loosen(former); /* a new window may take its place */
    }
    add_post(post);
}

void bind_rmr(int node)
{
    struct object *ep = any_object(EP, node), *rmr = any_object(RMR, node), *lmr = chance(25) ? NULL : any_object(LMR, node);
    int privileges = chance(50) ? DAT_MEM_PRIV_REMOTE_READ_FLAG : DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    struct range range = {0, 0};
    struct post *post;
    DAT_EP_STATE before;
    int tries;
    for (tries = 0; tries < 12 && ep && state_of(ep) != DAT_EP_STATE_CONNECTED; tries++)
        ep = any_object(EP, node);
    for (tries = 0; tries < 12 && ep && rmr && rmr->pz != ep->pz; tries++)
        rmr = any_object(RMR, node);
    for (tries = 0; tries < 12 && rmr && lmr && lmr->pz != rmr->pz; tries++)
        lmr = any_object(LMR, node);
    if (!ep || !rmr)
        return;
    before = state_of(ep);
    if (rmr->pz != ep->pz || (lmr && lmr->pz != rmr->pz))
        must_fail(DAT_PROTECTION_VIOLATION);
    if (lmr) {
        const struct lmr *model = &lmr->of.lmr;
        range.length = 1 + random_word() % model->range.length;
        range.start = model->range.start + random_word() % (model->range.length - range.length + 1);
        if (!(model->privileges & DAT_MEM_PRIV_LOCAL_READ_FLAG) ||
            ((privileges & DAT_MEM_PRIV_REMOTE_WRITE_FLAG) && !(model->privileges & DAT_MEM_PRIV_LOCAL_WRITE_FLAG)))
            must_fail(DAT_PRIVILEGES_VIOLATION);
        if (chance(3)) {
            range.start = model->range.start + model->range.length - range.length + 1;
            must_fail(DAT_INVALID_PARAMETER);
            must_fail(DAT_LENGTH_ERROR);
        }
    }
    if (before != DAT_EP_STATE_CONNECTED && before != DAT_EP_STATE_DISCONNECTED)
        must_fail(DAT_INVALID_STATE);
    may_fail(DAT_INSUFFICIENT_RESOURCES);
    post = new_post(BIND, ep);
    post->rmr = rmr;
    post->suppressed = chance(15);
    {
        uint32_t code = call_rmr_bind(rmr, lmr, range, privileges, post), key = (uint32_t)shared->out[0];
        DAT_EP_STATE after = state_of(ep);
        shared->out[0] = key;
        if (code != DAT_SUCCESS && after != before)
            may_fail(DAT_INVALID_STATE);
        if (code == DAT_SUCCESS && after != before)
            may_succeed();
        if (succeeded(code)) {
            post->connection = ep->of.ep.connection;
            bound(post, lmr, range, privileges, before);
        }
    }
}
