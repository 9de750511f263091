#include "segments.h"

#include "random.h"

/* Returns a random LMR of the PZ that serves, or NULL. */
static struct object *serving_lmr(int node, const struct object *pz, bool to_write)
{
    struct object *chosen = NULL;
    uint32_t seen = 0;
    int i;
    for (i = 0; i < object_count; i++) {
        struct object *one = &objects[i];
        if (one->alive && one->kind == LMR && one->node == node && one->pz == pz &&
            in_area(node, one->of.lmr.range, to_write) &&
            (!to_write || (one->of.lmr.privileges & DAT_MEM_PRIV_LOCAL_WRITE_FLAG)) && below(++seen) == 0)
            chosen = one;
    }
    return chosen;
}

/* Makes a segment wrong: another key, or bytes beyond the LMR. */
static void spoil(struct post *post, const struct object *lmr, struct range *range, uint32_t *key)
{
    switch (below(3)) {
    case 0:
        *key ^= 0x5a5a00;
        break;
    case 1:
        range->start = lmr->of.lmr.range.start + lmr->of.lmr.range.length - range->length + 1;
        break;
    default:
        range->start = lmr->of.lmr.range.start - 1;
    }
    /* A receive fails only once a message comes. */
    post->outcome = post->kind == RECEIVE ? ANY : REFUSED;
    post->status = DAT_DTO_ERR_LOCAL_PROTECTION;
}

void choose_segments(struct post *post, int node, const struct object *pz, bool to_write, int count, uint32_t longest)
{
    int i;
    for (i = 0; i < count && i < MAX_SEGMENTS; i++) {
        struct object *lmr = serving_lmr(node, pz, to_write);
        struct range range;
        uint32_t key;
        if (!lmr)
            return;
        range.length = 1 + below(longest);
        if (range.length > lmr->of.lmr.range.length)
            range.length = lmr->of.lmr.range.length;
        range.start = lmr->of.lmr.range.start + below((uint32_t)(lmr->of.lmr.range.length - range.length + 1));
        key = lmr->of.lmr.local_key;
        if (post->outcome == SUCCEEDS && chance(1))
            spoil(post, lmr, &range, &key);
        shared->local[i].virtual_address = range.start;
        shared->local[i].segment_length = range.length;
        shared->local[i].lmr_context = key;
        post->local[i] = range;
        post->used[post->used_count++] = lmr;
        post->segments = i + 1;
        post->length += range.length;
    }
}
