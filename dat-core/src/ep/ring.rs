//! Slots of outstanding work: cookies between post and completion, found again by work request id.
