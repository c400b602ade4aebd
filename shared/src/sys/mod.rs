//! THE FENCE: the only place in the house where `unsafe` may stand.
//!
//! Everything exported from here is safe to call; every `unsafe` block names the fact it relies on. What is not
//! here: decisions. These rooms do what they are told and report what happened.
#![allow(unsafe_code)]

pub mod child_allocator;
pub mod exec;
pub mod fork;
pub mod map;
pub mod memory;
pub mod pass;
pub mod sched_policy;
pub mod signal;
pub mod title;
pub mod wait;
