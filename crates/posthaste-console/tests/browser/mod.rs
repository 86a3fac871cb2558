//! The console as people have it: in a browser, by a mouse and by keys, with a script and without,
//! in light and in dark, on a desk and on a telephone.

mod acts;
mod doors;
mod driver;
mod figures;
mod keys;
mod kit;
mod pictures;
mod plain;
mod seeds;
mod sound;
