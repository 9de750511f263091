/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: the registry, for providers.
 */
#ifndef _DAT_REGISTRY_H_
#define _DAT_REGISTRY_H_

#include <dat2/udat.h>
#include <dat2/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

DAT_RETURN DAT_API dat_registry_add_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *info);
DAT_RETURN DAT_API dat_registry_remove_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *info);

/* Functions that a provider library exports. dat_provider_init registers the provider with the info that it gets. */
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"
typedef void (DAT_API *DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *info, const char *ia_params);
typedef void (DAT_API *DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *info);

typedef enum dat_ha_relationship {
    DAT_HA_FALSE, /* Not related */
    DAT_HA_TRUE, /* Related */
    DAT_HA_UNKNOWN,
    DAT_HA_CONFLICTING, /* The two providers disagree */
    DAT_HA_EXTENSION_BASE
} DAT_HA_RELATIONSHIP;

DAT_RETURN DAT_API dat_registry_providers_related(const DAT_NAME_PTR one, const DAT_NAME_PTR other,
    DAT_HA_RELATIONSHIP *answer);

#ifdef __cplusplus
}
#endif

#endif /* _DAT_REGISTRY_H_ */
