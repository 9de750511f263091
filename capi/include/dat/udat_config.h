/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 1.2: version and thread safety that dat_ia_open requests.
 */
#ifndef _UDAT_CONFIG_H_
#define _UDAT_CONFIG_H_

#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/* The thread safety that the consumer requires of the provider. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

#endif /* _UDAT_CONFIG_H_ */
