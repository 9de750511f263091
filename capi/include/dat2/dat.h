/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: types and functions. Including this header or udat.h includes both.
 */
#ifndef _DAT_H_
#define _DAT_H_

#include <dat2/dat_event.h>
#include <dat2/dat_param.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Identifies an entry of the registry. */
typedef struct dat_provider_info {
    char ia_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 dapl_version_major;
    DAT_UINT32 dapl_version_minor;
    DAT_BOOLEAN is_thread_safe;
} DAT_PROVIDER_INFO;

DAT_RETURN DAT_API dat_ia_openv(const DAT_NAME_PTR name, DAT_COUNT async_evd_qlen, DAT_EVD_HANDLE *async_evd,
    DAT_IA_HANDLE *ia, DAT_UINT32 major, DAT_UINT32 minor, DAT_BOOLEAN thread_safe);
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)

/* BEGIN slots.txt: prototypes 2.0 dat.h */
DAT_RETURN DAT_API dat_ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd,
    DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_mask,
    DAT_PROVIDER_ATTR *provider_attr);
DAT_RETURN DAT_API dat_ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags);
DAT_RETURN DAT_API dat_set_consumer_context(DAT_HANDLE handle, DAT_CONTEXT context);
DAT_RETURN DAT_API dat_get_consumer_context(DAT_HANDLE handle, DAT_CONTEXT *context);
DAT_RETURN DAT_API dat_get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *handle_type);
DAT_RETURN DAT_API dat_cr_query(DAT_CR_HANDLE cr, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *param);
DAT_RETURN DAT_API dat_cr_accept(DAT_CR_HANDLE cr, DAT_EP_HANDLE ep,
    DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN DAT_API dat_cr_reject(DAT_CR_HANDLE cr, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);
DAT_RETURN DAT_API dat_cr_handoff(DAT_CR_HANDLE cr, DAT_CONN_QUAL handoff);
DAT_RETURN DAT_API dat_evd_query(DAT_EVD_HANDLE evd, DAT_EVD_PARAM_MASK mask,
    DAT_EVD_PARAM *param);
DAT_RETURN DAT_API dat_evd_resize(DAT_EVD_HANDLE evd, DAT_COUNT min_qlen);
DAT_RETURN DAT_API dat_evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *event);
DAT_RETURN DAT_API dat_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event);
DAT_RETURN DAT_API dat_evd_free(DAT_EVD_HANDLE evd);
DAT_RETURN DAT_API dat_ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv_evd,
    DAT_EVD_HANDLE request_evd, DAT_EVD_HANDLE connect_evd, const DAT_EP_ATTR *attr,
    DAT_EP_HANDLE *ep);
DAT_RETURN DAT_API dat_ep_query(DAT_EP_HANDLE ep, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM *param);
DAT_RETURN DAT_API dat_ep_modify(DAT_EP_HANDLE ep, DAT_EP_PARAM_MASK mask,
    const DAT_EP_PARAM *param);
DAT_RETURN DAT_API dat_ep_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR remote,
    DAT_CONN_QUAL conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
    const DAT_PVOID private_data, DAT_QOS qos, DAT_CONNECT_FLAGS flags);
DAT_RETURN DAT_API dat_ep_dup_connect(DAT_EP_HANDLE ep, DAT_EP_HANDLE model,
    DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data,
    DAT_QOS qos);
DAT_RETURN DAT_API dat_ep_disconnect(DAT_EP_HANDLE ep, DAT_CLOSE_FLAGS flags);
DAT_RETURN DAT_API dat_ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT segments, DAT_LMR_TRIPLET *iov,
    DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
DAT_RETURN DAT_API dat_ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT segments, DAT_LMR_TRIPLET *iov,
    DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
DAT_RETURN DAT_API dat_ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT segments,
    DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
    DAT_COMPLETION_FLAGS flags);
DAT_RETURN DAT_API dat_ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT segments,
    DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
    DAT_COMPLETION_FLAGS flags);
DAT_RETURN DAT_API dat_ep_get_status(DAT_EP_HANDLE ep, DAT_EP_STATE *state,
    DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);
DAT_RETURN DAT_API dat_ep_free(DAT_EP_HANDLE ep);
DAT_RETURN DAT_API dat_lmr_free(DAT_LMR_HANDLE lmr);
DAT_RETURN DAT_API dat_rmr_create(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr);
DAT_RETURN DAT_API dat_rmr_query(DAT_RMR_HANDLE rmr, DAT_RMR_PARAM_MASK mask,
    DAT_RMR_PARAM *param);
DAT_RETURN DAT_API dat_rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr,
    const DAT_LMR_TRIPLET *triplet, DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type,
    DAT_EP_HANDLE ep, DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
    DAT_RMR_CONTEXT *rmr_context);
DAT_RETURN DAT_API dat_rmr_free(DAT_RMR_HANDLE rmr);
DAT_RETURN DAT_API dat_psp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd,
    DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp);
DAT_RETURN DAT_API dat_psp_query(DAT_PSP_HANDLE psp, DAT_PSP_PARAM_MASK mask,
    DAT_PSP_PARAM *param);
DAT_RETURN DAT_API dat_psp_free(DAT_PSP_HANDLE psp);
DAT_RETURN DAT_API dat_rsp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep,
    DAT_EVD_HANDLE evd, DAT_RSP_HANDLE *rsp);
DAT_RETURN DAT_API dat_rsp_query(DAT_RSP_HANDLE rsp, DAT_RSP_PARAM_MASK mask,
    DAT_RSP_PARAM *param);
DAT_RETURN DAT_API dat_rsp_free(DAT_RSP_HANDLE rsp);
DAT_RETURN DAT_API dat_pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz);
DAT_RETURN DAT_API dat_pz_query(DAT_PZ_HANDLE pz, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param);
DAT_RETURN DAT_API dat_pz_free(DAT_PZ_HANDLE pz);
DAT_RETURN DAT_API dat_psp_create_any(DAT_IA_HANDLE ia, DAT_CONN_QUAL *conn_qual,
    DAT_EVD_HANDLE evd, DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp);
DAT_RETURN DAT_API dat_ep_reset(DAT_EP_HANDLE ep);
DAT_RETURN DAT_API dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia, const DAT_LMR_TRIPLET *segments,
    DAT_VLEN count);
DAT_RETURN DAT_API dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia, const DAT_LMR_TRIPLET *segments,
    DAT_VLEN count);
DAT_RETURN DAT_API dat_ep_create_with_srq(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz,
    DAT_EVD_HANDLE recv_evd, DAT_EVD_HANDLE request_evd, DAT_EVD_HANDLE connect_evd,
    DAT_SRQ_HANDLE srq, const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep);
DAT_RETURN DAT_API dat_ep_recv_query(DAT_EP_HANDLE ep, DAT_COUNT *buffers_allocated,
    DAT_COUNT *buffers_spanned);
DAT_RETURN DAT_API dat_ep_set_watermark(DAT_EP_HANDLE ep, DAT_COUNT soft_high,
    DAT_COUNT hard_high);
DAT_RETURN DAT_API dat_srq_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_SRQ_ATTR *attr,
    DAT_SRQ_HANDLE *srq);
DAT_RETURN DAT_API dat_srq_free(DAT_SRQ_HANDLE srq);
DAT_RETURN DAT_API dat_srq_post_recv(DAT_SRQ_HANDLE srq, DAT_COUNT segments,
    DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie);
DAT_RETURN DAT_API dat_srq_query(DAT_SRQ_HANDLE srq, DAT_SRQ_PARAM_MASK mask,
    DAT_SRQ_PARAM *param);
DAT_RETURN DAT_API dat_srq_resize(DAT_SRQ_HANDLE srq, DAT_COUNT max_recv_dtos);
DAT_RETURN DAT_API dat_srq_set_lw(DAT_SRQ_HANDLE srq, DAT_COUNT low_watermark);
DAT_RETURN DAT_API dat_csp_create(DAT_IA_HANDLE ia, DAT_COMM *comm, DAT_IA_ADDRESS_PTR address,
    DAT_EVD_HANDLE evd, DAT_CSP_HANDLE *csp);
DAT_RETURN DAT_API dat_csp_query(DAT_CSP_HANDLE csp, DAT_CSP_PARAM_MASK mask,
    DAT_CSP_PARAM *param);
DAT_RETURN DAT_API dat_csp_free(DAT_CSP_HANDLE csp);
DAT_RETURN DAT_API dat_ep_common_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR remote,
    DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN DAT_API dat_rmr_create_for_ep(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr);
DAT_RETURN DAT_API dat_ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT segments,
    DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
    DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT rmr_context);
DAT_RETURN DAT_API dat_ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET *local,
    DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags);
DAT_RETURN DAT_API dat_ia_ha_related(DAT_IA_HANDLE ia, const DAT_NAME_PTR name,
    DAT_BOOLEAN *answer);
/* END slots.txt */

/* Extensions: see dat_ib_extensions.h for operations and their arguments. */
typedef int DAT_EXTENDED_OP;
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000
DAT_RETURN DAT_API dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, ...);

/* Fills at most max of the structs that the consumer's pointers name, and sets *returned to the number of entries. */
DAT_RETURN DAT_API dat_registry_list_providers(DAT_COUNT max, DAT_COUNT *returned, DAT_PROVIDER_INFO *(list[]));

/* Names of type and subtype; the strings are constant. */
DAT_RETURN DAT_API dat_strerror(DAT_RETURN value, const char **major_message, const char **minor_message);

#ifdef __cplusplus
}
#endif

#include <dat2/udat.h>

#endif /* _DAT_H_ */
