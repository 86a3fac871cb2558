//! The console in a browser: by mouse and by keyboard, with and without scripts, in light and in
//! dark, on a desktop and on a phone.

mod acts;
mod authentication;
mod driver;
mod figures;
mod keys;
mod kit;
mod pictures;
mod plain;
mod seeds;
mod sound;
