/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: names of vendors' attributes: none. Programs include this header.
 */
#ifndef _DAT_VENDOR_SPECIFIC_H_
#define _DAT_VENDOR_SPECIFIC_H_



#endif /* _DAT_VENDOR_SPECIFIC_H_ */
