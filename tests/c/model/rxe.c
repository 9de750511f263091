#include "rxe.h"

#include "report.h"

/* Its requester executes a bind once more when an earlier request is sent again, as after an RNR NAK: req_retry() of rxe_req.c goes back
 * to that one, and only rxe_completer() skips requests that are done. rxe_bind_mw() of rxe_mw.c then finds another key than the bind's.
 * So it does if a bind that was posted before to another endpoint has not been executed: queue pairs have no order. */
bool rxe_may_refuse_bind(const struct post *bind, const struct post *former)
{
    return run.rxe && (bind->ep->of.ep.oldest[REQUESTS] ||
                       (former && former->progress == OUTSTANDING && former->ep != bind->ep));
}

/* check_rkey() of rxe_resp.c compares the range with that of the region, and not with that of the window. */
bool rxe_ignores_range_of(const struct object *one)
{
    return run.rxe && one && one->kind == RMR;
}

/* The provider has the driver library copy up to 64 bytes into the request: then nobody looks at the key (`inline` of docs/ia_params.md). */
bool rxe_has_no_segments(const struct post *post)
{
    return run.rxe && post->length <= 64 && post->status == DAT_DTO_ERR_LOCAL_PROTECTION &&
           (post->kind == SEND || post->kind == WRITE || post->kind == WRITE_IMMEDIATE);
}

/* rxe_requester() of rxe_req.c has IB_WC_LOC_QP_OP_ERR for each error of finish_packet() but -EFAULT, which copy_data() returns for
 * a wrong range. For a wrong key it returns -EINVAL. */
bool rxe_has_status(const struct post *post, int status)
{
    return run.rxe && status == DAT_DTO_ERR_LOCAL_EP && post->outcome == REFUSED && post->status == DAT_DTO_ERR_LOCAL_PROTECTION;
}

/* The end of an attempt is reported to the provider, which has the device flush the receives and then reports the end. The program may see
 * the first receive between the two. */
bool rxe_flushes_early(const struct object *ep)
{
    return run.rxe && ep->of.ep.state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING && !ep->of.ep.connection->accepted;
}

/* The kernel's connection manager sends the answer to a request 16 times, every 4 s, where the peer is gone: CMA_MAX_CM_RETRIES and
 * CMA_CM_RESPONSE_TIMEOUT of cma.c. */
bool rxe_accepts_long(const struct object *ep)
{
    return run.rxe && ep->of.ep.connection->doomed;
}

/* rxe_wqe_is_fenced() of rxe_req.c has a fenced request wait until no READ or atomic is outstanding at all. One behind it is, if
 * it was sent before an earlier request had to be sent again; then each waits for the other. A fenced READ or atomic waits for itself then:
 * has_rd_atomic stays set. */
bool rxe_may_be_stuck(const struct post *post)
{
    if (!run.rxe || !post->fenced)
        return false;
    for (; post; post = post->next)
        if (post->kind == READ || post->kind == FETCH_ADD)
            return true;
    return false;
}
