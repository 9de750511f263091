#include <string.h>

#include "expect.h"
#include "objects.h"
#include "posts.h"
#include "report.h"
#include "settle.h"

#define QUERY(object, name, mask, result) succeeded(CALL((object)->node, name, (object)->handle, mask, at(result)))

/* Fails unless the query of the object returned this value. */
static void same(const struct object *object, const char *what, uint64_t found, uint64_t wanted)
{
    if (found != wanted)
        fail("the query of %s %#llx: %s is %#llx, not %#llx", kind_names[object->kind], (unsigned long long)object->handle, what,
             (unsigned long long)found, (unsigned long long)wanted);
}

static void audit_evd(const struct object *evd)
{
    const struct evd *model = &evd->of.evd;
    const DAT_EVD_PARAM *seen = &shared->evd;
    QUERY(evd, evd_query, DAT_EVD_FIELD_ALL, seen);
    if (!model->asynchronous)
        same(evd, "length", (uint64_t)seen->evd_qlen, (uint64_t)model->length);
    same(evd, "CNO", at(seen->cno_handle), handle_of(evd->cno));
    same(evd, "flags", (uint64_t)seen->evd_flags, (uint64_t)model->flags);
    same(evd, "enabled", !!(seen->evd_state & DAT_EVD_STATE_ENABLED), model->enabled);
    same(evd, "waitable", !!(seen->evd_state & DAT_EVD_STATE_WAITABLE), model->waitable);
}

static void audit_ep(struct object *ep)
{
    const struct ep *model = &ep->of.ep;
    const DAT_EP_PARAM *seen = &shared->ep;
    state_of(ep);
    if (!model->outstanding[REQUESTS] && !idle[REQUESTS] && model->request_evd)
        fail("endpoint %#llx has no request, but is not idle", (unsigned long long)ep->handle);
    if (!model->outstanding[RECEIVES] && !idle[RECEIVES] && model->receive_evd)
        fail("endpoint %#llx has no receive, but is not idle", (unsigned long long)ep->handle);
    QUERY(ep, ep_query, DAT_EP_FIELD_ALL, seen);
    same(ep, "PZ", at(seen->pz_handle), handle_of(ep->pz));
    same(ep, "receive EVD", at(seen->recv_evd_handle), handle_of(model->receive_evd));
    same(ep, "request EVD", at(seen->request_evd_handle), handle_of(model->request_evd));
    same(ep, "connect EVD", at(seen->connect_evd_handle), handle_of(model->connect_evd));
    same(ep, "SRQ", at(seen->srq_handle), handle_of(model->srq));
    if (seen->ep_attr.max_request_dtos < model->most_requests || (!model->srq && seen->ep_attr.max_recv_dtos < model->most_receives))
        fail("endpoint %#llx takes fewer posts than it was asked for", (unsigned long long)ep->handle);
}

static void audit_lmr(const struct object *lmr)
{
    const struct lmr *model = &lmr->of.lmr;
    const DAT_LMR_PARAM *seen = &shared->lmr;
    QUERY(lmr, lmr_query, DAT_LMR_FIELD_ALL, seen);
    same(lmr, "address", seen->registered_address, model->range.start);
    same(lmr, "size", seen->registered_size, model->range.length);
    same(lmr, "PZ", at(seen->pz_handle), handle_of(lmr->pz));
    same(lmr, "lmr_context", seen->lmr_context, model->local_key);
    same(lmr, "rmr_context", seen->rmr_context, model->remote_key);
    same(lmr, "privileges", (uint64_t)seen->mem_priv, (uint64_t)model->privileges);
}

static void audit_rmr(const struct object *rmr)
{
    QUERY(rmr, rmr_query, DAT_RMR_FIELD_ALL, &shared->rmr);
    same(rmr, "PZ", at(shared->rmr.pz_handle), handle_of(rmr->pz));
    if (!rmr->of.rmr.unknown && (!rmr->of.rmr.bind || rmr->of.rmr.bind->progress == DONE))
        same(rmr, "rmr_context", shared->rmr.rmr_context, rmr->of.rmr.key);
}

static void audit_service_point(const struct object *point)
{
    const struct service_point *model = &point->of.service_point;
    if (point->kind == PSP) {
        QUERY(point, psp_query, DAT_PSP_FIELD_ALL, &shared->psp);
        same(point, "qualifier", shared->psp.conn_qual, model->qualifier);
        same(point, "EVD", at(shared->psp.evd_handle), handle_of(point->evd));
        same(point, "flags", (uint64_t)shared->psp.psp_flags, (uint64_t)model->flags);
        return;
    }
    QUERY(point, rsp_query, DAT_RSP_FIELD_ALL, &shared->rsp);
    same(point, "qualifier", shared->rsp.conn_qual, model->qualifier);
    same(point, "EVD", at(shared->rsp.evd_handle), handle_of(point->evd));
    if (!model->spent)
        same(point, "endpoint", at(shared->rsp.ep_handle), handle_of(model->ep));
}

static void audit_srq(const struct object *srq)
{
    QUERY(srq, srq_query, DAT_SRQ_FIELD_ALL, &shared->srq);
    if (shared->srq.max_recv_dtos < srq->of.srq.most || shared->srq.available_dto_count < 0 ||
        shared->srq.available_dto_count > srq->of.srq.posted)
        fail("SRQ %#llx holds %d, with %d available; %d were posted", (unsigned long long)srq->handle, shared->srq.max_recv_dtos,
             shared->srq.available_dto_count, srq->of.srq.posted);
}

static void audit_object(struct object *object)
{
    switch (object->kind) {
    case PZ:
        QUERY(object, pz_query, DAT_PZ_FIELD_ALL, &shared->pz);
        break;
    case LMR:
        audit_lmr(object);
        break;
    case RMR:
        audit_rmr(object);
        break;
    case EVD:
        audit_evd(object);
        break;
    case PSP:
    case RSP:
        audit_service_point(object);
        break;
    case EP:
        audit_ep(object);
        break;
    case SRQ:
        audit_srq(object);
        break;
    case IA:
    case CNO:
    case CR:
        break;
    }
}

static int handle_type(enum kind kind)
{
    static const int types[] = {DAT_HANDLE_TYPE_IA, DAT_HANDLE_TYPE_PZ, DAT_HANDLE_TYPE_LMR, DAT_HANDLE_TYPE_RMR,
                                DAT_HANDLE_TYPE_EVD, DAT_HANDLE_TYPE_CNO, DAT_HANDLE_TYPE_PSP, DAT_HANDLE_TYPE_RSP,
                                DAT_HANDLE_TYPE_CR, DAT_HANDLE_TYPE_EP, DAT_HANDLE_TYPE_SRQ};
    return types[kind];
}

void audit(void)
{
    int i;
    for (i = 0; i < object_count; i++) {
        struct object *object = &objects[i];
        expect_success();
        if (!object->alive) {
            /* The newest only: an old one's address may name another object by now. */
            if (object->kind == IA || object_count - i > 200 || is_live(object->node, object->handle))
                continue;
            must_fail(DAT_INVALID_HANDLE);
        }
        if (!succeeded(CALL(object->node, get_handle_type, object->handle, at(&shared->out[0]))))
            continue;
        same(object, "type", (uint32_t)shared->out[0], (uint64_t)handle_type(object->kind));
        succeeded(CALL(object->node, get_consumer_context, object->handle, at(&shared->out[0])));
        same(object, "context", shared->out[0], object->context);
        audit_object(object);
    }
}
