//! What `ps` shows: the title is written over the process's own argument area.
//!
//! `claim` must run first thing in `main`, while there is one thread: it moves the environment away, so that the
//! area behind the arguments can be used too (the kernel shows it when the arguments' last byte is not NUL).
//! Control characters are replaced; callers never pass a conninfo.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, OnceLock};

static AREA: OnceLock<Area> = OnceLock::new();
/// The short name in force.
static SHORT: Mutex<String> = Mutex::new(String::new());

struct Area {
    start: usize,
    length: usize,
}

/// Finds the area and moves the environment out of it. Without it titles stay as they are, nothing else is lost.
pub fn claim() {
    if AREA.get().is_some() || super::fork::thread_count().ok() != Some(1) {
        return;
    }
    let Some((arguments_start, arguments_end, environment_start, environment_end)) = bounds() else { return };
    let mut end = arguments_end;
    if environment_start == arguments_end && environment_end > environment_start {
        move_environment();
        end = environment_end;
    }
    if end > arguments_start + 1 {
        let _ = AREA.set(Area { start: arguments_start, length: end - arguments_start });
    }
}

/// Sets the title of this process.
pub fn set(title: &str) {
    let Some(area) = AREA.get() else { return };
    let mut text: Vec<u8> =
        title.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into_bytes();
    text.truncate(area.length - 1);
    // SAFETY: the area belongs to this process's stack and was laid out by the kernel at exec; nothing of Rust's or
    // libc's refers to it any more (arguments were copied by std at start, the environment by `claim`).
    unsafe {
        let start = area.start as *mut u8;
        std::ptr::write_bytes(start, 0, area.length);
        std::ptr::copy_nonoverlapping(text.as_ptr(), start, text.len());
    }
    let short: String = title.chars().take(15).collect();
    let mut last = SHORT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A worker changes its title with every task, and its short name never.
    if *last == short {
        return;
    }
    if let Ok(name) = CString::new(short.as_str()) {
        let _ = nix::sys::prctl::set_name(&name);
    }
    *last = short;
}

/// arg_start, arg_end, env_start, env_end of /proc/self/stat.
fn bounds() -> Option<(usize, usize, usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in brackets and may hold blanks: count behind its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<usize>().ok());
    let found = (field(48)?, field(49)?, field(50)?, field(51)?);
    (found.0 > 0 && found.1 > found.0).then_some(found)
}

unsafe extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// Gives libc an environment of our own, never freed, as `setenv` would.
fn move_environment() {
    let mut strings: Vec<*mut libc::c_char> = std::env::vars_os()
        .filter_map(|(key, value)| {
            let mut pair: OsString = key;
            pair.push("=");
            pair.push(value);
            CString::new(pair.into_vec()).ok().map(CString::into_raw)
        })
        .collect();
    strings.push(std::ptr::null_mut());
    let list: &'static mut [*mut libc::c_char] = strings.leak();
    // SAFETY: one thread (checked by `claim`), so nobody reads the environment meanwhile; the new list is
    // NUL-terminated and never freed.
    unsafe { environ = list.as_mut_ptr() };
}
