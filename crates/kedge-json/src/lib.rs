//! JSON text: validation now, sub-document paths later.
