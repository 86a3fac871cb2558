//! Several documents change together or not at all, by operations on single documents only.
