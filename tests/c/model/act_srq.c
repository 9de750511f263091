/* Shared receive queues. */
#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "segments.h"

void create_srq(int node)
{
    struct object *ia, *pz, *srq;
    uint64_t handle = handle_for(IA, node, &ia), zone = handle_for(PZ, node, &pz);
    DAT_SRQ_ATTR *attr = &shared->srq_attr;
    if (count_objects(SRQ, node) > 3)
        return;
    attr->max_recv_dtos = 8 + (int)below(60);
    attr->max_recv_iov = 1;
    attr->low_watermark = chance(85) ? 0 : (int)below((uint32_t)attr->max_recv_dtos);
    if (!succeeded(CALL(node, srq_create, handle, zone, at(attr), at(&shared->out[0]))))
        return;
    srq = add_object(SRQ, node, shared->out[0]);
    srq->pz = pz;
    srq->of.srq.most = attr->max_recv_dtos;
    srq->of.srq.watermarks = attr->low_watermark > 0;
}

void change_srq(int node)
{
    struct object *srq;
    uint64_t handle = handle_for(SRQ, node, &srq);
    int count = 1 + (int)below(70);
    switch (below(3)) {
    case 0:
        if (srq && is_used(srq))
            must_fail(DAT_INVALID_STATE);
        else if (srq && chance(70))
            return;
        if (!succeeded(CALL(node, srq_free, handle)))
            return;
        srq->alive = false;
        for (count = 0; count < post_count; count++)
            if (posts[count].progress == OUTSTANDING && posts[count].srq == srq)
                posts[count].progress = DROPPED;
        return;
    case 1:
        may_fail(DAT_INVALID_STATE);
        may_fail(DAT_NOT_IMPLEMENTED);
        if (succeeded(CALL(node, srq_resize, handle, word(count))))
            srq->of.srq.most = count;
        return;
    default:
        if (srq && count > srq->of.srq.most)
            may_fail(DAT_INVALID_PARAMETER);
        may_fail(DAT_MODEL_NOT_SUPPORTED);
        if (succeeded(CALL(node, srq_set_lw, handle, word(count))))
            srq->of.srq.watermarks++;
    }
}

void post_srq(int node)
{
    struct object *srq;
    uint64_t handle = handle_for(SRQ, node, &srq);
    struct post *post = new_post(RECEIVE, NULL);
    post->srq = srq;
    if (srq) {
        choose_segments(post, node, srq->pz, true, 1, 8000);
        if (srq->of.srq.posted >= srq->of.srq.most)
            may_fail(DAT_INSUFFICIENT_RESOURCES);
    }
    if (post->length < MESSAGE)
        post->outcome = ANY;
    if (post->outcome == ANY && !chance(10))
        return;
    if (succeeded(CALL(node, srq_post_recv, handle, word(post->segments), at(shared->local), cookie_of(post))))
        add_post(post);
}
