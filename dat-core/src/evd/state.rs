//! States of an EVD.
